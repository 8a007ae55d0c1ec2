package watchcache

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/fields"

	"portico/resource"
)

// state is a snapshot of things at a revision; a thing that cannot be read is
// nil.
func state(t *testing.T, rev int64, things map[string]*resource.Object) *snapshot {
	t.Helper()
	s := &snapshot{tree: newTree(), rev: rev}
	for name, o := range things {
		if o == nil {
			s.unreadable = note(s.unreadable, name, true)
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

// What cannot be read any more has not left, and what can be read again is no
// sign that the storage was set back.
func TestDifferenceOfWhatCannotBeRead(t *testing.T) {
	before := state(t, 10, map[string]*resource.Object{"a": at(t, "a", 1), "b": at(t, "b", 2), "c": nil, "d": at(t, "d", 4)})
	after := state(t, 20, map[string]*resource.Object{"a": nil, "b": at(t, "b", 2), "c": at(t, "c", 3)})
	changes, ok := difference(before, after)
	var got []string
	for _, c := range changes {
		got = append(got, fmt.Sprintf("%s@%d,%d", c.path, c.rev, c.part))
	}
	if want := []string{fmt.Sprintf("d@10,%d", leaving), fmt.Sprintf("c@20,%d", staying)}; !ok || !slices.Equal(got, want) {
		t.Errorf("got %v (%t), want %v", got, ok, want)
	}
}

// A list that was under way when the storage was set back keeps its state for
// nobody: a revision that comes again is another.
func TestCachedStatesAreOfOneEpoch(t *testing.T) {
	var k kept
	l := newEventLog(0)
	old := &snapshot{rev: 10}
	k.keep(l, 10, old, 0)
	if k.find(l, 10, 0, time.Second) != old {
		t.Error("a kept state is not found")
	}
	if k.find(l, 10, 1, time.Second) != nil {
		t.Error("a state of another epoch is found")
	}
}

// An index that was made of a state from before the storage was set back is of
// no use after, and none of after for a list from before.
func TestIndexesAreOfOneEpoch(t *testing.T) {
	info := &resource.Info{Versions: []string{"v1"}, Resource: "things", Kind: "Thing"}
	s := &store{cache: New(Config{}), info: info, events: newEventLog(0)}
	sel := resource.Selector{Fields: fields.OneTermEqualSelector("metadata.name", "a")}
	old, now := state(t, 10, nil), state(t, 12, nil)
	now.epoch = 1
	made := func(of *snapshot) { s.makeIndex(of, wantedBy(sel)[0]) }
	known := func(of *snapshot) bool { _, ok := s.candidates(of, sel, "things/", "things/"); return ok }
	made(old)
	if !known(old) || known(now) || known(old) {
		t.Error("an index of the epoch before is used, or kept")
	}
	made(now)
	now.rev, old.rev = 30, 40
	if !known(now) || known(old) {
		t.Error("an index is used by a list from before its epoch")
	}
}
