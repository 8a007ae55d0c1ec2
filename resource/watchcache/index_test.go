package watchcache_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"portico/resource"
	"portico/resource/watchcache"
)

// counting is a label selector that counts the objects it is shown.
type counting struct {
	labels.Selector
	shown *int
}

func (c counting) Matches(l labels.Labels) bool { *c.shown++; return c.Selector.Matches(l) }

// counted is a selector and what it was shown.
func counted(t testing.TB, text string) (resource.Selector, *int) {
	t.Helper()
	parsed, err := labels.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	shown := new(int)
	return resource.Selector{Labels: counting{parsed, shown}}, shown
}

// crowd is a state of n things, of which every hundredth is on one of the nodes.
func crowd(n int) []*resource.Object {
	var out []*resource.Object
	for i := range n {
		out = append(out, thing(fmt.Sprintf("x%06d", i), int64(i+1), "node", fmt.Sprint("n", i%100), "app", "web"))
	}
	return out
}

// A label that is often looked for gets an index, which follows every change;
// one that is not, or that nothing is gained by, does not.
func TestIndexOfALabel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 2000
		f := fake(t, watchcache.Config{})
		f.feed.reset(n+1, crowd(n)...)
		sel, shown := counted(t, "node=n7")
		list := func() string { *shown = 0; names, _ := f.names(resource.ListOptions{Selector: sel}); return names }
		want := list()
		if *shown != n {
			t.Fatalf("the first list has looked at %d objects", *shown)
		}
		for range 60 {
			list()
		}
		if got := list(); got != want || *shown != n/100 {
			t.Errorf("after many lists one looks at %d objects, and finds %q", *shown, got)
		}
		// Changes are seen, before and after the index has taken them in.
		rev := int64(n + 1)
		for i := range 400 {
			rev++
			f.feed.put(thing(fmt.Sprintf("y%03d", i), rev, "node", fmt.Sprint("n", 6+i%2)))
			if i%2 == 1 {
				want += fmt.Sprintf("y%03d", i)
			}
			if got := list(); got != want || *shown > n/100+400 {
				t.Fatalf("after %d changes: looked at %d objects, found %q, want %q", i+1, *shown, got, want)
			}
		}
		all, everything := counted(t, "app=web")
		for range 100 {
			f.names(resource.ListOptions{Selector: all})
		}
		*everything = 0
		if f.names(resource.ListOptions{Selector: all}); *everything < n {
			t.Errorf("a selector that matches nearly everything looked at %d objects", *everything)
		}
		time.Sleep(time.Hour)
		if list(); *shown <= n {
			t.Errorf("an index that nobody has used for an hour is kept")
		}
	})
}

// The state that a watch begins with is found by an index too, and has one made.
func TestWatchesBeginWithAnIndex(t *testing.T) {
	const n = 2000
	f := fake(t, watchcache.Config{})
	f.feed.reset(n+1, crowd(n)...)
	sel, shown := counted(t, "node=n7")
	begin := func() (names string, looked int) {
		t.Helper()
		*shown = 0
		w := f.watch(resource.WatchOptions{Selector: sel, InitialEvents: true})
		defer w.Close()
		for _, e := range f.events(w, n/100+1) {
			names += e + " "
		}
		return names, *shown
	}
	want, _ := begin()
	for range 60 {
		begin()
	}
	if got, looked := begin(); got != want || looked != n/100 {
		t.Errorf("after many watches one looks at %d objects, and begins with %q", looked, got)
	}
	f.feed.remove("x000007", n+2)
	f.feed.put(thing("x000008", n+3, "node", "n7"))
	f.feed.put(thing("z", n+4, "node", "n8"))
	want = strings.Replace(want, "+x000007@8", fmt.Sprintf("+x000008@%d", n+3), 1)
	want = strings.Replace(want, fmt.Sprint("synced@", n+1), fmt.Sprint("synced@", n+4), 1)
	if got, looked := begin(); got != want || looked > n/100+2 {
		t.Errorf("after changes: looks at %d objects, begins with %q, want %q", looked, got, want)
	}
}

// Whatever happens, a list that uses an index is the list that a walk makes.
func TestIndexedListsAreTheLists(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 4))
	f := fake(t, watchcache.Config{History: watchcache.History{MaxEvents: 300}})
	const n = 1500
	state := map[string]*resource.Object{}
	for _, o := range crowd(n) {
		state[o.Name] = o
	}
	rev := int64(n + 1)
	f.feed.reset(rev, inOrder(state)...)
	node := resource.Selector{Labels: labels.SelectorFromSet(labels.Set{"node": "n3"})}
	by := &struct{ n int }{1}
	field := resource.Selector{
		Fields: fields.OneTermEqualSelector("spec.node", "n3"), By: by, Names: []string{"spec.node"},
		Extract: func(o *resource.Object) map[string]string {
			return map[string]string{"spec.node": o.Labels.Get("node")}
		},
	}
	for range 90 { // both are looked for often
		f.names(resource.ListOptions{Selector: node})
		f.names(resource.ListOptions{Selector: field})
	}
	for step := range 3000 {
		rev++
		name := fmt.Sprintf("x%06d", rng.IntN(n))
		switch {
		case step%1000 == 999: // the storage is set back
			rev -= 60
			for name, o := range state {
				if o.Revision > rev { // it was something else then
					state[name] = thing(name, rev-1, "node", "n3")
				}
			}
			f.feed.reset(rev, inOrder(state)...)
		case step%700 == 699: // the feed loses its place
			for range 5 {
				rev++
				name := fmt.Sprintf("x%06d", rng.IntN(n))
				state[name] = thing(name, rev, "node", "n3")
			}
			f.feed.reset(rev, inOrder(state)...)
		case rng.IntN(3) == 0:
			delete(state, name)
			f.feed.remove(name, rev)
		default:
			state[name] = thing(name, rev, "node", fmt.Sprint("n", rng.IntN(10)))
			f.feed.put(state[name])
		}
		if step%7 > 0 {
			continue
		}
		want := ""
		for _, o := range inOrder(state) {
			if o.Labels.Get("node") == "n3" {
				want += o.Name
			}
		}
		for _, sel := range []resource.Selector{node, field} {
			if got := f.pages(sel); got != want {
				t.Fatalf("step %d: %q, want %q", step, got, want)
			}
		}
	}
}

// An index of what was is no index of what is after the storage was set back,
// even when its revisions have come as far again.
func TestIndexOfAStorageThatWasSetBack(t *testing.T) {
	f := fake(t, watchcache.Config{})
	const n = 1000
	f.feed.reset(n+1, crowd(n)...)
	sel, shown := counted(t, "node=n7")
	rev := int64(n + 1)
	for *shown < 200*n && rev < 2*n { // until it has an index, which is at the newest revision
		before := *shown
		f.names(resource.ListOptions{Selector: sel})
		if *shown-before < n {
			break
		}
		rev++
		f.feed.put(thing("other", rev, "node", "n1"))
	}
	state := crowd(n)
	state[0] = thing("x000000", 1, "node", "n7")
	f.feed.reset(rev-3, state...)
	want, _ := f.names(resource.ListOptions{Selector: sel, At: resource.At{Freshness: resource.Any}})
	for rev -= 3; rev < 3*n; rev += 100 {
		f.feed.put(thing("other", rev+1, "node", "n1"))
		if got, _ := f.names(resource.ListOptions{Selector: sel}); got != want || got[:7] != "x000000" {
			t.Fatalf("at %d: %q, want %q", rev, got, want)
		}
	}
}

func inOrder(state map[string]*resource.Object) []*resource.Object {
	var out []*resource.Object
	for _, o := range state {
		out = append(out, o)
	}
	slices.SortFunc(out, func(a, b *resource.Object) int {
		if a.Name < b.Name {
			return -1
		}
		return 1
	})
	return out
}

// pages lists in pages, or all at once.
func (f *faked) pages(sel resource.Selector) string {
	f.Helper()
	opts, out := resource.ListOptions{Selector: sel, Limit: 17, Namespace: "a"}, ""
	for {
		names, l := f.names(opts)
		out += names
		if opts.Continue = l.Continue; l.Continue == "" {
			return out
		}
	}
}

// A namespace that is asked for by field is a range like any other.
func TestNamespaceByField(t *testing.T) {
	f := fake(t, watchcache.Config{})
	f.feed.reset(2000, crowd(1000)...)
	sel, shown := counted(t, "app=web")
	sel.Fields = fields.OneTermEqualSelector("metadata.namespace", "b")
	if names, _ := f.names(resource.ListOptions{Selector: sel}); names != "" || *shown != 0 {
		t.Errorf("another namespace: %q, %d objects looked at", names, *shown)
	}
	sel.Fields = fields.ParseSelectorOrDie("metadata.namespace=a,metadata.name=x000500")
	if names, _ := f.names(resource.ListOptions{Selector: sel}); names != "x000500" || *shown != 1 {
		t.Errorf("one object: %q, %d objects looked at", names, *shown)
	}
	*shown = 0
	sel.Fields = fields.OneTermEqualSelector("metadata.namespace", "a")
	names, l := f.names(resource.ListOptions{Selector: sel, Limit: 2})
	if names != "x000000x000001" || *shown != 3 {
		t.Errorf("a page: %q, %d objects looked at", names, *shown)
	}
	if names, _ := f.names(resource.ListOptions{Selector: sel, Limit: 2, Continue: l.Continue}); names != "x000002x000003" {
		t.Errorf("the next page: %q", names)
	}
}

// BenchmarkListSelected finds 500 of 50,000 objects by a label: by a walk, by an
// index, and by an index while objects change between lists.
func BenchmarkListSelected(b *testing.B) {
	for _, c := range []struct {
		name  string
		index bool
		churn int
	}{{"walk", false, 0}, {"index", true, 0}, {"index, 10 changes before each list", true, 10}} {
		b.Run(c.name, func(b *testing.B) {
			feed, s := benchmarked(b, 0)
			feed.reset(50_001, crowd(50_000)...)
			sel, _ := counted(b, "node=n7")
			if !c.index {
				sel, _ = counted(b, "node in (n7,none)")
			}
			list := func() {
				if l, err := s.List(b.Context(), resource.ListOptions{Selector: sel}); err != nil || len(l.Items) < 400 {
					b.Fatal(l, err)
				}
			}
			for range 5 {
				list()
			}
			rev := int64(60_000)
			b.ReportAllocs()
			for b.Loop() {
				b.StopTimer()
				for range c.churn {
					rev++
					feed.put(thing(fmt.Sprintf("x%06d", rev%500*100+8), rev, "node", "n8"))
				}
				b.StartTimer()
				list()
			}
		})
	}
}
