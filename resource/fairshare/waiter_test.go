package fairshare

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// waiting returns a Waiter of a user that counts how often it is ended.
func waiting(user string, ended *int) *Waiter {
	return &Waiter{User: user, End: func() { *ended++ }}
}

// Beside fifty users, whose requests wait for ever, and who repeat those that are ended, one more
// gets its part of the slots, and none of its requests is ended or refused.
func TestFiftyUsersWaitForEver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const size, users = 600, 50
		l := New(size, 0)
		ended, polite := 0, 0
		hostile := func() {
			for n := range size {
				user := fmt.Sprint(n % users)
				for w := waiting(user, &ended); l.Enter(w, 1) && l.held[user] < size/users; w = waiting(user, &ended) {
				}
			}
		}
		hostile()
		if l.InUse() != size {
			t.Fatalf("%d of %d slots are taken", l.InUse(), size)
		}
		var mine []*Waiter
		for i := range size / (users + 1) {
			w := waiting("polite", &polite)
			if !l.Enter(w, 1) {
				t.Errorf("request %d is refused", i)
			}
			mine = append(mine, w)
			hostile()
		}
		if ended == 0 || polite != 0 {
			t.Errorf("%d requests of others are ended, and %d of the polite user", ended, polite)
		}
		for _, w := range mine {
			l.Leave(w)
		}
		if l.held["polite"] != 0 || l.InUse() != size-len(mine) {
			t.Errorf("%d slots are held, %d in use", l.held["polite"], l.InUse())
		}
	})
}

// Of the requests that may be ended, one of the user with most slots is, without progress for longest; a user replaces requests of
// its own only if they have stalled.
func TestLongestWithoutProgressIsEnded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, last := New(4, 0), ""
		enter := func(user, name string) (*Waiter, bool) {
			w := &Waiter{User: user, End: func() { last += name }}
			ok := l.Enter(w, 1)
			time.Sleep(time.Millisecond)
			return w, ok
		}
		a, _ := enter("jane", "a")
		enter("jane", "b")
		enter("jane", "c")
		enter("john", "d")
		if _, ok := enter("jane", "x"); ok || last != "" {
			t.Errorf("jane gets a slot more, %q is ended", last)
		}
		a.Progress()
		if _, ok := enter("joe", "e"); !ok || last != "b" {
			t.Errorf("%q is ended, want b", last)
		}
		if _, ok := enter("joe", "x"); ok {
			t.Error("joe replaces a request of a user with as many slots")
		}
		time.Sleep(2 * stallTime)
		a.Progress()
		if _, ok := enter("jane", "f"); !ok || last != "bc" {
			t.Errorf("%q are ended, want bc", last)
		}
		if _, ok := enter("joe", "g"); !ok || last != "bcd" {
			t.Errorf("%q are ended, want bcd", last)
		}
	})
}

// Slots are neither lost nor made by requests that enter, are ended and leave at once.
func TestWaitersAtOnce(t *testing.T) {
	t.Parallel()
	l := New(20, 0)
	var all sync.WaitGroup
	for u := range 50 {
		all.Go(func() {
			for range 100 {
				w := &Waiter{User: fmt.Sprint(u % 7), End: func() {}}
				if l.Enter(w, 1+u%3) {
					w.Progress()
				}
				if n := l.InUse(); n > 20 {
					t.Errorf("%d of 20 are in use", n)
				}
				l.Leave(w)
			}
		})
	}
	all.Wait()
	if l.InUse() != 0 || len(l.held) != 0 || len(l.waiters) != 0 {
		t.Errorf("%d in use, %v, %d wait", l.InUse(), l.held, len(l.waiters))
	}
}
