package etcd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"portico/internal/testing/await"
	"portico/internal/testing/storetest"
	"portico/resource"
)

// A feed delivers every change however often its stream breaks, and whenever: before its
// requests are received, before they are confirmed, before the first change, while idle.
func TestAFeedOutlivesBrokenStreams(t *testing.T) {
	t.Parallel()
	rounds := 6
	if testing.Short() {
		rounds = 2
	}
	for _, ranges := range [][]string{nil, {"another/", "other/", "storetest.portico.dev/"}} {
		t.Run(fmt.Sprint(len(ranges), " ranges"), func(t *testing.T) {
			t.Parallel()
			s := newServer(t)
			seed := rand.Uint64()
			rnd := rand.New(rand.NewPCG(seed, 0))
			c := s.client(t, under("/one"))
			store := c.Store(storetest.Namespaced())
			replica := follow(t, c.Feed(ranges...))
			within := func(most time.Duration) { time.Sleep(time.Duration(rnd.Int64N(int64(most)))) }
			var done []string
			for i := range rounds {
				fault := []string{"cut", "requests", "answers", "both", "restart"}[rnd.IntN(5)]
				done = append(done, fault)
				breakStream(t, s, fault, within)
				if rnd.IntN(2) == 0 { // while it reconnects
					within(600 * time.Millisecond)
					s.Cut()
					s.Mend()
				}
				last := createBeside(t, s, fmt.Sprint("x", i))
				if err := replica.Wait(soon(t), storetest.At(last.Revision)); err != nil {
					t.Fatalf("seed %d: after %s the feed does not deliver the change at %d: %v", seed, strings.Join(done, ", "), last.Revision, err)
				}
			}
			replica.Compare(t.Context(), t, store)
			if err := replica.Wait(ended(t), storetest.Resets(2)); err == nil {
				t.Errorf("seed %d: the feed was reset", seed)
			}
		})
	}
}

// breakStream breaks the connections of a server in one way, with a change meanwhile.
func breakStream(t *testing.T, s *server, fault string, within func(time.Duration)) {
	t.Helper()
	switch fault {
	case "restart":
		s.Stop()
		s.start(t)
		return
	case "requests":
		s.Requests.Shut()
	case "answers":
		s.Responses.Shut()
	case "both":
		s.Pause()
	}
	if fault != "cut" {
		createBeside(t, s, fmt.Sprint("m", time.Now().UnixNano()))
		within(50 * time.Millisecond)
	}
	s.Cut()
	within(50 * time.Millisecond)
	s.Mend()
}

// createBeside creates an object past the proxy.
func createBeside(t *testing.T, s *server, name string) (made *resource.Object) {
	t.Helper()
	return mustCreate(t, s.beside(t, under("/one")).Store(storetest.Namespaced()), name)
}

// soon is a context for what may take a while on a busy machine.
func soon(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), await.Patience())
	t.Cleanup(cancel)
	return ctx
}

// quietStream returns a stream at revision 5 with a confirmed watch and a member that
// sends nothing; etcd is at revision rev.
func quietStream(rev *atomic.Int64) *watchStream {
	f := &feed{Client: &Client{metrics: newMetrics(nil), transformer: identity{}, log: slog.New(slog.DiscardHandler)},
		progress: make(chan struct{}, 1), regressed: make(chan struct{}, 1)}
	f.delivered.Store(5)
	s := newWatchStream(f, &nothing{})
	s.created = true
	s.current = func(context.Context) (int64, error) { return rev.Load(), nil }
	close(s.conn.opened)
	return s
}

// A stream leaves a member that hangs, however often progress is requested meanwhile, but
// not a member that sends nothing because nothing has changed.
func TestASilentStreamEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var rev atomic.Int64
		rev.Store(5)
		s := quietStream(&rev)
		ended := make(chan error, 1)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() { ended <- s.loop(ctx) }()
		ask := func() {
			if err := s.feed.RequestProgress(ctx); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Hour)
		for range 100 { // as long as it answers
			ask()
			time.Sleep(time.Second)
			s.conn.responses <- &etcdserverpb.WatchResponse{Header: &etcdserverpb.ResponseHeader{Revision: 5}}
		}
		for range 100 { // it need not answer if nothing has changed
			ask()
			time.Sleep(time.Second)
		}
		rev.Store(6)
		began := time.Now()
		for len(ended) == 0 && time.Since(began) < time.Minute {
			ask()
			time.Sleep(50 * time.Millisecond)
		}
		if took := time.Since(began); took < silence/2 || took > 2*silence || len(ended) == 0 || !errors.Is(<-ended, errSilent) {
			t.Errorf("the stream was left after %v", took)
		}
	})
}

// A stream finds out by itself that etcd does not send a change, or never created the
// watch.
func TestAStreamThatMissesAChangeEnds(t *testing.T) {
	for name, tt := range map[string]struct {
		created bool
		most    time.Duration
	}{
		"the watch is created": {true, quiet + silence + 3*askAgain},
		"the watch is not":     {false, confirmation},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var rev atomic.Int64
				rev.Store(6)
				s := quietStream(&rev)
				s.created = tt.created
				began := time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				if err := s.loop(ctx); !errors.Is(err, errSilent) || time.Since(began) > tt.most {
					t.Errorf("the stream ended after %v: %v", time.Since(began), err)
				}
			})
		})
	}
}

// A stream that owes nothing continues although reads of the revision fail.
func TestAStreamOutlivesFailedChecks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := quietStream(new(atomic.Int64))
		s.current = func(context.Context) (int64, error) { return 0, status.Error(codes.Unavailable, "down") }
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if err := s.loop(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	})
}

// nothing is a sink that ignores progress.
type nothing struct{ resource.FeedSink }

func (*nothing) Progress(int64) {}
