package authz

import (
	"net/http"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"portico/resource"
)

func action(t *testing.T, method, target, user string) *resource.Action {
	t.Helper()
	r, err := http.NewRequest(method, target, nil)
	if err != nil {
		t.Fatal(err)
	}
	a := resource.ParseAction(r)
	a.User = &resource.User{Name: user}
	return a
}

// The message of a 403 is upstream's, with markup escaped.
func TestForbidden(t *testing.T) {
	for _, c := range []struct{ method, target, user, reason, want string }{
		{"GET", "/api/v1/namespaces/ns/pods/p", "jane", "",
			`pods "p" is forbidden: User "jane" cannot get resource "pods" in API group "" in the namespace "ns"`},
		{"GET", "/apis/apps/v1/deployments", "jane", "RBAC: nothing",
			`deployments.apps is forbidden: User "jane" cannot list resource "deployments" in API group "apps" at the cluster scope: RBAC: nothing`},
		{"PUT", "/apis/apps/v1/namespaces/ns/deployments/d/scale", "jane", "",
			`deployments.apps "d" is forbidden: User "jane" cannot update resource "deployments/scale" in API group "apps" in the namespace "ns"`},
		{"GET", "/metrics", "system:anonymous", "",
			`forbidden: User "system:anonymous" cannot get path "/metrics"`},
		{"GET", "/x?y", "<script>a&b</script>", "",
			`forbidden: User "&lt;script&gt;a&amp;b&lt;/script&gt;" cannot get path "/x"`},
	} {
		err := Forbidden(action(t, c.method, c.target, c.user), c.reason)
		if !apierrors.IsForbidden(err) {
			t.Errorf("%s %s: %v is not Forbidden", c.method, c.target, err)
		}
		if err.Error() != c.want {
			t.Errorf("%s %s:\n got %s\nwant %s", c.method, c.target, err, c.want)
		}
	}
}

// The details of a 403 name the object.
func TestForbiddenDetails(t *testing.T) {
	status := resource.AsStatus(Forbidden(action(t, "GET", "/apis/apps/v1/namespaces/ns/deployments/d", "jane"), ""))
	if status.Code != http.StatusForbidden || status.Details.Kind != "deployments" || status.Details.Group != "apps" || status.Details.Name != "d" {
		t.Errorf("got code %d, details %+v", status.Code, status.Details)
	}
}
