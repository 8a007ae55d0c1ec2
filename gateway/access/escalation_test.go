package access

import (
	"net/http"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico/resource"
)

const rbacPath = "/apis/rbac.authorization.k8s.io/v1/"

// policyBench returns a bench with a policy that is not stored.
func policyBench(t *testing.T, p *policy) *bench {
	b := newBench(t, Config{})
	b.access.index.Store(decider(p).index.Load())
	return b
}

func clusterRole(name string, rules ...rbacv1.PolicyRule) *rbacv1.ClusterRole {
	return (&policy{}).clusterRole(name, rules...)
}

func masters() *resource.User {
	return &resource.User{Name: "m", Groups: []string{resource.GroupMasters}}
}

// A role is created only with rules that the user holds, or with escalate.
func TestRolesDoNotEscalate(t *testing.T) {
	t.Parallel()
	secrets, readSecrets := on("get list", "-", "secrets"), on("get", "-", "secrets")
	for name, c := range map[string]struct {
		held, written rbacv1.PolicyRule
		groups        string
		allowed       bool
	}{
		"nothing held":              {written: secrets},
		"held":                      {secrets, secrets, "", true},
		"one verb short":            {readSecrets, secrets, "", false},
		"held for one name":         {named("get list", "-", "secrets", "a"), secrets, "", false},
		"one name of all held":      {secrets, named("get", "-", "secrets", "a"), "", true},
		"other name":                {named("get", "-", "secrets", "a"), named("get", "-", "secrets", "a b"), "", false},
		"star is more than secrets": {readSecrets, on("get", "-", "*"), "", false},
		"star verb":                 {on(full, "-", "secrets"), on("*", "-", "secrets"), "", false},
		"subresource":               {on("get", "-", "pods"), on("get", "-", "pods/log"), "", false},
		"subresource of any":        {on("get", "-", "*/log"), on("get", "-", "pods/log"), "", true},
		"path below held":           {urls("get", "/a/*"), urls("get", "/a/b /a/c/*"), "", true},
		"path above held":           {urls("get", "/a/*"), urls("get", "/*"), "", false},
		"escalate":                  {on("escalate", rbacv1.GroupName, "clusterroles"), secrets, "", true},
		"escalate another":          {named("escalate", rbacv1.GroupName, "clusterroles", "y"), secrets, "", false},
		"masters":                   {written: secrets, groups: resource.GroupMasters, allowed: true},
	} {
		b := policyBench(t, granting(c.held))
		err := b.as(&resource.User{Name: "u", Groups: []string{c.groups}}, http.MethodPost, rbacPath+"clusterroles", clusterRole("x", c.written), nil)
		if (err == nil) != c.allowed || err != nil && !apierrors.IsForbidden(err) {
			t.Errorf("%s: got %v, want allowed %v", name, err, c.allowed)
		}
	}
}

// The message of a rejection is upstream's.
func TestEscalationMessage(t *testing.T) {
	b := policyBench(t, granting(on("get", "-", "secrets")))
	u := &resource.User{Name: "u", Groups: []string{"g", "system:authenticated"}}
	role := clusterRole("x", on("get list watch", "-", "secrets"), named("get", "apps", "deployments", "a"), urls("get", "/metrics"))
	err := b.as(u, http.MethodPost, rbacPath+"clusterroles", role, nil)
	want := `clusterroles.rbac.authorization.k8s.io "x" is forbidden: user "u" (groups=["g" "system:authenticated"]) is attempting to grant RBAC permissions not currently held:
{APIGroups:[""], Resources:["secrets"], Verbs:["list" "watch"]}
{APIGroups:["apps"], Resources:["deployments"], ResourceNames:["a"], Verbs:["get"]}
{NonResourceURLs:["/metrics"], Verbs:["get"]}`
	if err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
}

// The roleRef of a binding cannot be changed, also by system:masters.
func TestRoleRefIsImmutable(t *testing.T) {
	b := policyBench(t, &policy{})
	in := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "x"}, RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: "a"}}
	if err := b.as(masters(), http.MethodPut, rbacPath+"clusterrolebindings/x", in, in); err != nil {
		t.Fatalf("create by PUT: %v", err)
	}
	in.RoleRef.Name = "b"
	err := b.as(masters(), http.MethodPut, rbacPath+"clusterrolebindings/x", in, nil)
	if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "roleRef: Invalid value: ") || !strings.HasSuffix(err.Error(), ": cannot change roleRef") {
		t.Errorf("got %v", err)
	}
}
