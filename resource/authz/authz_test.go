package authz

import (
	"context"
	"errors"
	"net/http"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"portico/resource"
)

func action(t *testing.T, method, target, user string, groups ...string) *resource.Action {
	t.Helper()
	r, err := http.NewRequest(method, target, nil)
	if err != nil {
		t.Fatal(err)
	}
	a := resource.ParseAction(r)
	a.User = &resource.User{Name: user, Groups: groups}
	return a
}

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

func TestForbiddenDetails(t *testing.T) {
	status := resource.AsStatus(Forbidden(action(t, "GET", "/apis/apps/v1/namespaces/ns/deployments/d", "jane"), ""))
	if status.Code != http.StatusForbidden || status.Details.Kind != "deployments" || status.Details.Group != "apps" || status.Details.Name != "d" {
		t.Errorf("got code %d, details %+v", status.Code, status.Details)
	}
}

func TestUnion(t *testing.T) {
	says := func(d Decision, reason string, err error) Authorizer {
		return Func(func(context.Context, *resource.Action) (Decision, string, error) { return d, reason, err })
	}
	broken := errors.New("broken")
	for _, c := range []struct {
		name   string
		union  Authorizer
		want   Decision
		reason string
		err    error
	}{
		{"empty", Union(), NoOpinion, "", nil},
		{"first opinion wins", Union(says(NoOpinion, "a", nil), says(Deny, "no", nil), says(Allow, "yes", nil)), Deny, "no", nil},
		{"allowed in spite of an error", Union(says(NoOpinion, "", broken), says(Allow, "yes", nil)), Allow, "yes", nil},
		{"reasons and errors are joined", Union(says(NoOpinion, "a", broken), says(NoOpinion, "", nil), says(NoOpinion, "b", nil)), NoOpinion, "a, b", broken},
	} {
		decision, reason, err := c.union.Authorize(t.Context(), &resource.Action{})
		if decision != c.want || reason != c.reason || !errors.Is(err, c.err) {
			t.Errorf("%s: got %v %q %v", c.name, decision, reason, err)
		}
	}
}

func TestMasters(t *testing.T) {
	for _, c := range []struct {
		a    *resource.Action
		want Decision
	}{
		{action(t, "GET", "/", "root", "x", resource.GroupMasters), Allow},
		{action(t, "GET", "/", resource.GroupMasters, "x"), NoOpinion},
		{&resource.Action{}, NoOpinion},
	} {
		if d, _, err := Masters().Authorize(t.Context(), c.a); d != c.want || err != nil {
			t.Errorf("%+v: got %v, %v; want %v", c.a.User, d, err, c.want)
		}
	}
}
