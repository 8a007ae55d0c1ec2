// Package fairshare bounds how many of something are in use at a time and shares
// them among users.
//
// Runs in: gateway, core, crd.
package fairshare

import "sync"

// times is how many times the number of free places a user may hold. With 3, a user
// alone gets three quarters of the limit, and each of n users 3/(3n+1) of it: however
// many take as much as they can, a place is left for the next one. (The dynamic
// threshold of A. Choudhury and E. Hahne, "Dynamic queue length thresholds for
// shared-memory packet switches", 1998.)
const times = 3

// Limit counts places in use, in all and by user. The zero Limit has none; New makes
// one that has. Safe for concurrent use.
type Limit struct {
	mu           sync.Mutex
	max, perUser int // 0: no bound
	inUse        int
	held         map[string]int // by user; without those that hold none
}

// New returns a Limit of max places, of which a user holds perUser at most and no more
// than its share; 0 is no bound.
func New(max, perUser int) *Limit { return &Limit{max: max, perUser: perUser} }

// Set replaces the bound in all. Places that are in use beyond it stay in use.
func (l *Limit) Set(max int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.max = max
}

// Take takes a place for a user and reports whether there was one. "" is a user
// without a share of its own: it is refused only if there is no place at all. Release
// must follow if Take returns true.
func (l *Limit) Take(user string) bool { return l.TakeN(user, 1) }

// TakeN takes n places for a user, or none, and reports which. ReleaseN must follow if
// it returns true.
func (l *Limit) TakeN(user string, n int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.free(user, n) {
		return false
	}
	l.add(user, n)
	return true
}

// Exceed takes a place whether there is one or not.
func (l *Limit) Exceed(user string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.add(user, 1)
}

// Release gives a place back.
func (l *Limit) Release(user string) { l.ReleaseN(user, 1) }

// ReleaseN gives n places back.
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

// InUse returns how many places are in use.
func (l *Limit) InUse() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.inUse
}

// Max returns the bound in all; 0: there is none.
func (l *Limit) Max() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.max
}
