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

// quietStream is a stream at revision 5, whose watch is confirmed, and whose member sends
// nothing; etcd is at revision rev.
func quietStream(rev *atomic.Int64) *watchStream {
	f := &feed{Client: &Client{metrics: newMetrics(nil), transformer: identity{}, log: slog.New(slog.DiscardHandler)},
		wanted: make(chan struct{}, 1), regressed: make(chan struct{}, 1)}
	f.delivered.Store(5)
	s := newWatchStream(f, &nothing{})
	s.created = true
	s.current = func(context.Context) (int64, error) { return rev.Load(), nil }
	close(s.conn.opened)
	return s
}

// A stream leaves a member that hangs, however often progress is requested meanwhile, but
// not one that has nothing to send because nothing has changed.
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

// An etcd that does not answer the check either is no reason to leave a stream
// that owes nothing.
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

// Progress is requested once the watch is created, and again until it is answered.
func TestProgressIsRequestedUntilItIsAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := quietStream(new(atomic.Int64))
		s.created = false
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.loop(ctx) }()
		if err := s.feed.RequestProgress(ctx); err != nil {
			t.Fatal(err)
		}
		time.Sleep(silence / 2)
		if len(s.conn.ask) > 0 {
			t.Error("progress was requested before the watch was created")
		}
		s.conn.responses <- &etcdserverpb.WatchResponse{Created: true}
		for range 3 {
			synctest.Wait()
			if len(s.conn.ask) == 0 {
				t.Error("progress was not requested")
			} else {
				<-s.conn.ask
			}
			time.Sleep(askAgain)
		}
		s.conn.responses <- &etcdserverpb.WatchResponse{Header: &etcdserverpb.ResponseHeader{Revision: 5}}
		synctest.Wait()
		if len(s.conn.ask) > 0 {
			<-s.conn.ask
		}
		time.Sleep(2 * askAgain)
		if len(s.conn.ask) > 0 {
			t.Error("progress was requested after it was answered")
		}
		cancel()
		<-ended
	})
}

// nothing is a sink that is not interested.
type nothing struct{ resource.FeedSink }

func (*nothing) Progress(int64) {}
