package etcd

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// hangs is how long a request takes that is never answered.
const hangs = 1000 * time.Hour

// imaginary is an etcd. A test sets the error of its answers, and how long reads, writes and
// probes take.
type imaginary struct {
	read, write, probe atomic.Int64 // durations
	err                atomic.Pointer[error]
	probes, rejected   atomic.Int64
	breaker            *breaker
}

func imagine(t *testing.T) *imaginary {
	e := &imaginary{}
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	e.breaker = newBreaker(ctx, checkEvery, slog.New(slog.DiscardHandler), func() { e.rejected.Add(1) }, func(ctx context.Context) error {
		e.probes.Add(1)
		return e.call(ctx, &etcdserverpb.RangeRequest{Key: []byte(revisionKey)}, &e.probe)
	}, func(context.Context) error { return errors.New("no such host") })
	return e
}

func (e *imaginary) call(ctx context.Context, req any, takes *atomic.Int64) error {
	return e.breaker.intercept(ctx, "/etcdserverpb.KV/any", req, nil, nil, func(ctx context.Context, _ string, _, _ any, _ *grpc.ClientConn, _ ...grpc.CallOption) error {
		select {
		case <-time.After(time.Duration(takes.Load())):
			if err := e.err.Load(); err != nil {
				return *err
			}
			return nil
		case <-ctx.Done():
			return status.FromContextError(ctx.Err()).Err()
		}
	})
}

func (e *imaginary) get(ctx context.Context) error {
	return e.call(ctx, &etcdserverpb.RangeRequest{Key: []byte("x")}, &e.read)
}

func (e *imaginary) put(ctx context.Context) error {
	return e.call(ctx, &etcdserverpb.TxnRequest{}, &e.write)
}

func set(takes time.Duration, of ...*atomic.Int64) {
	for _, d := range of {
		d.Store(int64(takes))
	}
}

// longest is how long it takes at most until etcd counts as silent.
const longest = (silentChecks + 1) * checkEvery

// When etcd becomes silent, requests in progress end, but for transactions; new ones are
// rejected at once; probes are few, and the first answer closes the breaker.
func TestBreakerOpensAndCloses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := imagine(t)
		if err := e.get(t.Context()); err != nil {
			t.Fatal(err)
		}
		set(hangs, &e.read, &e.write, &e.probe)
		began := time.Now()
		patient, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		var reads sync.WaitGroup
		for range 100 {
			reads.Go(func() {
				var silent *silentError
				if err := e.get(patient); !errors.As(err, &silent) || rejected(err) || errorCode(err) != codes.Aborted || !notDone(err) {
					t.Errorf("a read that was under way: %v", err)
				}
			})
		}
		written := make(chan error, 1)
		ctx, cancel := context.WithTimeout(t.Context(), callTimeout)
		defer cancel()
		go func() { written <- e.put(ctx) }()
		reads.Wait()
		if took := time.Since(began); took < 5*time.Second-checkEvery || took > longest {
			t.Errorf("etcd was found to be silent after %v", took)
		}
		at := time.Now()
		for range 1000 {
			if err := errors.Join(e.get(t.Context()), e.put(t.Context())); !rejected(err) {
				t.Fatal(err)
			}
		}
		if took := time.Since(at); took > 0 {
			t.Errorf("rejecting took %v", took)
		}
		if n := e.rejected.Load(); n != 2100 {
			t.Errorf("%d were rejected", n)
		}
		if err := <-written; errorCode(err) != codes.DeadlineExceeded || notDone(err) {
			t.Errorf("a transaction that was under way: %v", err)
		}
		time.Sleep(10 * time.Minute)
		if most := maxProbes*int64(10*time.Minute/callTimeout) + 2*maxProbes; e.probes.Load() > most {
			t.Errorf("%d probes", e.probes.Load())
		}
		waited := make(chan time.Time, 1)
		go func() {
			e.breaker.wait(patient)
			waited <- time.Now()
		}()
		synctest.Wait()
		set(0, &e.read, &e.write, &e.probe)
		at = time.Now()
		if took := (<-waited).Sub(at); took > callTimeout+checkEvery {
			t.Errorf("it took %v to find out that etcd is back", took)
		}
		if err := errors.Join(e.get(t.Context()), e.put(t.Context())); err != nil || e.breaker.silent() {
			t.Errorf("etcd is back: %v", err)
		}
	})
}

// Any answer counts, also to a transaction that began before.
func TestAnswersToOldRequestsCloseTheBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := imagine(t)
		set(hangs, &e.probe)
		set(9*time.Second, &e.write)
		began := time.Now()
		if err := e.put(t.Context()); err != nil || time.Since(began) != 9*time.Second || e.breaker.silent() {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		if err := e.get(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// The breaker stays closed, in each case for an hour.
func TestBreakerStaysClosed(t *testing.T) {
	for name, run := range map[string]func(ctx context.Context, e *imaginary){
		"one slow transaction": func(ctx context.Context, e *imaginary) {
			set(time.Hour, &e.write)
			_ = e.put(ctx)
		},
		"a slow read, and a slow answer to the probe": func(ctx context.Context, e *imaginary) {
			set(time.Hour, &e.read)
			set(3*time.Second, &e.probe)
			_ = e.get(ctx)
		},
		"clients that give up": func(ctx context.Context, e *imaginary) {
			set(hangs, &e.read, &e.write)
			for range 3600 {
				short, cancel := context.WithTimeout(ctx, time.Second)
				_ = e.get(short)
				cancel()
			}
		},
		"a member that hangs, where another answers": func(ctx context.Context, e *imaginary) {
			set(hangs, &e.read, &e.probe)
			go func() { _ = e.get(ctx) }()
			for range 3600 {
				_ = e.put(ctx)
				time.Sleep(time.Second)
			}
		},
		"elections": func(ctx context.Context, e *imaginary) {
			for range 600 {
				err := rpctypes.ErrGRPCNoLeader
				e.err.Store(&err)
				for range 4 { // longer than any
					_ = e.get(ctx)
					time.Sleep(time.Second)
				}
				e.err.Store(nil)
				_ = e.get(ctx)
				time.Sleep(time.Second)
			}
		},
		"no requests": func(context.Context, *imaginary) { time.Sleep(time.Hour) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := imagine(t)
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				run(ctx, e)
				if e.rejected.Load() > 0 || e.breaker.silent() {
					t.Error("etcd was held to be silent")
				}
			})
		})
	}
}

// The breaker opens although something is received.
func TestBreakerOpensOnAnswersWithoutAQuorum(t *testing.T) {
	for name, run := range map[string]func(ctx context.Context, e *imaginary){
		"no quorum": func(ctx context.Context, e *imaginary) {
			set(time.Second, &e.read, &e.probe)
			err := rpctypes.ErrGRPCTimeout
			e.err.Store(&err)
			for range 10 {
				_ = e.get(ctx)
			}
		},
		"a member that answers for itself": func(ctx context.Context, e *imaginary) {
			set(hangs, &e.probe, &e.write)
			go func() { _ = e.put(ctx) }()
			for range 20 {
				_ = e.call(ctx, &etcdserverpb.RangeRequest{Key: []byte("x"), Serializable: true}, &e.read)
				time.Sleep(checkEvery)
			}
		},
		"clients that give up": func(ctx context.Context, e *imaginary) {
			set(hangs, &e.read, &e.probe)
			for range 20 {
				short, cancel := context.WithTimeout(ctx, 600*time.Millisecond)
				_ = e.get(short)
				cancel()
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := imagine(t)
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				run(ctx, e)
				if !e.breaker.silent() {
					t.Error("etcd was not found to be silent")
				}
			})
		})
	}
}

// Refusals that need a quorum are answers: a client without permission must not be
// rejected for ever.
func TestAnswersOfAQuorum(t *testing.T) {
	read, own, write := &etcdserverpb.RangeRequest{Key: []byte(revisionKey)}, &etcdserverpb.RangeRequest{Serializable: true}, &etcdserverpb.TxnRequest{}
	for _, c := range []struct {
		req  any
		err  error
		want bool
	}{
		{read, nil, true},
		{own, nil, false},
		{read, rpctypes.ErrGRPCPermissionDenied, true},
		{write, rpctypes.ErrGRPCPermissionDenied, true},
		{own, rpctypes.ErrGRPCPermissionDenied, false},
		{read, rpctypes.ErrGRPCInvalidAuthToken, true},
		{write, rpctypes.ErrGRPCInvalidAuthToken, false},
		{read, rpctypes.ErrGRPCAuthOldRevision, true},
		{read, rpctypes.ErrGRPCCompacted, true},
		{write, rpctypes.ErrGRPCCorrupt, true},
		{read, rpctypes.ErrGRPCNoLeader, false},
		{read, rpctypes.ErrGRPCTimeout, false},
		{read, rpctypes.ErrGRPCNotSupportedForLearner, false},
		{write, status.Error(codes.Unknown, "unexpected"), false},
	} {
		if got := isAnswer(c.req, c.err); got != c.want {
			t.Errorf("%T, %v: that proves a quorum: %v", c.req, c.err, got)
		}
	}
}
