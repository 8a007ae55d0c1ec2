// Package fairshare implements limits that users share.
//
// Runs in: gateway, core, crd.
package fairshare

import "sync"

// times is how many times the number of free slots a user may hold. With 3, a single user
// gets three quarters of the limit, and each of n users 3/(3n+1), so a slot remains for
// the next user. It is the dynamic threshold of A. Choudhury and E. Hahne, "Dynamic queue
// length thresholds for shared-memory packet switches", 1998.
const times = 3

// Limit counts slots in use, in all and by user. The zero Limit has no bound. Safe for
// concurrent use.
type Limit struct {
	mu           sync.Mutex
	max, perUser int // 0: no bound
	inUse        int
	held         map[string]int // by user; users without slots are absent
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
	case n > free, user == "":
		return n <= free
	}
	return held+n <= times*free
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
