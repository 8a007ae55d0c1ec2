package watchcache_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"portico/resource"
	"portico/resource/etcd"
	"portico/resource/watchcache"
)

// cell is written through one server and read through the others.
var cell = resource.Key{Namespace: "default", Name: "cell"}

// acknowledged writes a value to the cell and returns when it is acknowledged.
func acknowledged(t *testing.T, s resource.Store, value int) {
	t.Helper()
	o, err := resource.Parse(fmt.Appendf(nil, `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"cell","namespace":"default","labels":{"n":"%d"}}}`, value))
	if err != nil {
		t.Fatal(err)
	}
	// During an election the outcome of a write may be unknown; it is repeated.
	for deadline := time.Now().Add(30 * time.Second); ; {
		_, err = s.Update(t.Context(), cell, func(*resource.Object) (resource.Mutation, error) { return resource.Mutation{Object: o}, nil })
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

// readBoth reads the cell by Get and List at once. Each returns a value or a StatusError in
// time.
func readBoth(t *testing.T, s resource.Store, within time.Duration) (values [2]int, errs [2]error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	var both sync.WaitGroup
	both.Go(func() {
		o, err := s.Get(ctx, cell, resource.At{})
		values[0], errs[0] = valueOf(o), err
	})
	both.Go(func() {
		l, err := s.List(ctx, resource.ListOptions{Namespace: cell.Namespace})
		if errs[1] = err; err == nil && len(l.Items) == 1 {
			values[1] = valueOf(l.Items[0])
		}
	})
	both.Wait()
	for _, err := range errs {
		if status := apierrors.APIStatus(nil); err != nil && !errors.As(err, &status) {
			t.Errorf("an error that is no Status: %v", err)
		}
	}
	return values, errs
}

func valueOf(o *resource.Object) int {
	if o == nil {
		return 0
	}
	n, _ := strconv.Atoi(o.Labels.Get("n"))
	return n
}

// reader is a server with its own members.
type reader struct {
	name  string
	store resource.Store
	// others is set if it can reach members that are not paused; then it has more time.
	others bool
	within time.Duration
}

// Two servers on different members: every read through one sees the writes acknowledged
// before through the other, even if its member was paused, or fails. (Progress proves
// nothing: a paused member resumes with its old revision.)
func TestNoAcknowledgedWriteIsMissed(t *testing.T) {
	t.Parallel()
	members := newCluster(t, 3)
	first, paused, third := members[0].endpoint, members[1].endpoint, members[2].endpoint
	kind := configMaps()
	open := func(name string, feed, store *etcd.Client, others bool) reader {
		c := running(t, watchcache.Config{Feed: feed.Feed(), Store: store.Store, FreshTimeout: 700 * time.Millisecond})
		r := reader{name: name, store: c.Store(&kind.Info), others: others, within: 2 * time.Second}
		if others {
			r.within = 20 * time.Second
		}
		return r
	}
	on := func(endpoints ...string) *etcd.Client { return openEtcd(t, "/cluster", endpoints...) }
	writer := open("writer", on(first), on(first), true)
	alone := on(paused)
	readers := []reader{
		writer,
		open("on the paused member alone", alone, alone, false),
		open("feed on the paused member, reads on all", alone, on(paused, first, third), true),
	}
	several := on(paused, first, third)
	readers = append(readers, open("on several members", several, several, true))

	n := 0
	round := func(what string, mustAnswer func(r reader) bool) {
		t.Helper()
		n++
		acknowledged(t, writer.store, n)
		var all sync.WaitGroup
		for _, r := range readers {
			all.Go(func() {
				values, errs := readBoth(t, r.store, r.within)
				for i, way := range []string{"get", "list"} {
					if errs[i] == nil && values[i] != n {
						t.Errorf("%s, %s: %s shows %d after %d was acknowledged", what, r.name, way, values[i], n)
					}
					if errs[i] != nil && mustAnswer(r) {
						t.Errorf("%s, %s: %s: %v", what, r.name, way, errs[i])
					}
				}
			})
		}
		all.Wait()
	}
	always := func(reader) bool { return true }
	for range 20 {
		round("all members run", always)
	}
	members[1].pause()
	acknowledged(t, writer.store, n) // past the election, if it was the leader that was paused
	for range 2 {
		round("a member is paused", func(r reader) bool { return r.others })
	}
	members[1].resume()
	for range 20 {
		round("a member is back", func(r reader) bool { return r.others })
	}
	// It catches up.
	for deadline := time.Now().Add(30 * time.Second); ; {
		if _, errs := readBoth(t, readers[1].store, 2*time.Second); errs[0] == nil && errs[1] == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the member that was paused serves no reads")
		}
	}
	round("all members run again", always)
}
