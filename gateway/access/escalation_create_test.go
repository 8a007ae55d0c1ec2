package access

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"portico/resource"
	"portico/resource/authz"
)

// Rights in a namespace permit to create in it only, and names in rules apply as in
// kube-apiserver's storage: escalate and bind are required in the namespace of the request,
// escalate with the name in its path.
func TestCreationsAreCheckedWhereTheyAre(t *testing.T) {
	t.Parallel()
	const (
		rules     = `"rules":[{"verbs":["get"],"apiGroups":[""],"resources":["secrets"]}]`
		clusterly = `"roleRef":{"kind":"ClusterRole","name":"secrets"},"subjects":[{"kind":"User","name":"friend"}]`
		missing   = `"roleRef":{"kind":"ClusterRole","name":"missing"},"subjects":[{"kind":"User","name":"friend"}]`
		locally   = `"roleRef":{"kind":"Role","name":"local"},"subjects":[{"kind":"User","name":"friend"}]`
		collects  = `"aggregationRule":{"clusterRoleSelectors":[{"matchLabels":{"a":"b"}}]}`
	)
	verbOn := func(verb, res string, names ...string) rbacv1.PolicyRule {
		r := on(verb, rbacv1.GroupName, res)
		r.ResourceNames = names
		return r
	}
	escalate := func(res string, names ...string) rbacv1.PolicyRule { return verbOn("escalate", res, names...) }
	bind := func(res string, names ...string) rbacv1.PolicyRule { return verbOn("bind", res, names...) }
	for name, c := range map[string]struct {
		everywhere, inN []rbacv1.PolicyRule // what u holds
		method, path    string
		content         string
		want            func(error) bool
	}{
		"role with rules of that namespace":          {nil, holds(secretsRule), http.MethodPost, "namespaces/n/roles", rules, nil},
		"role with rules of another":                 {nil, holds(secretsRule), http.MethodPost, "namespaces/m/roles", rules, apierrors.IsForbidden},
		"role with escalate there":                   {nil, holds(escalate("roles")), http.MethodPost, "namespaces/n/roles", rules, nil},
		"role with escalate elsewhere":               {nil, holds(escalate("roles")), http.MethodPost, "namespaces/m/roles", rules, apierrors.IsForbidden},
		"role with escalate on cluster roles":        {holds(escalate("clusterroles")), nil, http.MethodPost, "namespaces/n/roles", rules, apierrors.IsForbidden},
		"cluster role with rules of a namespace":     {nil, holds(secretsRule), http.MethodPost, "clusterroles", rules, apierrors.IsForbidden},
		"POST with escalate by name":                 {holds(escalate("clusterroles", "x")), nil, http.MethodPost, "clusterroles", rules, apierrors.IsForbidden},
		"PUT with escalate by name":                  {holds(escalate("clusterroles", "x")), nil, http.MethodPut, "clusterroles/x", rules, nil},
		"PUT without":                                {nil, nil, http.MethodPut, "clusterroles/x", rules, apierrors.IsForbidden},
		"aggregation":                                {holds(secretsRule), nil, http.MethodPost, "clusterroles", collects, apierrors.IsForbidden},
		"aggregation with every right":               {authz.Everything(), nil, http.MethodPost, "clusterroles", collects, nil},
		"aggregation with every right there":         {nil, authz.Everything(), http.MethodPost, "clusterroles", collects, apierrors.IsForbidden},
		"cluster role with nothing in it":            {nil, nil, http.MethodPost, "clusterroles", `"rules":[]`, nil},
		"binding with rules of that namespace":       {nil, holds(secretsRule), http.MethodPost, "namespaces/n/rolebindings", clusterly, nil},
		"binding with rules of another":              {nil, holds(secretsRule), http.MethodPost, "namespaces/m/rolebindings", clusterly, apierrors.IsForbidden},
		"binding with bind there":                    {nil, holds(bind("clusterroles")), http.MethodPost, "namespaces/n/rolebindings", clusterly, nil},
		"binding with bind elsewhere":                {nil, holds(bind("clusterroles")), http.MethodPost, "namespaces/m/rolebindings", clusterly, apierrors.IsForbidden},
		"cluster binding with bind in a namespace":   {nil, holds(bind("clusterroles")), http.MethodPost, "clusterrolebindings", clusterly, apierrors.IsForbidden},
		"cluster binding with rules of a namespace":  {nil, holds(secretsRule), http.MethodPost, "clusterrolebindings", clusterly, apierrors.IsForbidden},
		"cluster binding with bind by name":          {holds(bind("clusterroles", "secrets")), nil, http.MethodPost, "clusterrolebindings", clusterly, nil},
		"cluster binding with the role's rules":      {holds(secretsRule), nil, http.MethodPost, "clusterrolebindings", clusterly, nil},
		"cluster binding with nothing":               {nil, nil, http.MethodPost, "clusterrolebindings", clusterly, apierrors.IsForbidden},
		"cluster binding with bind on another":       {holds(bind("clusterroles", "other")), nil, http.MethodPost, "clusterrolebindings", clusterly, apierrors.IsForbidden},
		"cluster binding with bind on roles":         {holds(bind("roles")), nil, http.MethodPost, "clusterrolebindings", clusterly, apierrors.IsForbidden},
		"cluster binding with escalate":              {holds(escalate("clusterroles")), nil, http.MethodPost, "clusterrolebindings", clusterly, apierrors.IsForbidden},
		"cluster binding to a missing role":          {holds(secretsRule), nil, http.MethodPost, "clusterrolebindings", missing, apierrors.IsNotFound},
		"cluster binding to a missing role, bind":    {holds(bind("clusterroles")), nil, http.MethodPost, "clusterrolebindings", missing, nil},
		"binding to a role with its rules":           {nil, holds(secretsRule), http.MethodPost, "namespaces/n/rolebindings", locally, nil},
		"binding to a role with bind on it":          {nil, holds(bind("roles", "local")), http.MethodPost, "namespaces/n/rolebindings", locally, nil},
		"binding to a role with bind on another":     {nil, holds(bind("roles", "other")), http.MethodPost, "namespaces/n/rolebindings", locally, apierrors.IsForbidden},
		"binding to a role without":                  {nil, nil, http.MethodPost, "namespaces/n/rolebindings", locally, apierrors.IsForbidden},
		"binding to a role that is elsewhere":        {holds(secretsRule), nil, http.MethodPost, "namespaces/m/rolebindings", locally, apierrors.IsNotFound},
		"cluster binding to a role":                  {authz.Everything(), nil, http.MethodPost, "clusterrolebindings", locally, apierrors.IsInvalid},
		"binding to nothing":                         {nil, nil, http.MethodPost, "clusterrolebindings", `"roleRef":{"kind":"ClusterRole","name":""}`, apierrors.IsNotFound},
		"binding to a kind that is no role":          {nil, nil, http.MethodPost, "clusterrolebindings", `"roleRef":{"kind":"Secret","name":"s"}`, apierrors.IsInvalid},
		"binding to a role of another group":         {nil, nil, http.MethodPost, "clusterrolebindings", `"roleRef":{"kind":"ClusterRole","apiGroup":"example.com","name":"secrets"}`, apierrors.IsInvalid},
		"PUT of a new binding without":               {nil, nil, http.MethodPut, "namespaces/n/rolebindings/x", clusterly, apierrors.IsForbidden},
		"PUT of a new binding with the role's rules": {nil, holds(secretsRule), http.MethodPut, "namespaces/n/rolebindings/x", clusterly, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := granting(c.everywhere...)
			p.clusterRole("secrets", secretsRule)
			p.clusterRole("there", c.inN...)
			p.bindIn("n", "b", "ClusterRole", "there", user("u"))
			p.role("n", "local", "", nil, secretsRule)
			b := policyBench(t, p)
			body := json.RawMessage(fmt.Sprintf(`{"metadata":{"name":"x"},%s}`, c.content))
			err := b.as(&resource.User{Name: "u"}, c.method, rbacPath+c.path, body, nil)
			if c.want == nil && err != nil || c.want != nil && !c.want(err) {
				t.Errorf("got %v", err)
			}
		})
	}
}
