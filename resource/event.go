package resource

// Event returns what a change of one object means to a watcher with this
// selector: entering the selection is Added, leaving it is Deleted with the
// last matching state. prev is nil when the object did not exist before, cur
// when it is gone; rev is the revision of the change. The second result is
// false when the watcher sees nothing of it.
func (s Selector) Event(prev, cur *Object, rev int64) (Event, bool) {
	was, is := prev != nil && s.Matches(prev), cur != nil && s.Matches(cur)
	switch {
	case is && was:
		return Event{Type: Modified, Object: cur, Revision: rev}, true
	case is:
		return Event{Type: Added, Object: cur, Revision: rev}, true
	case was:
		return Event{Type: Deleted, Object: prev.WithRevision(rev), Revision: rev}, true
	}
	return Event{}, false
}
