package access

import (
	"flag"
	"os"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/diff"

	"portico/resource"
	"portico/resource/authz"
)

var rewrite = flag.Bool("rewrite", false, "rewrite the golden files")

// The roles of Portico's processes equal a text file, in which changes are easy to review.
func TestRolesOfProcessesGolden(t *testing.T) {
	const file = "testdata/policy.txt"
	p := &policy{}
	p.portico()
	got := policyText(p)
	if *rewrite {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("-rewrite accepts the changes (-want +got):\n%s", diff.Diff(string(want), got))
	}
}

func policyText(p *policy) string {
	var sections []string
	add := func(title string, lines []string) {
		sections = append(sections, title+"\n\t"+strings.Join(lines, "\n\t")+"\n")
	}
	for _, obj := range p.objects[clusterRoles] {
		var lines []string
		for _, r := range obj.(*rbacv1.ClusterRole).Rules {
			lines = append(lines, compact(&r))
		}
		add("ClusterRole "+obj.GetName(), lines)
	}
	for _, obj := range p.objects[clusterRoleBindings] {
		b := bindingOf(obj)
		lines := []string{"to " + b.ref.Kind + " " + b.ref.Name}
		for _, s := range *b.subjects {
			lines = append(lines, s.Kind+" "+s.Name)
		}
		add("ClusterRoleBinding "+obj.GetName(), lines)
	}
	slices.Sort(sections)
	return strings.Join(sections, "")
}

// Anonymous users may read public paths only.
func TestAnonymousUsersMayReadPublicPathsOnly(t *testing.T) {
	a := decider(bootstrapPolicy())
	anonymous := []string{"system:unauthenticated"}
	for _, c := range []struct {
		groups []string
		path   string
		want   bool
	}{
		{anonymous, "/readyz", true},
		{anonymous, "/version", true},
		{anonymous, "/readyz/etcd", false},
		{anonymous, "/apis", false},
		{anonymous, "/openapi/v3", false},
		{anonymous, "/metrics", false},
		{[]string{"system:authenticated"}, "/apis/apps/v1", true},
		{[]string{"system:authenticated"}, "/openapi/v3/apis/apps/v1", true},
		{[]string{"system:authenticated"}, "/metrics", false},
		{[]string{"system:monitoring"}, "/metrics", true},
		{[]string{"system:monitoring"}, "/readyz/etcd", true},
		{[]string{"system:serviceaccounts"}, "/openid/v1/jwks", true},
	} {
		act := do("get", "", "", "", "", "")
		act.User.Groups, act.IsResource, act.Path = c.groups, false, c.path
		if got, _, err := a.Authorize(t.Context(), act); err != nil || (got == authz.Allow) != c.want {
			t.Errorf("%v %s: %v, %v", c.groups, c.path, got, err)
		}
	}
	for _, g := range []string{"system:unauthenticated", "system:authenticated"} {
		for _, act := range []*resource.Action{
			do("list", "", "namespaces", "", "", ""), do("get", "", "secrets", "", "n", "s"), do("create", "", "pods", "", "n", ""),
			do("impersonate", "", "users", "", "", "admin"), do("create", rbacv1.GroupName, "clusterroles", "", "", ""),
			do("create", "authorization.k8s.io", "subjectaccessreviews", "", "", ""), do("create", "authentication.k8s.io", "tokenreviews", "", "", ""),
		} {
			act.User.Groups = []string{g}
			if got, reason, _ := a.Authorize(t.Context(), act); got == authz.Allow {
				t.Errorf("%s may %s %s: %s", g, act.Verb, act.Resource, reason)
			}
		}
	}
}
