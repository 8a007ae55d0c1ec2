package authz

import (
	"context"
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
// Under a constraint both the user and the impersonator must be allowed.
func TestConstrained(t *testing.T) {
	act := action(t, "PUT", "/api/v1/namespaces/ns/configmaps/c", "boss")
	act.User.Constraint = &resource.Constraint{Impersonator: &resource.User{Name: "imp"}, Mode: "user-info"}
	for _, c := range []struct {
		boss, imp, want Decision
		reason          string
	}{
		{Allow, Allow, Allow, ""},
		{Allow, NoOpinion, NoOpinion, `User "imp" cannot impersonate-on:user-info:update resource "configmaps" in API group "" in the namespace "ns"`},
		{Allow, Deny, Deny, `User "imp" cannot impersonate-on:user-info:update resource "configmaps" in API group "" in the namespace "ns"`},
		{NoOpinion, Allow, NoOpinion, ""},
	} {
		got, reason, err := Constrained(t.Context(), func(_ context.Context, a *resource.Action) (Decision, string, error) {
			if a.User.Name == "imp" {
				return c.imp, "", nil
			}
			return c.boss, "", nil
		}, act)
		if got != c.want || reason != c.reason || err != nil {
			t.Errorf("%v: got %v %q %v", c, got, reason, err)
		}
	}
}

func TestForbiddenDetails(t *testing.T) {
	status := resource.AsStatus(Forbidden(action(t, "GET", "/apis/apps/v1/namespaces/ns/deployments/d", "jane"), ""))
	if status.Code != http.StatusForbidden || status.Details.Kind != "deployments" || status.Details.Group != "apps" || status.Details.Name != "d" {
		t.Errorf("got code %d, details %+v", status.Code, status.Details)
	}
}
