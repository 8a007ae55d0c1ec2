package watchcache_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"

	"portico/resource"
	"portico/resource/watchcache"
)

// upTo reads events up to the first of the named object.
func (f *faked) upTo(w resource.Watcher, name string) (out []resource.Event) {
	f.Helper()
	for {
		events, err := w.Next(f.Context())
		if err != nil {
			f.Fatal(err)
		}
		for _, e := range events {
			out = append(out, e)
			if e.Object != nil && e.Object.Name == name {
				return out
			}
		}
	}
}

// after returns the state of a client after more events.
func after(state map[string]int64, events []resource.Event) map[string]int64 {
	state = maps.Clone(state)
	for _, e := range events {
		if e.Type == resource.Deleted {
			delete(state, e.Object.Name)
		} else {
			state[e.Object.Name] = e.Revision
		}
	}
	return state
}

// A watch that ends anywhere within the difference of two states can resume at another
// server, which has the whole history.
func TestWatchesResumeWithinADifference(t *testing.T) {
	for seed := range uint64(20) {
		rnd := rand.New(rand.NewPCG(seed, 0))
		one, other := fake(t, watchcache.Config{}), fake(t, watchcache.Config{})
		now := map[string]*resource.Object{}
		rev := int64(0)
		write := func() {
			rev++
			name := fmt.Sprint("x", rnd.IntN(6))
			if now[name] != nil && rnd.IntN(3) == 0 {
				delete(now, name)
				other.feed.remove(name, rev)
				return
			}
			now[name] = thing(name, rev, "color", []string{"red", "blue"}[rnd.IntN(2)])
			other.feed.put(now[name])
		}
		other.feed.reset(0)
		for range 10 {
			write()
		}
		one.feed.reset(rev, values(now)...)
		before, since := maps.Clone(now), rev
		sel := resource.Selector{}
		if seed%2 == 0 {
			sel = selector(t, "color=red")
		}
		w := one.watch(resource.WatchOptions{Since: since, Selector: sel})
		for range 12 {
			write()
		}
		one.feed.reset(rev, values(now)...)
		end := thing("end", rev+1, "color", "red")
		one.feed.put(end)
		other.feed.put(end)
		now["end"] = end
		known, want := chosen(sel, before), fmt.Sprint(chosen(sel, now))
		events := one.upTo(w, "end")
		for n := range events {
			state, at := known, since
			if n > 0 {
				state, at = after(known, events[:n]), events[n-1].Revision
			}
			rest := other.upTo(other.watch(resource.WatchOptions{Since: at, Selector: sel}), "end")
			if got := fmt.Sprint(after(state, rest)); got != want {
				t.Fatalf("seed %d: after %d of %d events, resumed at %d: has %s, want %s", seed, n, len(events), at, got, want)
			}
		}
		if got := fmt.Sprint(after(known, events)); got != want {
			t.Fatalf("seed %d: has %s, want %s", seed, got, want)
		}
	}
}

func values(objects map[string]*resource.Object) (out []*resource.Object) {
	for i := range 6 {
		if o := objects[fmt.Sprint("x", i)]; o != nil {
			out = append(out, o)
		}
	}
	return out
}

func chosen(sel resource.Selector, objects map[string]*resource.Object) map[string]int64 {
	out := map[string]int64{}
	for name, o := range objects {
		if sel.Matches(o) {
			out[name] = o.Revision
		}
	}
	return out
}
