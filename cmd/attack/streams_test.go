package attack

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"portico/internal/testing/await"
)

// bindRole gives a user the rights of a ClusterRole everywhere.
func (i *installation) bindRole(t *testing.T, user, role string) {
	t.Helper()
	i.must(t, "POST", rbac+"/clusterrolebindings", rbacObject("ClusterRoleBinding", "attack-"+user, fmt.Sprintf(
		`"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":%q},%s`, role, strings.ReplaceAll(toSelf, "SELF", user))))
	t.Cleanup(func() { i.must(t, "DELETE", rbac+"/clusterrolebindings/attack-"+user, "") })
	eventually(t, "rights of "+user, func() error {
		return i.may(t, user, "a", policyRule{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"list"}})
	})
}

// firstLine returns the status and the first line of a response that does not end.
func (i *installation) firstLine(t *testing.T, certificate *tls.Certificate, path string) (code int, line string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), await.Patience())
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, "GET", "https://"+i.host+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := i.client(certificate).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	line, _ = bufio.NewReader(res.Body).ReadString('\n') // "" fails the test
	return res.StatusCode, line
}

// The metadata of all objects is for the administrator and the garbage collector. No server that
// is registered is asked for it.
func TestMetadataOfAllObjects(t *testing.T) {
	t.Parallel()
	i := target
	kubernetes, plain := register(t, "metadata.example.com", http1), registerREST(t, "metadata-rest.example.com")
	for path, kind := range map[string]string{"/internal/metadata": "APIService", "/internal/metadata/apiregistration.k8s.io/v1": "APIService", "/internal/metadata/v1": ""} {
		if code, line := i.firstLine(t, i.administrator, path); code != http.StatusOK || !strings.HasPrefix(line, `{"type":"ADDED"`) || !strings.Contains(line, kind) {
			t.Errorf("control: %s: %d %q", path, code, line)
		}
	}
	users := map[string]*tls.Certificate{"nobody": i.user(t, "metadata-nobody"), "anonymous": nil}
	for _, role := range []string{"view", "edit", "admin"} {
		i.bindRole(t, "metadata-"+role, role)
		users[role] = i.user(t, "metadata-"+role)
	}
	paths := []string{"/internal/metadata", "/internal/metadata/", "/internal/metadata/v1", "/internal/metadata/apps/v1", "/internal/metadata/apiregistration.k8s.io/v1", "/internal//metadata", "/internal/metadata/../metadata/v1"}
	for _, s := range []*server{kubernetes, plain} {
		path := "/internal/metadata/" + s.group + "/v1"
		paths = append(paths, path)
		if code, body, err := i.ask(i.admin, "GET", path, ""); err != nil || code != http.StatusNotFound {
			t.Errorf("%s, by an administrator: %d %.300s %v, want 404", path, code, body, err)
		}
	}
	for user, certificate := range users {
		for _, path := range paths {
			for _, method := range []string{"GET", "POST"} {
				code, body, err := i.ask(i.client(certificate), method, path, "")
				if err != nil || code != http.StatusForbidden && code != http.StatusBadRequest && code != http.StatusUnauthorized || strings.Contains(body, "ADDED") {
					t.Errorf("%s: %s %s: %d %.300s %v, want 403", user, method, path, code, body, err)
				}
			}
		}
	}
	for _, s := range []*server{kubernetes, plain} {
		if seen := s.take(t); len(seen) > 0 {
			t.Errorf("%s saw %v", s.group, seen)
		}
	}
}

// connections are the rights that requests for streams and proxies need, of a pod, a service and
// a node that do not exist: 404 for those that may (of a service 503, as it has no endpoints), 403
// for others.
var connections = []struct {
	path string
	// upgrade is sent as the GET of a WebSocket, which needs the right to create.
	upgrade bool
	method  string
	// may are the users that may.
	may string
}{
	{"/api/v1/namespaces/a/pods/x/log", false, "GET", "view edit admin get some-log"},
	{"/api/v1/namespaces/a/pods/x/log?follow=true", true, "GET", "view edit admin get some-log"},
	{"/api/v1/namespaces/a/pods/x/exec?command=id", true, "GET", "edit admin"},
	{"/api/v1/namespaces/a/pods/x/exec?command=id", false, "GET", "edit admin"},
	{"/api/v1/namespaces/a/pods/x/exec?command=id", true, "POST", "edit admin create"},
	{"/api/v1/namespaces/a/pods/x/attach", true, "GET", "edit admin"},
	{"/api/v1/namespaces/a/pods/x/attach", true, "POST", "edit admin create"},
	{"/api/v1/namespaces/a/pods/x/portforward", true, "GET", "edit admin"},
	{"/api/v1/namespaces/a/pods/x/portforward", true, "POST", "edit admin create"},
	{"/api/v1/namespaces/a/pods/x/proxy/y", false, "GET", "edit admin get"},
	{"/api/v1/namespaces/a/pods/x/proxy/y", false, "POST", "edit admin create"},
	{"/api/v1/namespaces/a/services/x/proxy/y", false, "GET", "edit admin get"},
	{"/api/v1/namespaces/a/services/x/proxy/y", false, "POST", "edit admin create"},
	{"/api/v1/nodes/x/proxy/pods", false, "GET", "get"},
	{"/api/v1/nodes/x/proxy/exec/a/x/c", true, "GET", ""},
	{"/api/v1/nodes/x/proxy/run/a/x/c", false, "POST", "create"},
}

// Streams and proxies need the rights that they need in Kubernetes: the roles view, edit and admin
// have as much of them, and neither a right to the whole pod nor one of another verb is enough.
func TestRightsToStreams(t *testing.T) {
	t.Parallel()
	i := target
	users := map[string]*tls.Certificate{}
	for _, role := range []string{"view", "edit", "admin"} {
		i.bindRole(t, "streams-"+role, role)
	}
	all := []string{"pods/log", "pods/exec", "pods/attach", "pods/portforward", "pods/proxy", "services/proxy", "nodes/proxy"}
	core := []string{""}
	i.grant(t, "streams-get", "", policyRule{APIGroups: core, Resources: all, Verbs: []string{"get"}})
	i.grant(t, "streams-create", "", policyRule{APIGroups: core, Resources: all, Verbs: []string{"create"}})
	i.grant(t, "streams-whole", "", policyRule{APIGroups: core, Resources: []string{"pods", "services", "nodes"}, Verbs: []string{"*"}})
	i.grant(t, "streams-some-log", "a", policyRule{APIGroups: core, Resources: []string{"pods/log"}, ResourceNames: []string{"x"}, Verbs: []string{"get"}})
	for _, user := range []string{"view", "edit", "admin", "get", "create", "whole", "some-log", "nobody"} {
		users[user] = i.user(t, "streams-"+user)
	}
	for user, certificate := range users {
		t.Run(user, func(t *testing.T) {
			t.Parallel()
			for _, tc := range connections {
				more, want := "", []int{http.StatusForbidden}
				if tc.upgrade {
					more = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: v5.channel.k8s.io\r\n"
				}
				if slices.Contains(strings.Fields(tc.may), user) {
					want = []int{http.StatusNotFound, http.StatusServiceUnavailable}
				}
				a := i.send(t, certificate, tc.method, fmt.Sprintf("%s %s HTTP/1.1\r\nHost: localhost\r\n%sContent-Length: 0\r\n\r\n", tc.method, tc.path, more))
				if err := a.among(want...); err != nil {
					t.Errorf("%s %s, upgrade %v: %v, want %d", tc.method, tc.path, tc.upgrade, err, want)
				}
			}
		})
	}
}
