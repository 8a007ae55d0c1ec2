package etcd

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"portico/internal/testing/storetest"
	"portico/resource"
)

// A feed hears of every change however often, and at whatever moment of it, its
// conversation with etcd is broken: before its requests get through, before they
// are confirmed, before the first change comes, while it says nothing.
func TestAFeedOutlivesBrokenConversations(t *testing.T) {
	t.Parallel()
	const rounds = 6
	for _, ranges := range [][]string{nil, {"another/", "other/", "storetest.portico.dev/"}} {
		t.Run(fmt.Sprint(len(ranges), " ranges"), func(t *testing.T) {
			t.Parallel()
			s := newServer(t)
			seed := rand.Uint64()
			rnd := rand.New(rand.NewPCG(seed, 0))
			c := s.client(t, under("/one"))
			store := c.Store(storetest.Namespaced())
			replica := follow(t, c.Feed(ranges...))
			waitFor(t, replica, storetest.Resets(1))
			within := func(most time.Duration) { time.Sleep(time.Duration(rnd.Int64N(int64(most)))) }
			var done []string
			for i := range rounds {
				fault := []string{"cut", "requests", "answers", "both", "restart"}[rnd.IntN(5)]
				done = append(done, fault)
				breakConversation(t, s, fault, within)
				if rnd.IntN(2) == 0 { // just as it is taken up again
					within(600 * time.Millisecond)
					s.cut()
					s.mend(t)
				}
				last := createBeside(t, s, fmt.Sprint("x", i))
				if err := replica.Wait(soon(t), storetest.At(last.Revision)); err != nil {
					t.Fatalf("seed %d: after %s the feed does not hear of the change at %d: %v", seed, strings.Join(done, ", "), last.Revision, err)
				}
			}
			replica.Compare(t.Context(), t, store)
			if err := replica.Wait(ended(t), storetest.Resets(2)); err == nil {
				t.Errorf("seed %d: the feed began anew", seed)
			}
		})
	}
}

// breakConversation does to a server's connections what the fault is called, with
// a change meanwhile.
func breakConversation(t *testing.T, s *server, fault string, within func(time.Duration)) {
	t.Helper()
	switch fault {
	case "restart":
		s.stop()
		s.start(t)
		return
	case "requests":
		s.requests.close()
	case "answers":
		s.answers.close()
	case "both":
		s.pause()
	}
	if fault != "cut" {
		createBeside(t, s, fmt.Sprint("m", time.Now().UnixNano()))
		within(50 * time.Millisecond)
	}
	s.cut()
	within(50 * time.Millisecond)
	s.mend(t)
}

// createBeside creates an object past the proxy.
func createBeside(t *testing.T, s *server, name string) (made *resource.Object) {
	t.Helper()
	return mustCreate(t, s.beside(t, under("/one")).Store(storetest.Namespaced()), name)
}

// soon is a context for what may take a while on a busy machine.
func soon(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}
