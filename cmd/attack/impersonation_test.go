package attack

import (
	"net/http"
	"slices"
	"testing"
)

// Each attribute of an impersonated user needs a right of its own.
func TestImpersonation(t *testing.T) {
	t.Parallel()
	i := target
	i.must(t, "POST", "/api/v1/namespaces/a/serviceaccounts", `{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"name":"posed"}}`)
	impersonate := func(group, resource string, names ...string) policyRule {
		return policyRule{APIGroups: []string{group}, Resources: []string{resource}, ResourceNames: names, Verbs: []string{"impersonate"}}
	}
	i.grant(t, "poser", "", impersonate("", "users", "bob"), impersonate("", "groups", "team"),
		impersonate("authentication.k8s.io", "uids", "7"), impersonate("authentication.k8s.io", "userextras/scopes", "view"))
	i.grant(t, "poser", "a", impersonate("", "serviceaccounts", "posed"))
	poser, nothing := i.client(i.user(t, "poser")), i.client(i.user(t, "nothing"))
	const user, group = "Impersonate-User: bob", "Impersonate-Group: team"
	for _, tc := range []struct {
		name   string
		client *http.Client
		header []string
		code   int
		user   string
		groups []string // beside system:authenticated
	}{
		{"control: a user", poser, []string{user}, 201, "bob", nil},
		{"control: a user and a group", poser, []string{user, group}, 201, "bob", []string{"team"}},
		{"control: everything", poser, []string{user, group, "Impersonate-Uid: 7", "Impersonate-Extra-Scopes: view"}, 201, "bob", []string{"team"}},
		{"control: a service account", poser, []string{"Impersonate-User: system:serviceaccount:a:posed"}, 201, "system:serviceaccount:a:posed", []string{"system:serviceaccounts", "system:serviceaccounts:a"}},
		{"control: names in lower case", poser, []string{"impersonate-user: bob", "impersonate-group: team"}, 201, "bob", []string{"team"}},
		{"a user without a right", nothing, []string{user}, 403, "", nil},
		{"another user", poser, []string{"Impersonate-User: alice"}, 403, "", nil},
		{"the administrator", poser, []string{"Impersonate-User: portico:admin"}, 403, "", nil},
		{"the user in another case", poser, []string{"Impersonate-User: Bob"}, 403, "", nil},
		{"another group", poser, []string{user, "Impersonate-Group: admins"}, 403, "", nil},
		{"masters alone", poser, []string{user, "Impersonate-Group: system:masters"}, 403, "", nil},
		{"masters second", poser, []string{user, group, "Impersonate-Group: system:masters"}, 403, "", nil},
		{"masters behind a comma", poser, []string{user, "Impersonate-Group: team,system:masters"}, 403, "", nil},
		{"masters in lower-case headers", poser, []string{user, "impersonate-group: system:masters"}, 403, "", nil},
		{"masters in another case", poser, []string{user, "IMPERSONATE-GROUP: system:masters"}, 403, "", nil},
		{"masters with underscores", poser, []string{user, "Impersonate_Group: system:masters"}, 201, "bob", nil},
		{"masters of nobody", poser, []string{"Impersonate-Group: system:masters"}, 400, "", nil},
		{"the authenticated, who are a group as well", poser, []string{user, "Impersonate-Group: system:authenticated"}, 403, "", nil},
		{"the unauthenticated", poser, []string{user, "Impersonate-Group: system:unauthenticated"}, 403, "", nil},
		{"another uid", poser, []string{user, "Impersonate-Uid: 8"}, 403, "", nil},
		{"a uid of nobody", poser, []string{"Impersonate-Uid: 7"}, 400, "", nil},
		{"another value of an extra", poser, []string{user, "Impersonate-Extra-Scopes: all"}, 403, "", nil},
		{"a second value of an extra", poser, []string{user, "Impersonate-Extra-Scopes: view", "Impersonate-Extra-Scopes: all"}, 403, "", nil},
		{"an extra in another case", poser, []string{user, "Impersonate-Extra-SCOPES: view"}, 201, "bob", nil},
		{"another extra", poser, []string{user, "Impersonate-Extra-Other: view"}, 403, "", nil},
		{"an escaped extra", poser, []string{user, "Impersonate-Extra-%4fther: view"}, 403, "", nil},
		{"an extra without a name", poser, []string{user, "Impersonate-Extra-: view"}, 403, "", nil},
		{"an extra of nobody", poser, []string{"Impersonate-Extra-Scopes: view"}, 400, "", nil},
		{"another service account", poser, []string{"Impersonate-User: system:serviceaccount:a:default"}, 403, "", nil},
		{"a service account of that name elsewhere", poser, []string{"Impersonate-User: system:serviceaccount:b:posed"}, 403, "", nil},
		{"a service account without a name", poser, []string{"Impersonate-User: system:serviceaccount:a:"}, 403, "", nil},
		{"a service account with a part too many", poser, []string{"Impersonate-User: system:serviceaccount:a:posed:x"}, 403, "", nil},
		{"a node", poser, []string{"Impersonate-User: system:node:n"}, 403, "", nil},
		{"nobody", poser, []string{"Impersonate-User: system:anonymous"}, 403, "", nil},
		{"an empty user", poser, []string{"Impersonate-User: ", group}, 400, "", nil},
		{"two users, the second one", poser, []string{user, "Impersonate-User: alice"}, 201, "bob", nil},
		{"two users, the first one", poser, []string{"Impersonate-User: alice", user}, 403, "", nil},
		{"by nobody", i.client(nil), []string{user}, 403, "", nil},
	} {
		code, user, groups, err := i.review(tc.client, tc.header...)
		want := tc.groups
		if tc.code == http.StatusCreated {
			want = append(slices.Clone(want), "system:authenticated")
		}
		if err != nil || code != tc.code || user != tc.user || !slices.Equal(groups, want) {
			t.Errorf("%s: %d as %q of %q, %v; want %d as %q of %q", tc.name, code, user, groups, err, tc.code, tc.user, want)
		}
	}
}
