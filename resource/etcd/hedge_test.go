package etcd

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"portico/resource"
)

// Each attempt of a row answers after a while, or hangs until it is given up.
func TestHedged(t *testing.T) {
	const hangs = -1
	down := status.Error(codes.Unavailable, "down")
	refused := errors.New("refused")
	type attempt struct {
		after time.Duration // in ms
		err   error
	}
	for _, c := range []struct {
		name     string
		attempts []attempt
		begun    int32
		took     time.Duration
		err      error
	}{
		{"answered", []attempt{{5, nil}, {5, nil}}, 1, 5, nil},
		{"slow, but before the other", []attempt{{150, nil}, {100, nil}}, 2, 150, nil},
		{"the first hangs", []attempt{{hangs, nil}, {5, nil}}, 2, 105, nil},
		{"all but the last hang", []attempt{{hangs, nil}, {hangs, nil}, {5, nil}}, 3, 205, nil},
		{"a member is down", []attempt{{5, down}, {5, nil}}, 2, 10, nil},
		{"all are down", []attempt{{5, down}, {5, down}}, 2, 10, down},
		{"an answer that is an error", []attempt{{5, refused}, {5, nil}}, 1, 5, refused},
		{"all hang", []attempt{{hangs, nil}, {hangs, nil}}, 2, 1000, context.DeadlineExceeded},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				var begun atomic.Int32
				start := time.Now()
				_, err := hedged(ctx, len(c.attempts), 100*time.Millisecond, budget(), func(ctx context.Context) (int, error) {
					a := c.attempts[begun.Add(1)-1]
					if a.after == hangs {
						<-ctx.Done()
						return 0, ctx.Err()
					}
					select {
					case <-time.After(a.after * time.Millisecond):
						return 1, a.err
					case <-ctx.Done():
						return 0, ctx.Err()
					}
				})
				if took := time.Since(start); !errors.Is(err, c.err) || begun.Load() != c.begun || took != c.took*time.Millisecond {
					t.Errorf("%d attempts, %v, error %v", begun.Load(), took, err)
				}
			})
		})
	}
}

func budget() *hedgeBudget { return newHedgeBudget(newMetrics(nil).hedges) }

// An etcd that is slow as a whole is not asked for everything twice; one member
// that hangs is gone around, however many reads are sent to it.
func TestHedgesAreFew(t *testing.T) {
	const reads = 2000
	for _, c := range []struct {
		name    string
		answers func(attempt int) time.Duration // of the attempts of all reads
		least   int
		most    int
		slowest time.Duration
	}{
		{"all are slow", func(int) time.Duration { return 180 * time.Millisecond }, hedgeBurst, hedgeBurst + reads*hedgeShare, 180 * time.Millisecond},
		{"one of three hangs", func(n int) time.Duration {
			if n%3 == 0 {
				return time.Hour
			}
			return time.Millisecond
		}, reads / 3, reads, 201 * time.Millisecond},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var slowest time.Duration
				b := budget()
				var attempts atomic.Int64 // those of one read may begin together
				for range reads {
					start := time.Now()
					b.earn()
					_, err := hedged(t.Context(), 6, 100*time.Millisecond, b, func(ctx context.Context) (int, error) {
						select {
						case <-time.After(c.answers(int(attempts.Add(1)))):
							return 1, nil
						case <-ctx.Done():
							return 0, ctx.Err()
						}
					})
					if err != nil {
						t.Fatal(err)
					}
					slowest = max(slowest, time.Since(start))
					synctest.Wait() // what was given up has ended
				}
				if extra := int(attempts.Load()) - reads; extra < c.least || extra > c.most || slowest > c.slowest {
					t.Errorf("%d reads more than %d, the slowest took %v", extra, reads, slowest)
				}
			})
		})
	}
}

// quietStream is a stream of that many ranges at revision 5, whose watches are
// confirmed, and whose member says nothing; etcd is at revision rev.
func quietStream(ranges int, rev *atomic.Int64) *stream {
	f := &feed{Client: &Client{metrics: newMetrics(nil), transformer: identity{}, log: slog.New(slog.DiscardHandler)},
		wanted: make(chan struct{}, 1), regressed: make(chan struct{}, 1), ranges: make([]keyRange, ranges)}
	f.delivered.Store(5)
	s := newStream(f, &nothing{})
	s.unconfirmed = 0
	s.current = func(context.Context) (int64, error) { return rev.Load(), nil }
	close(s.wire.opened)
	return s
}

// A member that hangs is left, however often progress is asked for meanwhile;
// one that has nothing to say because nothing has happened is not.
func TestASilentStreamEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var rev atomic.Int64
		rev.Store(5)
		s := quietStream(1, &rev)
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
			s.wire.arrivals <- &etcdserverpb.WatchResponse{WatchId: watchID(0), Header: &etcdserverpb.ResponseHeader{Revision: 5}}
		}
		for range 100 { // it need not answer where there is nothing to tell
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

// Nobody asks, nothing is held back, and etcd does not tell of a change: the
// stream finds out by itself. Nor does it wait for watches that etcd never made.
func TestAStreamThatMissesAChangeEnds(t *testing.T) {
	for _, tt := range []struct {
		name        string
		unconfirmed int
		most        time.Duration
	}{
		{"all watches are confirmed", 0, quiet + silence + 2*askAgain},
		{"one is not", 1, confirmation},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var rev atomic.Int64
				rev.Store(6)
				s := quietStream(3, &rev)
				s.unconfirmed = tt.unconfirmed
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

// An etcd that does not answer the check either is no reason to leave a stream
// that owes nothing.
func TestAStreamOutlivesFailedChecks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := quietStream(1, new(atomic.Int64))
		s.current = func(context.Context) (int64, error) { return 0, status.Error(codes.Unavailable, "down") }
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if err := s.loop(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	})
}

// A change that is held back is asked for until it is known that the other
// ranges have come as far, or the member is left; not before all watches are
// confirmed.
func TestWhatIsHeldBackIsAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := quietStream(2, new(atomic.Int64))
		s.unconfirmed = 1
		ended := make(chan error, 1)
		go func() { ended <- s.loop(t.Context()) }()
		put := func(rev int64) {
			s.wire.arrivals <- &etcdserverpb.WatchResponse{
				WatchId: watchID(0), Header: &etcdserverpb.ResponseHeader{Revision: rev},
				Events: []*mvccpb.Event{{Type: mvccpb.Event_DELETE, Kv: &mvccpb.KeyValue{Key: []byte("a1"), ModRevision: rev}}},
			}
		}
		put(6)
		time.Sleep(silence / 2)
		if len(s.wire.ask) > 0 {
			t.Error("progress was asked for before the other watch was there")
		}
		s.wire.arrivals <- &etcdserverpb.WatchResponse{WatchId: watchID(1), Created: true}
		time.Sleep(time.Millisecond)
		if len(s.wire.ask) == 0 {
			t.Error("progress was not asked for once the other watch was there")
		}
		time.Sleep(silence - 100*time.Millisecond)
		put(7) // the member is there, and will never answer
		select {
		case err := <-ended:
			if !errors.Is(err, errSilent) {
				t.Error(err)
			}
		case <-time.After(time.Minute):
			t.Error("two changes are held back, and nobody asks any more")
		}
	})
}

// nothing is a sink that is not interested.
type nothing struct{ resource.FeedSink }

func (*nothing) Progress(int64) {}
