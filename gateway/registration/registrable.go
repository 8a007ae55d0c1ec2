package registration

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico/apiservice"
	"portico/apiservice/backend"
	"portico/discovery"
)

// maxRegistered bounds the group/versions that are registered of one Backend:
// what a server says becomes objects in etcd, and every gateway holds them.
const maxRegistered = 32768

// maxNameShown bounds a name in a message, in characters: one that is not valid
// may be of any length.
const maxNameShown = 100

// rejected is what a Backend's server says it serves that is not registered.
type rejected struct {
	// invalid is how many cannot be APIServices; first says what is wrong with
	// one of them.
	invalid int
	first   string
	// more is how many there are beyond maxRegistered.
	more int
	// absent names the groups that are asked for and that the server does not serve; ""
	// is none.
	absent string
}

// String is "" if nothing was left out.
func (l rejected) String() string {
	var parts []string
	if l.absent != "" {
		parts = append(parts, "spec.autoRegister.groups: the server does not serve "+l.absent)
	}
	if l.invalid > 0 {
		parts = append(parts, fmt.Sprintf("%d group/versions cannot be registered: %s", l.invalid, l.first))
	}
	if l.more > 0 {
		parts = append(parts, fmt.Sprintf("%d group/versions are more than the %d that are registered of one Backend", l.more, maxRegistered))
	}
	return strings.Join(parts, "; ")
}

// registrable returns which group/versions of those that a server lists shall be registered. Of
// more than maxRegistered they are the first by name, whatever order the server
// lists them in.
func registrable(gvs []discovery.GroupVersion, auto *backend.AutoRegister) (take []discovery.GroupVersion, left rejected) {
	for _, gv := range gvs {
		if gv.Unlisted || !auto.Takes(gv.Group, gv.Version) {
			continue
		}
		if errs := apiservice.Validate(automanaged(gv, "", "", 1, 1)); len(errs) > 0 {
			if left.invalid++; left.invalid == 1 {
				left.first = fmt.Sprintf("%.*q: %s: %s", maxNameShown, apiservice.Name(gv.Group, gv.Version), errs[0].Field, errs[0].Detail)
			}
			continue
		}
		take = append(take, gv)
	}
	if len(take) > maxRegistered {
		slices.SortFunc(take, func(a, b discovery.GroupVersion) int {
			return cmp.Or(strings.Compare(a.Group, b.Group), strings.Compare(a.Version, b.Version))
		})
		left.more = len(take) - maxRegistered
		take = take[:maxRegistered]
	}
	return take, left
}

// absent names the groups and versions that a Backend asks for by name and its server
// does not serve.
func absent(gvs []discovery.GroupVersion, auto *backend.AutoRegister) string {
	served := make([]schema.GroupVersion, 0, len(gvs))
	for i := range gvs {
		served = append(served, schema.GroupVersion{Group: gvs[i].Group, Version: gvs[i].Version})
	}
	missing := auto.Missing(served)
	for i := range missing {
		missing[i] = fmt.Sprintf("%q", missing[i])
	}
	return someOf(missing)
}
