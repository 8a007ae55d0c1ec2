package access

import (
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico/resource"
	"portico/resource/authz"
)

// decider returns an Access with a policy that is not stored.
func decider(p *policy) *Access {
	a := New(Config{})
	a.index.Store(newIndex(&policyState{objects: p.objects}))
	return a
}

// granting returns a policy that grants rules to user u everywhere.
func granting(rules ...rbacv1.PolicyRule) *policy {
	p := &policy{}
	p.clusterRole("granted", rules...)
	p.bind("granted", user("u"))
	return p
}

func (p *policy) bindIn(namespace, name, kind, role string, subjects ...rbacv1.Subject) {
	p.add(roleBindings, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Subjects: subjects,
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: role},
	})
}

// do is an action on a resource by user u: group, resource and name.
func do(verb, group, res, sub, namespace, name string) *resource.Action {
	return &resource.Action{
		User: &resource.User{Name: "u"}, Verb: verb, IsResource: true, Group: group, Version: "v1",
		Resource: res, Subresource: sub, Namespace: namespace, Name: name, InPath: name != "",
	}
}

// A rule grants what its verbs, groups, resources, names and paths match, as upstream.
func TestRuleMatching(t *testing.T) {
	get := func(path string) *resource.Action {
		return &resource.Action{User: &resource.User{Name: "u"}, Verb: "get", Path: path}
	}
	for name, c := range map[string]struct {
		rule rbacv1.PolicyRule
		act  *resource.Action
		want bool
	}{
		"exact":                            {on("get", "-", "pods"), do("get", "", "pods", "", "n", "p"), true},
		"other verb":                       {on("get", "-", "pods"), do("list", "", "pods", "", "n", ""), false},
		"other group":                      {on("get", "apps", "pods"), do("get", "", "pods", "", "n", "p"), false},
		"any verb":                         {on("*", "-", "pods"), do("impersonate", "", "pods", "", "n", "p"), true},
		"any group":                        {on("get", "*", "pods"), do("get", "x.io", "pods", "", "n", "p"), true},
		"any resource":                     {on("get", "-", "*"), do("get", "", "pods", "", "n", "p"), true},
		"any resource has subresources":    {on("get", "-", "*"), do("get", "", "pods", "log", "n", "p"), true},
		"resource lacks subresources":      {on("get", "-", "pods"), do("get", "", "pods", "log", "n", "p"), false},
		"subresource":                      {on("get", "-", "pods/log"), do("get", "", "pods", "log", "n", "p"), true},
		"subresource is not the resource":  {on("get", "-", "pods/log"), do("get", "", "pods", "", "n", "p"), false},
		"another subresource":              {on("get", "-", "pods/log"), do("get", "", "pods", "exec", "n", "p"), false},
		"subresource of any resource":      {on("get", "apps", "*/scale"), do("get", "apps", "deployments", "scale", "n", "p"), true},
		"subresource of a longer name":     {on("get", "apps", "xdeployments/scale deployments/xscale deploymentsscale"), do("get", "apps", "deployments", "scale", "n", "p"), false},
		"other subresource of any":         {on("get", "apps", "*/scale"), do("get", "apps", "deployments", "status", "n", "p"), false},
		"any/sub is not the resource":      {on("get", "apps", "*/scale"), do("get", "apps", "deployments", "", "n", "p"), false},
		"named":                            {named("get", "-", "pods", "p q"), do("get", "", "pods", "", "n", "q"), true},
		"other name":                       {named("get", "-", "pods", "p"), do("get", "", "pods", "", "n", "q"), false},
		"no wildcard in names":             {named("get", "-", "pods", "*"), do("get", "", "pods", "", "n", "q"), false},
		"named never creates":              {named("*", "-", "pods", "p"), do("create", "", "pods", "", "n", ""), false},
		"named never deletes collections":  {named("*", "-", "pods", "p"), do("deletecollection", "", "pods", "", "n", ""), false},
		"named list by field selector":     {named("list", "-", "pods", "p"), do("list", "", "pods", "", "n", "p"), true},
		"url":                              {urls("get", "/healthz"), get("/healthz"), true},
		"url is no prefix":                 {urls("get", "/healthz"), get("/healthz/x"), false},
		"url prefix":                       {urls("get", "/healthz/*"), get("/healthz/x/y"), true},
		"url prefix includes its slash":    {urls("get", "/healthz/*"), get("/healthz"), false},
		"any url":                          {urls("get", "*"), get("/x"), true},
		"star inside is no wildcard":       {urls("get", "/a/*/c"), get("/a/b/c"), false},
		"url of another verb":              {urls("post", "/x"), get("/x"), false},
		"url rule is not for resources":    {urls("*", "*"), do("get", "", "pods", "", "", "p"), false},
		"resource rule is not for urls":    {on("*", "*", "*"), get("/x"), false},
		"cluster binding in any namespace": {on("get", "-", "pods"), do("get", "", "pods", "", "other", "p"), true},
	} {
		got, _, err := decider(granting(c.rule)).Authorize(t.Context(), c.act)
		if err != nil || (got == authz.Allow) != c.want || got == authz.Deny {
			t.Errorf("%s: decision %v, %v; want allow %v", name, got, err, c.want)
		}
	}
}

// Grants belong to users, groups and service accounts, everywhere or in the namespace of the binding.
func TestSubjects(t *testing.T) {
	p := &policy{}
	p.clusterRole("reader", on("get", "-", "pods"))
	p.bind("reader", account("ns", "builder"), group("g"))
	p.bindIn("ns", "local", "ClusterRole", "reader", user("local"), account("", "near"))
	p.bindIn("ns", "own", "Role", "own", user("own"))
	p.add(roles, &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "own"}, Rules: []rbacv1.PolicyRule{on("get", "-", "pods")}})
	p.bindIn("ns2", "own", "Role", "own", user("own"))
	a := decider(p)
	for _, c := range []struct {
		name, group, namespace string
		want                   bool
	}{
		{"system:serviceaccount:ns:builder", "", "x", true},
		{"system:serviceaccount:ns2:builder", "", "x", false},
		{"builder", "", "x", false},
		{"any", "g", "x", true},
		{"g", "", "x", false},
		{"local", "", "ns", true},
		{"local", "", "x", false},
		{"local", "", "", false},
		{"system:serviceaccount:ns:near", "", "ns", true},
		{"system:serviceaccount::near", "", "ns", false},
		{"own", "", "ns", true},
		{"own", "", "ns2", false},
	} {
		act := do("get", "", "pods", "", c.namespace, "p")
		act.User = &resource.User{Name: c.name, Groups: []string{c.group}}
		if got, reason, err := a.Authorize(t.Context(), act); err != nil || (got == authz.Allow) != c.want {
			t.Errorf("%+v: %v %q %v", c, got, reason, err)
		}
	}
}

// The reasons of decisions are those of upstream.
func TestReasons(t *testing.T) {
	p := &policy{}
	p.clusterRole("reader", on("get", "-", "pods"))
	p.bind("reader", account("ns", "builder"))
	p.bind("lost", user("u"))
	p.bindIn("ns", "b", "ClusterRole", "reader", group("g"))
	p.bindIn("ns", "c", "Role", "lost", user("u"))
	a := decider(p)
	for _, c := range []struct {
		user *resource.User
		ns   string
		want string
	}{
		{&resource.User{Name: "system:serviceaccount:ns:builder"}, "x", `RBAC: allowed by ClusterRoleBinding "reader" of ClusterRole "reader" to ServiceAccount "builder/ns"`},
		{&resource.User{Name: "v", Groups: []string{"g"}}, "ns", `RBAC: allowed by RoleBinding "b/ns" of ClusterRole "reader" to Group "g"`},
		{&resource.User{Name: "u"}, "", `RBAC: clusterrole.rbac.authorization.k8s.io "lost" not found`},
		{&resource.User{Name: "u"}, "ns", `RBAC: [clusterrole.rbac.authorization.k8s.io "lost" not found, role.rbac.authorization.k8s.io "lost" not found]`},
		{&resource.User{Name: "v"}, "ns", ""},
	} {
		act := do("get", "", "pods", "", c.ns, "p")
		act.User = c.user
		if _, got, err := a.Authorize(t.Context(), act); err != nil || got != c.want {
			t.Errorf("%v in %q: %q, %v; want %q", c.user, c.ns, got, err, c.want)
		}
	}
}

// Before the policy is read, masters may do everything, and other users get an error.
func TestAuthorizeWithoutPolicy(t *testing.T) {
	a := New(Config{})
	act := do("delete", "", "pods", "", "n", "p")
	if got, _, err := a.Authorize(t.Context(), act); got != authz.NoOpinion || err == nil {
		t.Errorf("got %v, %v", got, err)
	}
	act.User.Groups = []string{resource.GroupMasters}
	if got, _, err := a.Authorize(t.Context(), act); got != authz.Allow || err != nil {
		t.Errorf("masters: got %v, %v", got, err)
	}
	act.User = nil
	if got, _, err := a.Authorize(t.Context(), act); got != authz.NoOpinion || err != nil {
		t.Errorf("no user: got %v, %v", got, err)
	}
}
