package sources

import (
	"slices"
	"time"

	apidiscovery "k8s.io/api/apidiscovery/v2"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico/discovery"
)

const (
	// retryFirst and retryMax are the pauses before documents that failed are read
	// again, the first and the longest. The check that comes after it does that.
	retryFirst = time.Second
	retryMax   = 30 * time.Second
)

// Unread is a group/version whose document could not be read when it was tried
// last: what is known of it is what was known before, or what the server's list
// says.
type Unread struct {
	GroupVersion schema.GroupVersion
	Err          error
}

// detail is how reading the document of a group/version went.
type detail struct {
	read time.Time // successfully, or told by a stream; zero: never
	// err is why it failed last; nil: it did not. tried is what the list said of
	// it then.
	err   error
	tried []apidiscovery.APIResourceDiscovery
}

// pause is how long the documents that failed under a path are left alone.
type pause struct {
	lasts time.Duration
	until time.Time
}

// Unread returns the group/versions that the server lists and whose documents
// could not be read. They are tried again from time to time. After them come those that
// are beyond the limits (ErrBeyondLimits), and those that are not asked for
// (ErrInvalidName).
func (s *Source) Unread() (out []Unread) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, path := range s.paths() {
		out = append(out, s.parts[path].unread...)
	}
	for _, path := range s.paths() {
		out = append(out, s.parts[path].beyond...)
	}
	for _, path := range s.paths() {
		out = append(out, s.parts[path].invalid...)
	}
	return out
}

// sameUnread reports whether the same are unread. What the errors say may differ
// each time.
func sameUnread(a, b []Unread) bool {
	return slices.EqualFunc(a, b, func(a, b Unread) bool { return a.GroupVersion == b.GroupVersion })
}

// note keeps how reading went, forgets what is not listed any more, and returns
// why the group/versions of the list failed that did, and when the first document
// of the others is to be read again.
func (s *Source) note(l *index, results map[schema.GroupVersion]reading) (errs map[schema.GroupVersion]error, again time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	failed, good := false, false
	for id, r := range results {
		d := detail{read: now}
		if r.err != nil {
			d = detail{read: s.details[id].read, err: r.err, tried: l.aggregated[id].resources}
		}
		failed, good = failed || r.err != nil, good || r.err == nil
		s.details[id] = d
	}
	errs = map[schema.GroupVersion]error{}
	listed := make(map[schema.GroupVersion]bool, len(l.ids))
	for _, id := range l.ids {
		listed[id] = true
		d := s.details[id]
		if d.err != nil {
			errs[id] = d.err
		} else if due := d.read.Add(l.lasts()); !d.read.IsZero() && !l.aggregated[id].stale && (again.IsZero() || due.Before(again)) {
			again = due
		}
	}
	// What was due has just been tried, or has a reason of its own to be read again.
	if soon := now.Add(retryFirst); !again.IsZero() && again.Before(soon) {
		again = soon
	}
	for id := range s.details {
		if (id.Group == "") == (l.path == pathCore) && s.cfg.GroupVersions == nil && !listed[id] {
			delete(s.details, id)
		}
	}
	switch {
	case len(errs) == 0:
		delete(s.pauses, l.path)
	case failed:
		s.pause(l.path, good)
	}
	return errs, again
}

// pause leaves what failed under a path alone for a while: ever longer, unless
// something else did not fail. mu is held.
func (s *Source) pause(path string, good bool) {
	p := s.pauses[path]
	if p.lasts = min(p.lasts*2, retryMax); good || p.lasts == 0 {
		p.lasts = retryFirst
	}
	p.until = time.Now().Add(p.lasts)
	s.pauses[path] = p
}

// noteTold keeps that a stream told of the group/versions: nothing has to be read
// of them.
func (s *Source) noteTold(gvs []discovery.GroupVersion) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	for id := range s.details {
		if id.Group != "" {
			delete(s.details, id)
		}
	}
	for i := range gvs {
		s.details[schema.GroupVersion{Group: gvs[i].Group, Version: gvs[i].Version}] = detail{read: now}
	}
}
