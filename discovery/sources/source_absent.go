package sources

import (
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico/discovery"
)

// graceDefault is that of Config.Grace.
const graceDefault = 60 * time.Second

// absences are the group/versions under one path that the server lists and says
// it does not have, while it is read once.
type absences struct {
	source *Source
	path   string
	now    time.Time
	known  knownVersions
	since  map[schema.GroupVersion]time.Time
}

func (s *Source) absences(path string, known knownVersions) *absences {
	return &absences{source: s, path: path, now: time.Now(), known: known, since: map[schema.GroupVersion]time.Time{}}
}

// take returns what is known of a group/version in the place of what the server
// does not have: it may be on its way in or out, and what it served shall not
// flicker. After the grace period it is stale, until the server has it again or
// lists it no more. ok is false if nothing is known of it.
func (a *absences) take(id schema.GroupVersion) (gv discovery.GroupVersion, ok bool) {
	gv, ok = a.known[id]
	if !ok || gv.Unknown {
		return gv, false
	}
	a.source.mu.Lock()
	since, before := a.source.absent[id]
	a.source.mu.Unlock()
	if !before {
		since = a.now
	}
	a.since[id] = since
	gv.Stale = gv.Stale || a.now.Sub(since) >= a.source.grace()
	return gv, true
}

// grace is Config.Grace.
func (s *Source) grace() time.Duration {
	if s.cfg.Grace == 0 {
		return graceDefault
	}
	return s.cfg.Grace
}

// end makes them those that the next reading goes by.
func (a *absences) end() {
	a.source.mu.Lock()
	defer a.source.mu.Unlock()
	for id := range a.source.absent {
		if (id.Group == "") == (a.path == pathCore) {
			delete(a.source.absent, id)
		}
	}
	for id, since := range a.since {
		if a.source.absent == nil {
			a.source.absent = map[schema.GroupVersion]time.Time{}
		}
		a.source.absent[id] = since
	}
}
