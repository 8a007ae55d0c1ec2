package fairshare

import (
	"fmt"
	"sync"
	"testing"
)

// take takes places for a user until there is none, and returns how many there were.
func take(l *Limit, user string) (n int) {
	for l.Take(user) {
		n++
	}
	return n
}

// One user gets three quarters of the slots, and however many users there are, one more gets
// a slot.
func TestShares(t *testing.T) {
	t.Parallel()
	l := New(400, 0)
	if n := take(l, "first"); n != 300 {
		t.Errorf("a user alone has %d slots, want 300", n)
	}
	for i := range 16 {
		if n := take(l, fmt.Sprint("hostile", i)); n == 0 && l.InUse() < 400 {
			t.Errorf("user %d got no slot of %d free ones", i, 400-l.InUse())
		}
	}
	for range 300 {
		l.Release("first")
	}
	if n := take(l, "other"); n == 0 {
		t.Error("no slot for another user")
	}
}

// Users that take slots in turns end with equal shares and leave some.
func TestSharesOfMany(t *testing.T) {
	t.Parallel()
	l := New(200, 0)
	const users = 16
	for again := true; again; {
		again = false
		for u := range users {
			again = l.Take(fmt.Sprint(u)) || again
		}
	}
	for u := range users {
		if n := l.held[fmt.Sprint(u)]; n < 11 || n > 13 {
			t.Errorf("user %d has %d places", u, n)
		}
	}
	if !l.Take("one more") {
		t.Errorf("no place for one more, %d of 200 in use", l.InUse())
	}
}

func TestBounds(t *testing.T) {
	t.Parallel()
	if n := take(New(1000, 7), "jane"); n != 7 {
		t.Errorf("%d places, want 7", n)
	}
	if n := take(New(1, 0), "jane"); n != 1 {
		t.Errorf("%d of the only place", n)
	}
	if n := take(New(5, 2), ""); n != 5 {
		t.Errorf("%d places for requests of no user, want 5", n)
	}
	l := New(2, 0)
	for range 5 {
		l.Exceed("admin")
	}
	if l.Take("jane") || l.Take("") {
		t.Error("a place beyond the bound")
	}
	l.Set(0)
	if !l.Take("jane") || l.InUse() != 6 {
		t.Errorf("%d in use without a bound", l.InUse())
	}
}

// What was taken can be given back, from many goroutines, and nothing is left of
// users that hold nothing.
func TestLimitAtOnce(t *testing.T) {
	t.Parallel()
	l := New(10, 0)
	var all sync.WaitGroup
	for u := range 8 {
		all.Go(func() {
			user := fmt.Sprint(u)
			for range 1000 {
				if l.Take(user) {
					l.Release(user)
				}
			}
		})
	}
	all.Wait()
	if l.InUse() != 0 || len(l.held) != 0 {
		t.Errorf("%d in use, held %v", l.InUse(), l.held)
	}
}
