package watchcache

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"portico/resource"
)

// state returns a snapshot of things at a revision; nil is an unreadable thing.
func state(t *testing.T, rev int64, things map[string]*resource.Object) *snapshot {
	t.Helper()
	s := &snapshot{tree: newTree(), rev: rev}
	for name, o := range things {
		if o == nil {
			s.unreadable = withPath(s.unreadable, name, true)
			continue
		}
		s.tree.Set(item{name, o})
	}
	return s
}

func at(t *testing.T, name string, rev int64) *resource.Object {
	t.Helper()
	o, err := resource.Parse(fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Thing","metadata":{"name":%q,"uid":"u"}}`, name))
	if err != nil {
		t.Fatal(err)
	}
	return o.WithRevision(rev)
}

// An object that became unreadable was not deleted, and one that is readable again does not
// mean that the storage was restored.
func TestDifferenceOfUnreadableObjects(t *testing.T) {
	before := state(t, 10, map[string]*resource.Object{"a": at(t, "a", 1), "b": at(t, "b", 2), "c": nil, "d": at(t, "d", 4)})
	after := state(t, 20, map[string]*resource.Object{"a": nil, "b": at(t, "b", 2), "c": at(t, "c", 3)})
	changes, ok := difference(before, after)
	var got []string
	for _, c := range changes {
		got = append(got, fmt.Sprintf("%s@%d,%d", c.path, c.rev, c.part))
	}
	if want := []string{fmt.Sprintf("d@10,%d", onlyDeleted), fmt.Sprintf("c@20,%d", notDeleted)}; !ok || !slices.Equal(got, want) {
		t.Errorf("got %v (%t), want %v", got, ok, want)
	}
}

// A list that was in progress when the storage was restored does not keep its snapshot: the
// same revision has another state now.
func TestPageSnapshotsAreOfOneEpoch(t *testing.T) {
	var k pageSnapshots
	l := newEventLog(0)
	old := &snapshot{rev: 10}
	k.keep(l, 10, old, 0)
	if k.find(l, 10, 0, time.Second) != old {
		t.Error("a kept snapshot is not found")
	}
	if k.find(l, 10, 1, time.Second) != nil {
		t.Error("a snapshot of another epoch is found")
	}
}
