package registration

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"portico/apiservice/backend"
	"portico/discovery"
	"portico/gateway/routing"
)

// A group/version that is no valid APIService is not registered, the others are.
func TestRegisterOnlyWhatIsValid(t *testing.T) {
	valid := discovery.GroupVersion{Group: "widgets.example.com", Version: "v1"}
	for _, gv := range []discovery.GroupVersion{
		{Group: "Upper.example.com", Version: "v1"}, {Group: "a/b", Version: "v1"}, {Group: "a.example.com"}, {Group: "a.example.com", Version: "v1/x"},
		{Group: strings.Repeat("a", 2<<20), Version: "v1"}, {Group: "", Version: "v2"},
	} {
		g := newRegistry(t, []discovery.GroupVersion{})
		g.sync(t, nil)
		g.add(t, "b", &backend.AutoRegister{Groups: []string{"*"}}, []discovery.GroupVersion{gv, valid})
		before := g.storage.Revision()
		if got := g.sync(t, nil); got["v1.widgets.example.com"] == nil || g.storage.Revision() != before+1 {
			t.Errorf("%.20q, %q: %d writes, registered %v", gv.Group, gv.Version, g.storage.Revision()-before, got)
		}
		g.sync(t, nil)
		c := g.writer.registered(g.found.BackendStates().ByName["b"])
		if c.Status != "False" || c.Reason != "LeftOut" || !strings.Contains(c.Message, "1 group/versions cannot be registered: ") || len(c.Message) > 2*routing.MaxErrorText {
			t.Errorf("%.20q, %q: the condition is %+v", gv.Group, gv.Version, c)
		}
	}
}

// A group/version that the server does not list is not registered.
func TestUnlistedIsNotRegistered(t *testing.T) {
	gvs := []discovery.GroupVersion{{Group: "widgets.example.com", Version: "v1"}, {Group: "widgets.example.com", Version: "v2", Unlisted: true}}
	take, left := registrable(gvs, &backend.AutoRegister{Groups: []string{"*"}})
	if len(take) != 1 || take[0].Version != "v1" || left.String() != "" {
		t.Errorf("%+v, left out %q", take, left)
	}
}

// At most maxRegistered group/versions are registered, the first by name.
func TestRegisteredIsBounded(t *testing.T) {
	var many []discovery.GroupVersion
	for i := range maxRegistered + 3 {
		many = append(many, discovery.GroupVersion{Group: fmt.Sprintf("g%06d.example.com", i), Version: "v1"})
	}
	auto := &backend.AutoRegister{Groups: []string{"*"}}
	if take, left := registrable(many[:maxRegistered], auto); len(take) != maxRegistered || left.String() != "" {
		t.Errorf("%d of as many as there may be; %q", len(take), left)
	}
	backwards := slices.Clone(many)
	slices.Reverse(backwards)
	take, left := registrable(backwards, auto)
	if len(take) != maxRegistered || take[0].Group != many[0].Group || take[maxRegistered-1].Group != many[maxRegistered-1].Group {
		t.Errorf("%d, from %s to %s", len(take), take[0].Group, take[len(take)-1].Group)
	}
	if want := "3 group/versions are more than the 32768 that are registered of one Backend"; left.String() != want {
		t.Errorf("left out: %q", left)
	}
}
