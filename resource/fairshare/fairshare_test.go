package fairshare

import (
	"fmt"
	"testing"
)

// take takes slots for a user until there is none, and returns how many there were.
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
	if _, held := l.held["first"]; held {
		t.Error("a user without slots is kept")
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
			t.Errorf("user %d has %d slots", u, n)
		}
	}
	if !l.Take("one more") {
		t.Errorf("no slot for one more, %d of 200 in use", l.InUse())
	}
}

// A user holds at most perUser slots, requests without a user share none, and Exceed takes
// slots beyond the bound.
func TestBounds(t *testing.T) {
	t.Parallel()
	if n := take(New(1000, 7), "jane"); n != 7 {
		t.Errorf("%d slots, want 7", n)
	}
	if n := take(New(1, 0), "jane"); n != 1 {
		t.Errorf("%d of the only slot", n)
	}
	if n := take(New(5, 2), ""); n != 5 {
		t.Errorf("%d slots for requests of no user, want 5", n)
	}
	l := New(2, 0)
	for range 5 {
		l.Exceed("admin")
	}
	if l.Take("jane") || l.Take("") {
		t.Error("a slot beyond the bound")
	}
	l.Set(0)
	if !l.Take("jane") || l.InUse() != 6 {
		t.Errorf("%d in use without a bound", l.InUse())
	}
}
