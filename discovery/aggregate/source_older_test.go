package aggregate

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// That the older list fails takes nothing away, and it is asked for again.
func TestOlderListFails(t *testing.T) {
	b := secretive(t)
	heal := b.olderFails()
	s := b.source()
	check(t, s, true)
	if gvs, whole := s.Served(); whole || len(gvs) != 0 {
		t.Errorf("whole %v, %v", whole, gvs)
	}
	heal()
	check(t, s, true)
	is := func(when string) {
		t.Helper()
		same(t, s, "custom.example.com/v1:things")
		if _, whole := s.Served(); !whole {
			t.Errorf("%s: it is not whole", when)
		}
		if listed, _ := s.Lists(schema.GroupVersion{Group: "custom.example.com", Version: "v1"}); !listed {
			t.Errorf("%s: it is not listed", when)
		}
	}
	is("when the older list is there")
	// It is read again, for somebody expects more.
	b.olderFails()
	s.Want([]schema.GroupVersion{{Group: "none.example.com", Version: "v1"}})
	check(t, s, false)
	is("when it fails again")
}

// An older list that was never to be had keeps nobody from going by the other for
// ever, unless that has nothing.
func TestNoOlderList(t *testing.T) {
	for what, c := range map[string]struct {
		b    *backend
		want bool
	}{
		"that has something": {newBackend(t, described("apps", "v1", "deployments")), true},
		"that has nothing":   {secretive(t), false},
	} {
		heal := c.b.olderFails()
		s := c.b.source()
		check(t, s, true)
		if _, whole := s.Served(); whole {
			t.Errorf("%s: it is whole at once", what)
		}
		s.mu.Lock()
		s.olderFails = s.olderFails.Add(-graceDefault)
		s.mu.Unlock()
		check(t, s, c.want)
		if _, whole := s.Served(); whole != c.want {
			t.Errorf("%s: whole %v after the grace period", what, whole)
		}
		heal()
		check(t, s, !c.want)
		if _, whole := s.Served(); !whole {
			t.Errorf("%s: it is not whole, though the older list is there", what)
		}
	}
}
