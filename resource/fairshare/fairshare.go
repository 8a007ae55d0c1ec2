// Package fairshare implements limits that users share.
//
// The user of a slot is the authenticated one, by the key of resource.Action.LimitKey, so that
// neither impersonation nor service accounts make many users of one.
//
// Take is for slots that are never taken back, such as the slots of requests at work. A quarter of
// them is a reserve for users that hold few: a 256th of all, and one at least. Of the other
// slots a user may hold seven times as many as are free. So a user alone gets 21 of 32 slots (all
// of them, if it takes them at once, as a request for which much memory is needed does), and
// however many slots N other users take, one more gets a 256th, while N is less than 64, or
// than a quarter of the slots if there are fewer than 256.
//
// Enter is for slots of requests that wait for their clients. They have neither shares nor a
// reserve: when all are taken, one of them is ended for the next. It is one that has stalled,
// or one of a user that holds more than the user of the next then would: of these, one of the
// user that holds most, and the one that has waited longest. So a user whose clients do not
// stall gets 1/(N+1) of the slots beside N others, while there are more slots than users.
//
// Runs in: gateway, core, crd.
package fairshare

import (
	"sync"
	"time"
)

const (
	// times is how many times the number of free slots outside the reserve a user may hold. It is
	// the dynamic threshold of A. Choudhury and E. Hahne, "Dynamic queue length thresholds for
	// shared-memory packet switches", 1998.
	times = 7
	// The reserve is max/reservePart. A user gets slots of it while it holds no more than
	// max/fewPart slots, and one at least.
	reservePart, fewPart = 4, 256
	// stallTime is how long a Waiter may have no progress until any user may replace it.
	stallTime = time.Second
)

// Limit counts slots in use, in all and by user. The zero Limit has no bound. Safe for
// concurrent use.
type Limit struct {
	mu           sync.Mutex
	max, perUser int // 0: no bound
	inUse        int
	held         map[string]int  // by user; users without slots are absent
	waiters      map[*Waiter]int // the slots of each, which are in held too
}

// New returns a Limit of max slots, of which a user holds at most perUser and its share; 0
// means no bound.
func New(max, perUser int) *Limit { return &Limit{max: max, perUser: perUser} }

// Set replaces max. Slots in use beyond it stay in use.
func (l *Limit) Set(max int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.max = max
}

// Take takes a slot for a user and reports whether there was one. The user "" has no
// share: it is refused only if there is no free slot. Release must follow if Take returns
// true.
func (l *Limit) Take(user string) bool { return l.TakeN(user, 1) }

// TakeN takes n slots for a user, or none, and reports which. ReleaseN must follow if it
// returns true.
func (l *Limit) TakeN(user string, n int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.free(user, n) {
		return false
	}
	l.add(user, n)
	return true
}

// Exceed takes a slot even if there is none.
func (l *Limit) Exceed(user string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.add(user, 1)
}

// Release returns a slot.
func (l *Limit) Release(user string) { l.ReleaseN(user, 1) }

// ReleaseN returns n slots.
func (l *Limit) ReleaseN(user string, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.add(user, -n)
}

func (l *Limit) free(user string, n int) bool {
	held, free := l.held[user], l.max-l.inUse
	switch {
	case l.perUser > 0 && user != "" && held+n > l.perUser:
		return false
	case l.max == 0:
		return true
	case n > free, user == "", l.inUse == 0, held+n <= max(l.max/fewPart, 1):
		return n <= free
	}
	free -= l.max / reservePart
	return n <= free && held+n <= times*free
}

func (l *Limit) add(user string, n int) {
	l.inUse += n
	if user == "" {
		return
	}
	if l.held == nil {
		l.held = map[string]int{}
	}
	if l.held[user] += n; l.held[user] == 0 {
		delete(l.held, user)
	}
}

// InUse returns the number of slots in use.
func (l *Limit) InUse() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.inUse
}

// Max returns the bound; 0 means none.
func (l *Limit) Max() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.max
}
