package access

import (
	"context"
	"net/http"
	"reflect"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico/resource"
	"portico/resource/authz"
)

// bound is a chain of RBAC alone.
type bound struct{ *Access }

func (b bound) Authorize(ctx context.Context, a *resource.Action) (authz.Decision, string, error) {
	return authz.Constrained(ctx, b.Access.Authorize, a)
}

// A user that is impersonated under a constraint has it in its Action.
func TestConstraintOfImpersonatedUser(t *testing.T) {
	t.Parallel()
	a := decider(granting(
		named("impersonate:user-info", "authentication.k8s.io", "users", "boss"), on("impersonate-on:user-info:list", "-", "pods"),
		named("impersonate", "-", "users", "other"),
	))
	as, w := impersonate(t, a, http.Header{"Impersonate-User": {"boss"}})
	if as == nil || as.Constraint == nil || as.Constraint.Mode != "user-info" || as.Constraint.Impersonator.Name != "u" {
		t.Errorf("constrained: got %+v, %s", as, w.Body)
	}
	if as, w := impersonate(t, a, http.Header{"Impersonate-User": {"other"}}); as == nil || as.Constraint != nil {
		t.Errorf("unconstrained: got %+v, %s", as, w.Body)
	}
}

// Under a constraint roles and bindings grant only what the impersonator may do as the user: bind
// and escalate need impersonate-on, and so does each rule that the user holds.
func TestConstrainedImpersonationGrants(t *testing.T) {
	t.Parallel()
	const mode = "impersonate-on:user-info:"
	secrets := on("get", "-", "secrets")
	for name, c := range map[string]struct {
		boss, imp rbacv1.PolicyRule
		allowed   bool
	}{
		"the user alone holds the rules":                       {boss: secrets},
		"the impersonator may use them as the user":            {secrets, on(mode+"get", "-", "secrets"), true},
		"the impersonator may use another verb":                {secrets, on(mode+"list", "-", "secrets"), false},
		"the impersonator may use them in another mode":        {secrets, on("impersonate-on:serviceaccount:get", "-", "secrets"), false},
		"the impersonator may use them itself":                 {secrets, secrets, false},
		"the impersonator has all verbs":                       {secrets, on("*", "-", "secrets"), true},
		"the impersonator alone":                               {imp: on("*", "-", "secrets")},
		"the user may bind and escalate":                       {boss: on("bind escalate", rbacv1.GroupName, "clusterroles")},
		"the impersonator may bind and escalate itself":        {on("bind escalate", rbacv1.GroupName, "clusterroles"), on("bind escalate", rbacv1.GroupName, "clusterroles"), false},
		"the impersonator may bind and escalate as the user":   {on("bind escalate", rbacv1.GroupName, "clusterroles"), on(mode+"bind "+mode+"escalate", rbacv1.GroupName, "clusterroles"), true},
		"the impersonator may bind and escalate, the user not": {imp: on(mode+"bind "+mode+"escalate", rbacv1.GroupName, "clusterroles")},
	} {
		p := &policy{}
		p.clusterRole("reader", secrets)
		p.clusterRole("of-boss", c.boss)
		p.bind("of-boss", user("boss"))
		p.clusterRole("of-imp", c.imp)
		p.bind("of-imp", user("imp"))
		var b *bench
		b = newBench(t, Config{Chain: func() authz.Engine { return bound{b.access} }})
		b.access.index.Store(decider(p).index.Load())
		as := &resource.User{Name: "boss", Constraint: &resource.Constraint{Impersonator: &resource.User{Name: "imp"}, Mode: "user-info"}}
		binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "x"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "reader"}}
		for path, obj := range map[string]any{"clusterroles": clusterRole("x", secrets), "clusterrolebindings": binding} {
			err := b.as(as, http.MethodPost, rbacPath+path, obj, nil)
			if (err == nil) != c.allowed || err != nil && !apierrors.IsForbidden(err) {
				t.Errorf("%s, %s: got %v, want allowed %v", name, path, err, c.allowed)
			}
		}
	}
	if got := impersonateOn(&resource.Constraint{Mode: "user-info"}, []rbacv1.PolicyRule{on("get *", "-", "a")}); !reflect.DeepEqual(got[0].Verbs, []string{"*", mode + "get"}) {
		t.Errorf("got the verbs %q", got[0].Verbs)
	}
}
