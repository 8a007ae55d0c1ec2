package etcd

import (
	"fmt"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"portico/internal/testing/storetest"
	"portico/resource"
)

// A watch that nobody reads holds on to no more than some events, or some bytes
// of them; then it ends.
func TestTheBacklogIsBounded(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	for name, tt := range map[string]struct {
		events, bytes int
		text          string
	}{
		"events": {3, watchBacklogBytes, "1"},
		"bytes":  {watchBacklog, 1000, strings.Repeat("x", 300)},
	} {
		t.Run(name, func(t *testing.T) {
			st := s.client(t).Store(storetest.Namespaced())
			first := mustCreate(t, st, "first")
			opened, err := st.Watch(t.Context(), resource.WatchOptions{InitialEvents: true})
			if err != nil {
				t.Fatal(err)
			}
			defer opened.Close()
			w := opened.(*watcher)
			w.mu.Lock()
			w.backlog, w.backlogBytes = tt.events, tt.bytes
			w.mu.Unlock()
			if events, err := w.Next(t.Context()); err != nil || len(events) != 2 || events[0].Object.Revision != first.Revision || events[1].Type != resource.Synced {
				t.Fatalf("%v, %v", events, err)
			}
			for i := 0; ; i++ {
				o := setting(t, fmt.Sprint("x", i), tt.text)
				if _, err := st.Create(t.Context(), o.Key(), o, 0); err != nil {
					t.Fatal(err)
				}
				// One at a time, so that etcd sends no more than one in a response.
				var waiting int
				var ended error
				for waiting <= i && ended == nil && t.Context().Err() == nil {
					time.Sleep(time.Millisecond)
					w.mu.Lock()
					waiting, ended = len(w.queue), w.err
					w.mu.Unlock()
				}
				if waiting > 5 {
					t.Fatalf("%d events wait", waiting)
				}
				if ended != nil {
					break
				}
			}
			seen := 0
			for {
				events, err := w.Next(t.Context())
				if err != nil {
					if !apierrors.IsResourceExpired(err) || seen < 3 || seen > 5 {
						t.Errorf("after %d events: %v", seen, err)
					}
					return
				}
				seen += len(events)
			}
		})
	}
}

// The state that a watch begins with comes in parts, and what happens meanwhile
// comes after it.
func TestAWatchBeginsInParts(t *testing.T) {
	t.Parallel()
	st := newServer(t).client(t).Store(storetest.Namespaced())
	const objects, size = 20, 540 << 10
	for i := range objects {
		o := setting(t, fmt.Sprintf("x%02d", i), strings.Repeat("x", size))
		if _, err := st.Create(t.Context(), o.Key(), o, 0); err != nil {
			t.Fatal(err)
		}
	}
	w, err := st.Watch(t.Context(), resource.WatchOptions{InitialEvents: true})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	mustCreate(t, st, "a") // before all others, and yet after them
	parts, names, synced := 0, "", false
	for names == "" || !strings.HasSuffix(names, " a") {
		events, err := w.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if !synced {
			parts++
		}
		for _, e := range events {
			if synced = synced || e.Type == resource.Synced; e.Object != nil {
				names += " " + e.Object.Name
			}
		}
	}
	if parts < 2 || !synced || len(strings.Fields(names)) != objects+1 {
		t.Errorf("%d parts, synced %v:%s", parts, synced, names)
	}
}
