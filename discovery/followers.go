package discovery

import (
	"crypto/rand"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"
)

// A server that must know what its gateways show asks the followers of its stream (stream.go) to acknowledge it:
// POST /apis?follower=NAME&process=P&serial=N, where P and N are the State of a BOOKMARK, says that requests are
// routed by that state, and that discovery and the index of OpenAPI documents have it. The answer is 204, or 410 if the
// process does not know the follower or is another one; the follower then opens its stream again.

// Parameters of a stream and of an acknowledgement.
const (
	FollowerParameter = "follower"
	processParameter  = "process"
	serialParameter   = "serial"
)

const (
	// followerGrace is how long a follower is waited for after its stream has ended: it opens another within
	// milliseconds, and sends requests meanwhile.
	followerGrace = 5 * time.Second
	// followerPatience is how long a follower with a stream may take for its next acknowledgement. A stopped process,
	// or one behind a broken network, keeps its stream for longer.
	followerPatience = 15 * time.Second
)

// Acknowledge returns the query of an acknowledgement.
func Acknowledge(follower string, s State) string {
	return url.Values{FollowerParameter: {follower}, processParameter: {s.Process}, serialParameter: {strconv.FormatInt(s.Serial, 10)}}.Encode()
}

// Followers are the followers of the stream of one server, by name. A nil *Followers has none. Safe for concurrent
// use.
type Followers struct {
	process string
	changed func()

	mu     sync.Mutex
	byName map[string]*follower
}

// follower is one of Followers. of.mu guards its fields.
type follower struct {
	of      *Followers
	streams int
	left    time.Time // when its last stream ended
	// last is the serial of the last state that was sent, and shown of the last state that was acknowledged. waits is
	// the time since which they differ, or at which the difference became smaller.
	last, shown int64
	waits       time.Time
}

// NewFollowers returns Followers that call changed, which must not block, after each acknowledgement.
func NewFollowers(changed func()) *Followers {
	return &Followers{process: rand.Text(), changed: changed, byName: map[string]*follower{}}
}

// Shown returns the last state that all followers have acknowledged, latest if there are none. Left out are followers
// whose streams ended more than followerGrace ago, and those that acknowledge nothing for followerPatience.
func (f *Followers) Shown(latest int64) int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	for name, one := range f.byName {
		switch {
		case one.streams == 0 && now.Sub(one.left) > followerGrace:
			delete(f.byName, name)
		case one.shown < one.last && now.Sub(one.waits) > followerPatience:
		default:
			latest = min(latest, one.shown)
		}
	}
	return latest
}

// Count returns how many followers have acknowledged a state.
func (f *Followers) Count() (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, one := range f.byName {
		if one.streams > 0 && one.shown > 0 {
			n++
		}
	}
	return n
}

// join adds the stream of a request; nil if its reader acknowledges nothing.
func (f *Followers) join(r *http.Request) *follower {
	name := r.URL.Query().Get(FollowerParameter)
	if f == nil || name == "" {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	one := f.byName[name]
	if one == nil {
		one = &follower{of: f}
		f.byName[name] = one
	}
	one.streams++
	one.waits = time.Now()
	return one
}

// leave notes the end of a stream.
func (o *follower) leave() {
	if o == nil {
		return
	}
	o.of.mu.Lock()
	defer o.of.mu.Unlock()
	o.streams--
	o.left = time.Now()
}

// sent notes that a state is being sent, and returns it as the follower acknowledges it.
func (o *follower) sent(serial int64) *State {
	if o == nil {
		return nil
	}
	o.of.mu.Lock()
	defer o.of.mu.Unlock()
	if o.shown == o.last {
		o.waits = time.Now()
	}
	o.last = serial
	return &State{Process: o.of.process, Serial: serial}
}

// acknowledges reports whether a request is an acknowledgement.
func (f *Followers) acknowledges(r *http.Request) bool {
	return f != nil && r.Method == http.MethodPost && r.URL.Path == "/apis"
}

// serve answers an acknowledgement.
func (f *Followers) serve(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	serial, err := strconv.ParseInt(query.Get(serialParameter), 10, 64)
	if err != nil || query.Get(processParameter) != f.process || !f.acknowledge(query.Get(FollowerParameter), serial) {
		w.WriteHeader(http.StatusGone)
		return
	}
	f.changed()
	w.WriteHeader(http.StatusNoContent)
}

// acknowledge reports whether a follower is known.
func (f *Followers) acknowledge(name string, serial int64) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	one := f.byName[name]
	if one == nil || one.streams == 0 {
		return false
	}
	one.shown, one.waits = max(one.shown, min(serial, one.last)), time.Now()
	return true
}
