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

// A role is created only with rules that the user holds, or with escalate.
func TestRolesDoNotEscalate(t *testing.T) {
	secrets := on("get list", "-", "secrets")
	for name, c := range map[string]struct {
		held    []rbacv1.PolicyRule
		user    *resource.User
		written rbacv1.PolicyRule
		allowed bool
	}{
		"nothing held":              {nil, nil, secrets, false},
		"held":                      {[]rbacv1.PolicyRule{secrets}, nil, secrets, true},
		"held in two rules":         {[]rbacv1.PolicyRule{on("get", "-", "secrets"), on("list", "-", "*")}, nil, secrets, true},
		"one verb short":            {[]rbacv1.PolicyRule{on("get", "-", "secrets")}, nil, secrets, false},
		"held for one name":         {[]rbacv1.PolicyRule{named("get list", "-", "secrets", "a")}, nil, secrets, false},
		"one name of all held":      {[]rbacv1.PolicyRule{secrets}, nil, named("get", "-", "secrets", "a"), true},
		"other name":                {[]rbacv1.PolicyRule{named("get", "-", "secrets", "a")}, nil, named("get", "-", "secrets", "a b"), false},
		"star is more than secrets": {[]rbacv1.PolicyRule{secrets}, nil, on("get", "-", "*"), false},
		"star verb":                 {[]rbacv1.PolicyRule{on(full, "-", "secrets")}, nil, on("*", "-", "secrets"), false},
		"subresource":               {[]rbacv1.PolicyRule{on("get", "-", "pods")}, nil, on("get", "-", "pods/log"), false},
		"subresource of any":        {[]rbacv1.PolicyRule{on("get", "-", "*/log")}, nil, on("get", "-", "pods/log"), true},
		"path below held":           {[]rbacv1.PolicyRule{urls("get", "/a/*")}, nil, urls("get", "/a/b /a/c/*"), true},
		"path above held":           {[]rbacv1.PolicyRule{urls("get", "/a/*")}, nil, urls("get", "/*"), false},
		"escalate":                  {[]rbacv1.PolicyRule{on("escalate", rbacv1.GroupName, "clusterroles")}, nil, secrets, true},
		"escalate another":          {[]rbacv1.PolicyRule{named("escalate", rbacv1.GroupName, "clusterroles", "y")}, nil, secrets, false},
		"masters":                   {nil, &resource.User{Name: "m", Groups: []string{resource.GroupMasters}}, secrets, true},
	} {
		t.Run(name, func(t *testing.T) {
			b := policyBench(t, granting(c.held...))
			if c.user == nil {
				c.user = &resource.User{Name: "u"}
			}
			err := b.as(c.user, http.MethodPost, rbacPath+"clusterroles", clusterRole("x", c.written), nil)
			if (err == nil) != c.allowed || err != nil && !apierrors.IsForbidden(err) {
				t.Errorf("got %v, want allowed %v", err, c.allowed)
			}
		})
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
	masters := &resource.User{Name: "m", Groups: []string{resource.GroupMasters}}
	in := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "x"}, RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: "a"}}
	if err := b.as(masters, http.MethodPut, rbacPath+"clusterrolebindings/x", in, in); err != nil {
		t.Fatalf("create by PUT: %v", err)
	}
	in.RoleRef.Name = "b"
	err := b.as(masters, http.MethodPut, rbacPath+"clusterrolebindings/x", in, nil)
	if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "roleRef: Invalid value: ") || !strings.HasSuffix(err.Error(), ": cannot change roleRef") {
		t.Errorf("got %v", err)
	}
}
