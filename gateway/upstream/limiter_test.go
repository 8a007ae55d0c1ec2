package upstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"portico/internal/testing/await"
	"portico/resource"
	"portico/resource/fairshare"
)

// A limiter admits requests up to its limit and queues more, first come, first served;
// a request that ends leaves the queue, and new bounds hold at once.
func TestLimiter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var l limiter
		l.set(2, 3)
		enter := func() error { _, err := l.enter(t.Context(), ""); return err }
		if err := errors.Join(enter(), enter()); err != nil {
			t.Fatal(err)
		}
		var order []int
		ended, cancel := context.WithCancelCause(t.Context())
		gone := errors.New("gone")
		for i, ctx := range []context.Context{t.Context(), ended, t.Context()} {
			go func() {
				if _, err := l.enter(ctx, ""); err == nil {
					order = append(order, i)
				} else if err != gone {
					t.Error(i, err)
				}
			}()
			synctest.Wait()
		}
		if err := enter(); !is[*OverloadError](err) {
			t.Errorf("the queue is full: got %v, want an OverloadError", err)
		}
		cancel(gone)
		synctest.Wait()
		if l.waiting.InUse() != 2 || len(order) != 0 {
			t.Errorf("after one ended %d wait and %v entered, want 2 and none", l.waiting.InUse(), order)
		}
		for range 2 {
			l.leave("")
			synctest.Wait()
		}
		if !slices.Equal(order, []int{0, 2}) || l.active.InUse() != 2 {
			t.Errorf("%v entered and %d are active, want [0 2] and 2", order, l.active.InUse())
		}
		done := make(chan error)
		go func() { done <- enter() }()
		synctest.Wait()
		l.set(3, 0)
		if err := <-done; err != nil {
			t.Error(err)
		}
		if err := enter(); !is[*OverloadError](err) {
			t.Errorf("no queue: got %v, want an OverloadError", err)
		}
		l.set(0, 0)
		for range 1000 {
			if err := enter(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// A waiting request is passed over while its user has its share of the slots, which leaves a
// reserve for others.
func TestLimiterSharesSlots(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var l limiter
		l.set(8, 10)
		admitted := make(chan string, 10)
		for i, user := range []string{"a", "a", "a", "a", "a", "a", "b", "d", "a", "c"} { // the last two wait
			go func() {
				if _, err := l.enter(t.Context(), user); err != nil {
					t.Error(err)
				}
				if i > 7 {
					admitted <- user
				}
			}()
			synctest.Wait()
		}
		if l.leave("b"); <-admitted != "c" {
			t.Error("a slot of b is not given to c")
		}
		for _, user := range []string{"a", "d"} {
			l.leave(user)
			synctest.Wait()
		}
		if len(admitted) != 0 {
			t.Errorf("%s is given a slot of the reserve", <-admitted)
		}
		if l.leave("a"); <-admitted != "a" {
			t.Error("a slot of a is not given to a")
		}
	})
}

// Fifty users that take all slots of a Backend, and all places of its queue, keep no other one out.
func TestLimiterBesideFiftyUsers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var l limiter
		l.set(1024, 256)
		ctx, cancel := context.WithCancel(t.Context())
		for u := range 50 {
			for range 1024 {
				go l.enter(ctx, fmt.Sprint(u))
			}
			synctest.Wait()
		}
		for n := range 4 {
			if waited, err := l.enter(t.Context(), "polite"); waited || err != nil {
				t.Errorf("request %d: waited %v, %v", n, waited, err)
			}
		}
		done := make(chan error)
		go func() { _, err := l.enter(t.Context(), "polite"); done <- err }()
		synctest.Wait()
		l.leave("polite")
		if err := <-done; err != nil {
			t.Errorf("a request that waits for its turn: %v", err)
		}
		cancel()
	})
}

// A request that ends as it gets a slot passes the slot on to the next that waits.
func TestLimiterPassesSlotOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for range 50 { // select chooses at random
			var l limiter
			l.set(1, 2)
			_, _ = l.enter(t.Context(), "")
			ctx, cancel := context.WithCancel(t.Context())
			entered := 0
			for _, ctx := range []context.Context{ctx, t.Context()} {
				go func() {
					if _, err := l.enter(ctx, ""); err == nil {
						entered++
						l.leave("")
					} else if ctx == t.Context() {
						t.Error(err)
					}
				}()
				synctest.Wait()
			}
			cancel()
			l.leave("")
			synctest.Wait()
			if entered == 0 || l.active.InUse() != 0 || l.waiting.InUse() != 0 {
				t.Fatalf("%d entered, %d are active, %d wait", entered, l.active.InUse(), l.waiting.InUse())
			}
		}
	})
}

// limited returns an Upstream with one slot and no queue.
func limited(t *testing.T, serve http.HandlerFunc) *Upstream {
	p := turns()
	p.Limits.Concurrent, p.Limits.Queue = 1, 0
	return over(t, p, startNode(t, "unix", serve).endpoint())
}

// wantNoSlots fails unless all slots of the limit are released.
func wantNoSlots(t *testing.T, u *Upstream) {
	t.Helper()
	if n := u.Status().Active; n != 0 {
		t.Errorf("%d slots were not released", n)
	}
}

// A slot is released at the end of an answer, however that ends; watches take none.
func TestLimitOfRequests(t *testing.T) {
	t.Parallel()
	arrived, hang := make(chan struct{}), make(chan struct{})
	u := limited(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.Header.Get("X-Do") {
		case "hang":
			close(arrived)
			<-hang
		case "break":
			panic(http.ErrAbortHandler)
		case "nothing":
			w.WriteHeader(204)
		default:
			fmt.Fprint(w, strings.Repeat("x", 100_000))
		}
	})
	for _, do := range []string{"", "nothing", "break", ""} {
		if got := send(t, u, short, "GET", "", "X-Do", do); is[*OverloadError](got.err) {
			t.Errorf("%q: the slot of the last request is not free", do)
		}
	}
	res, err := u.Short().RoundTrip(newRequest(t.Context(), "GET", shortPath, nil))
	if err != nil {
		t.Fatal(err)
	}
	if got := send(t, u, short, "GET", ""); got.err == nil {
		t.Error("an answer that is being read holds no slot")
	}
	res.Body.Close()
	var waits sync.WaitGroup
	waits.Go(func() { send(t, u, short, "GET", "", "X-Do", "hang") })
	<-arrived
	if got := send(t, u, long, "GET", ""); got.code != 200 {
		t.Errorf("a long-running request: got %v", got.err)
	}
	if got := send(t, u, short, "GET", ""); !is[*OverloadError](got.err) {
		t.Errorf("without a free slot: got %v, want an OverloadError", got.err)
	}
	close(hang)
	waits.Wait()
	if s := u.Status(); s.Overflowed != 2 {
		t.Errorf("%d requests were refused, want 2", s.Overflowed)
	}
	wantNoSlots(t, u)
}

// A request for another protocol takes a slot until the protocol is switched; a watch
// takes none.
func TestLimitOfUpgrades(t *testing.T) {
	t.Parallel()
	arrived, answer := make(chan struct{}), make(chan struct{})
	u := limited(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/switch" {
			if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
				_, _ = io.WriteString(conn, switching)
				t.Cleanup(func() { conn.Close() })
			}
			return
		}
		arrived <- struct{}{}
		<-answer
	})
	upgrading := func(path, verb string) error {
		ctx := resource.WithAction(t.Context(), &resource.Action{Verb: verb, IsResource: true, Resource: "things"})
		req := newRequest(ctx, "GET", path, nil)
		req.Header.Set("Connection", "Upgrade")
		req.Header.Set("Upgrade", "echo")
		res, err := u.Upgrade().RoundTrip(req)
		if err == nil {
			t.Cleanup(func() { res.Body.Close() })
		}
		return err
	}
	for range 3 {
		if err := upgrading("/switch", "get"); err != nil {
			t.Fatalf("those before have left HTTP: %v", err)
		}
	}
	var waits sync.WaitGroup
	for _, verb := range []string{"watch", "get", "watch"} {
		waits.Go(func() {
			if err := upgrading("/wait", verb); err != nil {
				t.Errorf("%s: %v", verb, err)
			}
		})
		<-arrived
	}
	if err := upgrading("/wait", "get"); !is[*OverloadError](err) {
		t.Errorf("one that is not answered yet takes no slot: got %v", err)
	}
	close(answer)
	waits.Wait()
}

// A request that accepts a stream of events takes a slot until it is answered with one.
func TestLimitOfStreams(t *testing.T) {
	t.Parallel()
	u := limited(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", r.Header.Get("Accept"))
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	ctx, cancel := context.WithCancel(resource.WithAction(t.Context(), &resource.Action{Verb: "get", IsResource: true, Resource: "things", Streams: true}))
	ask := func(accept string) error {
		req := newRequest(ctx, "GET", shortPath, nil)
		req.Header.Set("Accept", accept)
		res, err := u.Long().RoundTrip(req)
		if err == nil {
			go io.Copy(io.Discard, res.Body)
		}
		return err
	}
	for _, accept := range []string{"text/event-stream", "text/event-stream;charset=utf-8", "application/json"} {
		if err := ask(accept); err != nil {
			t.Fatalf("%s: %v", accept, err)
		}
	}
	if err := ask("text/event-stream"); !is[*OverloadError](err) {
		t.Errorf("a download takes no slot: got %v", err)
	}
	cancel()
	await.Until(t, "slots are not released", func() bool { return u.Status().Active == 0 })
}

// Connections that carry one long-running request each are limited, shared ones are not,
// and the end of a request releases its slot.
func TestLimitOfLastingConnections(t *testing.T) {
	t.Parallel()
	for network, want := range map[string]int{"unix": 4, "h2c": 11} {
		u := overSocket(t, startNode(t, network, stream))
		u.lasting = fairshare.New(4, 0)
		ctx, cancel := context.WithCancel(resource.WithAction(t.Context(), &resource.Action{
			Verb: "watch", IsResource: true, Resource: "things", User: &resource.User{Name: "jane"},
		}))
		open := 0
		for range 11 { // the first shows what the server speaks
			res, err := u.Long().RoundTrip(newRequest(ctx, "GET", watchPath, nil))
			if err == nil {
				open++
				go io.Copy(io.Discard, res.Body)
			} else if !is[*OverloadError](err) {
				t.Fatal(err)
			}
		}
		if open != want {
			t.Errorf("%s: got %d watches, want %d", network, open, want)
		}
		cancel()
		await.Until(t, "slots are not released", func() bool { return u.lasting.InUse() == 0 })
	}
}
