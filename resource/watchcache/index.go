package watchcache

import (
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tidwall/btree"
	"k8s.io/apimachinery/pkg/labels"
	operator "k8s.io/apimachinery/pkg/selection"

	"portico/resource"
)

// Limits of indexes.
const (
	// indexAfter is how many objects readers have looked at in vain, for the same
	// label or field, before it gets an index.
	indexAfter = 100_000
	// indexLag is how many changes an index may be behind: those are looked at
	// one by one, and then taken in together.
	indexLag = 128
	// indexTerms is how many labels and fields of one resource are counted.
	indexTerms = 64
	// indexEntries bounds the indexes of one resource, in objects; an entry
	// takes about 50 bytes.
	indexEntries = 1_000_000
	// indexAge is how long an index is kept after its last use.
	indexAge = 10 * time.Minute
)

// term is a label or field that selectors ask an exact value of. by identifies
// how a field is read (resource.Selector.By); label is true for a label.
type term struct {
	label bool
	name  string
	by    any
}

// entry is an object in an index.
type entry struct{ value, path string }

func newEntries() *btree.BTreeG[entry] {
	less := func(a, b entry) bool { return a.value < b.value || a.value == b.value && a.path < b.path }
	return btree.NewBTreeGOptions(less, btree.Options{NoLocks: true})
}

// indexes are those of one event log: the paths of its objects by the value of a
// label or field. They are made when lists have often looked for such a value,
// and kept by the lists that use them: nothing is done for them when an object
// changes. An index shows some earlier revision; with the changes since, which
// the event log has, it names every object that can be chosen now, and some more.
type indexes struct {
	mu     sync.Mutex
	list   map[term]*index
	wasted map[term]int // objects looked at in vain
}

// index is one of them. Its fields are guarded by indexes.mu; published is
// immutable.
type index struct {
	entries   *btree.BTreeG[entry]
	published *btree.BTreeG[entry]
	rev       int64 // entries show the event log's resource at rev
	breaks    int   // event log.breaks when it was made
	epoch     int   // snapshot.epoch of what it was made of
	used      time.Duration
	value     func(*resource.Object) (string, bool)
}

// wanted is a term of a selector and the value it asks for.
type wanted struct {
	term
	value string
	of    func(*resource.Object) (string, bool)
}

// wantedBy returns the terms of a selector that an index can serve.
func wantedBy(sel resource.Selector) []wanted {
	var out []wanted
	if sel.Fields != nil {
		for _, r := range sel.Fields.Requirements() {
			if r.Operator != operator.Equals && r.Operator != operator.DoubleEquals {
				continue
			}
			of := func(o *resource.Object) (string, bool) { return o.Name, true }
			switch {
			case r.Field == "metadata.namespace":
				continue
			case r.Field != "metadata.name" && sel.Extract == nil:
				continue
			case r.Field != "metadata.name":
				of = func(o *resource.Object) (string, bool) {
					value, _ := sel.Field(o, r.Field)
					return value, true
				}
			}
			out = append(out, wanted{term{name: r.Field, by: sel.By}, r.Value, of})
		}
	}
	if sel.Labels == nil {
		return out
	}
	requirements, _ := sel.Labels.Requirements()
	for _, r := range requirements {
		if value, ok := exactValue(r); ok {
			out = append(out, wanted{term{label: true, name: r.Key()}, value, func(o *resource.Object) (string, bool) {
				return o.Labels.Lookup(r.Key())
			}})
		}
	}
	return out
}

// exactValue returns the one value that a label must have.
func exactValue(r labels.Requirement) (string, bool) {
	switch r.Operator() {
	case operator.Equals, operator.DoubleEquals, operator.In:
		if values := r.ValuesUnsorted(); len(values) == 1 {
			return values[0], true
		}
	}
	return "", false
}

// candidates returns, in order, the paths of all objects that the selector can
// choose in a snapshot, and of some that it does not; false when there is no
// index that knows. Paths begin with prefix and are not below from.
func (s *store) candidates(now *snapshot, sel resource.Selector, prefix, from string) ([]string, bool) {
	ix := &s.events.indexes
	ix.mu.Lock()
	defer ix.mu.Unlock()
	if len(ix.list) == 0 {
		return nil, false
	}
	for _, want := range wantedBy(sel) {
		in := ix.list[want.term]
		if in != nil && in.epoch < now.epoch {
			delete(ix.list, want.term)
			in = nil
		}
		if in == nil || in.epoch > now.epoch || in.rev > now.rev {
			continue
		}
		changes, _, ok := s.events.changesSince(in.rev, in.breaks)
		if !ok {
			delete(ix.list, want.term)
			continue
		}
		in.used = s.cache.age()
		out := in.paths(want.value, prefix, from)
		if len(changes) > 0 {
			out = s.addChanged(out, changes, prefix, from)
		}
		if len(changes) > indexLag {
			s.takeIn(in, changes)
		}
		return out, true
	}
	return nil, false
}

// paths returns those of one value.
func (in *index) paths(value, prefix, from string) []string {
	var out []string
	in.published.Ascend(entry{value, from}, func(e entry) bool {
		if e.value != value || !strings.HasPrefix(e.path, prefix) {
			return false
		}
		out = append(out, e.path)
		return true
	})
	return out
}

// addChanged adds the paths of objects that have changed since.
func (s *store) addChanged(paths []string, changes []*change, prefix, from string) []string {
	for _, c := range changes {
		if path := s.info.ObjectPath(c.object().Key()); path >= from && strings.HasPrefix(path, prefix) {
			paths = append(paths, path)
		}
	}
	slices.Sort(paths)
	return slices.Compact(paths)
}

// takeIn brings an index up to the last of the changes. indexes.mu is held.
func (s *store) takeIn(in *index, changes []*change) {
	for _, c := range changes {
		path := s.info.ObjectPath(c.object().Key())
		if c.prev != nil {
			if value, ok := in.value(c.prev); ok {
				in.entries.Delete(entry{value, path})
			}
		}
		if c.cur != nil {
			if value, ok := in.value(c.cur); ok {
				in.entries.Set(entry{value, path})
			}
		}
		in.rev = c.rev
	}
	in.published = in.entries.Copy()
}

// scanned notes that a list has looked at objects in vain for want of an index,
// and makes one when that has happened often.
func (s *store) scanned(now *snapshot, sel resource.Selector, inVain int) {
	ix := &s.events.indexes
	ix.mu.Lock()
	defer ix.mu.Unlock()
	for _, want := range wantedBy(sel) {
		if ix.list[want.term] != nil {
			continue
		}
		if ix.wasted == nil || len(ix.wasted) >= indexTerms && ix.wasted[want.term] == 0 {
			ix.wasted = map[term]int{}
		}
		ix.wasted[want.term] += inVain
		if ix.wasted[want.term] < indexAfter {
			continue
		}
		clear(ix.wasted)
		s.makeIndex(now, want)
		return // it may be all that this selector needs
	}
}

// makeIndex makes the index of a term as of a snapshot. indexes.mu is held.
func (s *store) makeIndex(now *snapshot, want wanted) {
	_, breaks, ok := s.events.changesSince(now.rev, -1)
	if !ok {
		return
	}
	var all []entry
	now.walk(s.info.RangePath(""), "", func(it item) bool {
		if value, ok := want.of(it.obj); ok {
			all = append(all, entry{value, it.path})
		}
		return true
	})
	slices.SortFunc(all, func(a, b entry) int {
		if c := strings.Compare(a.value, b.value); c != 0 {
			return c
		}
		return strings.Compare(a.path, b.path)
	})
	in := &index{entries: newEntries(), rev: now.rev, breaks: breaks, epoch: now.epoch, used: s.cache.age(), value: want.of}
	for _, e := range all {
		in.entries.Load(e)
	}
	in.published = in.entries.Copy()
	ix := &s.events.indexes
	if ix.list == nil {
		ix.list = map[term]*index{}
	}
	ix.list[want.term] = in
	ix.bound()
}

// bound drops the indexes used longest ago until the rest is small enough. mu
// is held.
func (ix *indexes) bound() {
	for {
		entries, oldest, used := 0, term{}, time.Duration(math.MaxInt64)
		for t, in := range ix.list {
			entries += in.entries.Len()
			if in.used < used {
				oldest, used = t, in.used
			}
		}
		if entries <= indexEntries {
			return
		}
		delete(ix.list, oldest)
	}
}

// tidy drops what was not used for a while, and forgets what was counted.
func (ix *indexes) tidy(now time.Duration) {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	clear(ix.wasted)
	for t, in := range ix.list {
		if now-in.used > indexAge {
			delete(ix.list, t)
		}
	}
}
