package resource

import (
	"net/http/httptest"
	"testing"
)

// What a watch is authorized as. Rules for single names depend on it.
func TestParseActionOfWatches(t *testing.T) {
	for _, tc := range []struct {
		method, target                  string
		verb, namespace, resource, name string
		inPath                          bool
		labels, fields                  string
	}{
		{"GET", "/api/v1/pods?watch", "watch", "", "pods", "", false, "", ""},
		{"GET", "/api/v1/pods?watch=1&labelSelector=a", "watch", "", "pods", "", false, "a", ""},
		{"GET", "/api/v1/pods?watch=0", "list", "", "pods", "", false, "", ""},
		{"GET", "/api/v1/pods?watch=False", "list", "", "pods", "", false, "", ""},
		{"GET", "/api/v1/namespaces/n/pods/p?watch=1", "get", "n", "pods", "p", true, "", ""},
		{"GET", "/api/v1/namespaces/n/pods?watch=1&fieldSelector=metadata.name%3Dp", "watch", "n", "pods", "p", false, "", "metadata.name=p"},
		{"DELETE", "/api/v1/namespaces/n/pods?fieldSelector=metadata.name%3Dp", "deletecollection", "n", "pods", "", false, "", "metadata.name=p"},
		// Legacy paths determine the verb of every method, and have no selectors.
		{"GET", "/api/v1/watch/pods?labelSelector=a&fieldSelector=metadata.name%3Dp", "watch", "", "pods", "", false, "", ""},
		{"GET", "/api/v1/watch/namespaces/n/pods", "watch", "n", "pods", "", false, "", ""},
		{"GET", "/api/v1/watch/namespaces/n/pods/p", "watch", "n", "pods", "p", true, "", ""},
		{"POST", "/apis/apps/v1/watch/namespaces/n/deployments", "watch", "n", "deployments", "", false, "", ""},
		{"GET", "/apis/apps/v1/watch/deployments?watch=0", "watch", "", "deployments", "", false, "", ""},
		{"GET", "/api/v1/watch/namespaces", "watch", "", "namespaces", "", false, "", ""},
		{"GET", "/api/v1/watch/namespaces/n", "watch", "n", "namespaces", "n", true, "", ""},
	} {
		a := ParseAction(httptest.NewRequest(tc.method, tc.target, nil))
		if !a.IsResource || a.Verb != tc.verb || a.Namespace != tc.namespace || a.Resource != tc.resource || a.Name != tc.name ||
			a.InPath != tc.inPath || a.LabelSelector != tc.labels || a.FieldSelector != tc.fields {
			t.Errorf("%s %s: %+v", tc.method, tc.target, a)
		}
		if tc.verb == "watch" && !a.LongRunning() {
			t.Errorf("%s %s has a deadline", tc.method, tc.target)
		}
	}
	if a := ParseAction(httptest.NewRequest("GET", "/api/v1/watch", nil)); a.IsResource || a.Verb != "get" {
		t.Errorf("the prefix alone: %+v", a)
	}
}

// A request counts for its authenticated user, and one of a service account for the namespace.
func TestLimitKey(t *testing.T) {
	t.Parallel()
	account := func(name string) *User { return &User{Name: "system:serviceaccount:" + name} }
	for _, tc := range []struct {
		user, impersonator *User
		want               string
	}{
		{nil, nil, ""},
		{&User{Name: "jane"}, nil, "jane"},
		{&User{Name: "system:node:n1"}, nil, "system:node:n1"},
		{account("a:one"), nil, "system:serviceaccount:a"},
		{account("a:two"), nil, "system:serviceaccount:a"},
		{account("b:one"), nil, "system:serviceaccount:b"},
		{account("b"), nil, "system:serviceaccount:b"},
		{account("a:one"), &User{Name: "jane"}, "jane"},
		{&User{Name: "jane"}, account("a:one"), "system:serviceaccount:a"},
	} {
		if got := (&Action{User: tc.user, Impersonator: tc.impersonator}).LimitKey(); got != tc.want {
			t.Errorf("%v by %v: got %q, want %q", tc.user, tc.impersonator, got, tc.want)
		}
	}
}
