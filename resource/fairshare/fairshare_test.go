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

// One user gets two thirds of the slots, and however many a few users take, others get some.
func TestShares(t *testing.T) {
	t.Parallel()
	l := New(400, 0)
	n := take(l, "first")
	if n != 263 {
		t.Errorf("a user alone has %d slots, want 263", n)
	}
	for i := range 16 {
		if take(l, fmt.Sprint("hostile", i)) == 0 {
			t.Errorf("user %d got no slot of %d free ones", i, 400-l.InUse())
		}
	}
	for range n {
		l.Release("first")
	}
	if _, held := l.held["first"]; held {
		t.Error("a user without slots is kept")
	}
	if take(l, "other") < 100 {
		t.Error("slots that are free again are not given to another user")
	}
}

// Fifty users that take all they get, one after the other, or in turns, leave to one more user the
// slots of few: of requests, of a Backend, of long-running requests and of connections, and of bytes.
func TestFiftyUsersTakeAll(t *testing.T) {
	t.Parallel()
	for size, few := range map[int]int{200: 1, 400: 1, 600: 2, 1024: 4, 16_988: 66, 65_536: 256, 64 << 20: 256 << 10, 160 << 20: 640 << 10} {
		unit := max(1, size/1024) // of bytes, so that the loops end
		for _, turns := range []bool{false, true} {
			l := New(size, 0)
			for again := true; again; {
				again = false
				for u := range 50 {
					user := fmt.Sprint(u)
					for l.TakeN(user, unit) || unit > 1 && l.TakeN(user, 1) {
						if again = true; turns {
							break
						}
					}
				}
			}
			n := 0
			for l.Take("one more") {
				n++
			}
			if n < few {
				t.Errorf("of %d, in turns %v: one more user gets %d, want %d", size, turns, n, few)
			}
		}
	}
}

// Users that take slots in turns end with equal shares, and leave the reserve.
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
		if n := l.held[fmt.Sprint(u)]; n < 8 || n > 10 {
			t.Errorf("user %d has %d slots", u, n)
		}
	}
	if free := 200 - l.InUse(); free < 50 {
		t.Errorf("%d slots are left, want the reserve of 50", free)
	}
}

// A user holds at most perUser slots, requests without a user share none, one may take all at once,
// and Exceed takes slots beyond the bound.
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
	if l := New(100, 0); !l.TakeN("jane", 100) || l.Take("john") {
		t.Error("all slots cannot be taken at once")
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
