package sources

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The kinds of discovery documents.
const (
	kindVersions  = "APIVersions"
	kindGroups    = "APIGroupList"
	kindResources = "APIResourceList"
	kindGroupsV2  = "APIGroupDiscoveryList"
	kindStatus    = "Status"
)

// expect says what is wrong with a decoded answer that is not the document that was
// asked for. {} decodes into any of them and then lists nothing, so that a page of
// whoever stands before the server, for its maintenance, would take all of its groups
// away.
//
// All servers made of upstream's library name the kind, so a wrong one is an error.
// One that names none is believed if it has the member that the kind is about: clients
// of Go take what it says as well, and servers written by hand exist. The apiVersion is
// not looked at: upstream leaves it out for the core group.
func (a *answer) expect(kind string, said metav1.TypeMeta, member bool) error {
	switch {
	case said.Kind == kind, said.Kind == "" && member:
		return nil
	case slices.Contains([]string{kindVersions, kindGroups, kindResources, kindGroupsV2, kindStatus}, said.Kind):
		return fmt.Errorf("answer of %s is no %s but of kind %s", a.url, kind, said.Kind)
	}
	// What it is may be anything, and is not for all who read conditions.
	return fmt.Errorf("answer of %s is no %s", a.url, kind)
}
