package attack

import (
	"fmt"
	"strings"
	"testing"
)

// restCase is a request for a REST server. ROOT is /apis/GROUP/VERSION. A body has the
// Content-Type of the header, JSON by default.
type restCase struct {
	name, method, target, header, body string
	codes                              []int
}

// restRequests are requests of a user that may get, list and create todos only.
var restRequests = []restCase{
	{"control: the list", "GET", "ROOT/todos", "", "", passed},
	{"control: an item", "GET", "ROOT/todos/1", "", "", passed},
	{"control: a new one", "POST", "ROOT/todos", "", "{}", passed},
	{"control: a query", "GET", "ROOT/todos?limit=1&q=a%26b", "", "", passed},
	{"deleted", "DELETE", "ROOT/todos/1", "", "", []int{403}},
	{"replaced", "PUT", "ROOT/todos/1", "", "{}", []int{403}},
	{"what is below an item", "GET", "ROOT/todos/1/notes", "", "", []int{403}},
	{"what is below that", "GET", "ROOT/todos/1/notes/2", "", "", []int{403}},
	{"another resource", "GET", "ROOT/admin/users", "", "", []int{403}},
	{"a path that the document does not have", "GET", "ROOT/metrics", "", "", []int{403, 404}},
	{"the document", "GET", "ROOT/openapi.json", "", "", []int{403, 404}},
	{"dots", "GET", "ROOT/todos/../admin/users", "", "", []int{400, 403}},
	{"escaped dots", "GET", "ROOT/todos/%2e%2e", "", "", []int{400, 403}},
	{"dots with parameters", "GET", "ROOT/todos/..;x=1", "", "", []int{400, 403}},
	{"dots with escaped parameters", "GET", "ROOT/todos/%2e%2e%3bx", "", "", []int{400, 403}},
	{"a dot", "GET", "ROOT/todos/.", "", "", []int{400, 403}},
	{"an escaped slash", "GET", "ROOT/todos/1%2Fnotes", "", "", refused},
	{"an escaped slash in lower case", "GET", "ROOT/todos%2f..%2fadmin", "", "", []int{400, 403}},
	{"an escaped backslash", "GET", "ROOT/todos/1%5cnotes", "", "", refused},
	{"an empty segment", "GET", "ROOT/todos//1", "", "", []int{400, 403}},
	{"an empty segment at the beginning", "GET", "ROOT//todos", "", "", []int{400, 403}},
	{"a way out of the prefix", "GET", "ROOT/../../../todos", "", "", []int{400, 403, 404}},
	{"upper case", "GET", "ROOT/TODOS/1", "", "", []int{403, 404}},
	{"escaped letters", "GET", "ROOT/%61dmin/users", "", "", []int{403}},
	{"parameters of a segment", "GET", "ROOT/admin;x=1/users", "", "", []int{403, 404}},
	{"a method that there is not", "PURGE", "ROOT/todos/1", "", "", []int{403, 405}},
	{"a method in lower case", "delete", "ROOT/todos/1", "", "", []int{400, 403, 405}},
	{"a patch of the list", "PATCH", "ROOT/todos", "", "{}", []int{403}},
	{"deleting the list", "DELETE", "ROOT/todos", "", "", []int{403}},
	{"X-HTTP-Method-Override", "POST", "ROOT/todos", "X-HTTP-Method-Override: DELETE", "{}", refused},
	{"the same in lower case", "POST", "ROOT/todos", "x-http-method-override: DELETE", "{}", refused},
	{"the same with underscores", "POST", "ROOT/todos", "X_HTTP_Method_Override: DELETE", "{}", refused},
	{"X-HTTP-Method", "POST", "ROOT/todos", "X-HTTP-Method: DELETE", "{}", refused},
	{"X-Method-Override", "POST", "ROOT/todos", "X-Method-Override: DELETE", "{}", refused},
	{"X-Original-URL", "GET", "ROOT/todos", "X-Original-URL: /admin/users", "", refused},
	{"X-Rewrite-URL", "GET", "ROOT/todos", "X-Rewrite-URL: /admin/users", "", refused},
	{"_method in the query", "POST", "ROOT/todos?_method=DELETE", "", "{}", refused},
	{"_method in the query, escaped", "POST", "ROOT/todos?%5fmethod=DELETE", "", "{}", refused},
	{"an absolute target elsewhere", "GET", "http://mallory.example.com/admin/users", "", "", []int{400, 403, 404}},
	{"a watch", "GET", "ROOT/todos?watch=true", "", "", []int{403, 405}},
	{"a table", "GET", "ROOT/todos", "Accept: application/json;as=Table;v=v1;g=meta.k8s.io", "", []int{406}},
	{"another user", "GET", "ROOT/todos", "X-Remote-User: mallory", "", passed},
	{"another user with dots", "GET", "ROOT/todos", "X.Remote.User: mallory", "", passed},
	{"a user of another proxy", "GET", "ROOT/todos", "X-Forwarded-User: mallory\r\nRemote-User: mallory\r\nX-Forwarded-Email: mallory", "", passed},
	{"a client's address", "GET", "ROOT/todos", "X-Real-Ip: mallory\r\nX-Forwarded-For: mallory\r\nForwarded: for=mallory\r\nX-Forwarded-Host: mallory", "", passed},
	{"a client's certificate", "GET", "ROOT/todos", "X-Forwarded-Client-Cert: mallory\r\nX-Ssl-Client-Cn: mallory", "", passed},
	{"cookies and tokens", "GET", "ROOT/todos", "Cookie: sso=mallory\r\nProxy-Authorization: Basic mallory\r\nX-Id-Token: mallory\r\nX-Access-Token: mallory\r\nX-Auth-Token: mallory\r\nX-Api-Key: mallory", "", passed},
	{"claims of other proxies", "GET", "ROOT/todos", "X-Original-Forwarded-For: mallory\r\nX-Scope-OrgID: mallory\r\nX-User-Role: mallory\r\nX-Tenant: mallory\r\nKubeflow-Userid: mallory\r\n" +
		"X-Consumer-Groups: mallory\r\nX-Grafana-User: mallory\r\nX-Hasura-Role: mallory\r\nX-Jwt-Claim-Sub: mallory\r\nX-Org-Id: mallory\r\nX-Principal: mallory\r\n" +
		"X-Vouch-User: mallory\r\nX-Token-Subject: mallory\r\nX-Envoy-Original-Path: /mallory\r\nBaggage: user=mallory", "", passed},
	{"a header that the Backend names in another spelling", "GET", "ROOT/todos", "X_Colour: mallory\r\nX.Colour: mallory", "", passed},
	{"control: a header that the Backend names", "GET", "ROOT/todos", "x-coLOUR: green", "", passed},
	{"a prefix of paths", "GET", "ROOT/todos", "X-Forwarded-Prefix: /mallory", "", passed},
	{"X.HTTP.Method.Override", "POST", "ROOT/todos", "X.HTTP.Method.Override: DELETE", "{}", refused},
	{"_method behind a semicolon", "POST", "ROOT/todos?a=b;_method=DELETE", "", "{}", refused},
	{"_method behind a space", "POST", "ROOT/todos?+_method=DELETE", "", "{}", refused},
	{"_method as a list in the query", "POST", "ROOT/todos?_method[]=DELETE", "", "{}", refused},
	{"_method as a list in the query, escaped", "POST", "ROOT/todos?_method%5B%5D=DELETE", "", "{}", refused},
	{"_method in a form", "POST", "ROOT/todos", "Content-Type: application/x-www-form-urlencoded", "a=b&_method=DELETE", []int{415}},
	{"_method in a form, escaped", "POST", "ROOT/todos", "Content-Type: application/x-www-form-urlencoded; charset=utf-8", "%5Fmethod=DELETE", []int{415}},
	{"_method in parts", "POST", "ROOT/todos", "Content-Type: multipart/form-data; boundary=b", "--b\r\nContent-Disposition: form-data; name=\"_method\"\r\n\r\nDELETE\r\n--b--\r\n", []int{415}},
	{"_method in JSON", "POST", "ROOT/todos", "", `{"_method":"DELETE"}`, refused},
	{"a body that is encoded", "POST", "ROOT/todos", "Content-Encoding: gzip", "mallory", []int{415}},
	{"a body in another charset", "POST", "ROOT/todos", "Content-Type: application/json; charset=utf-16", "mallory", []int{415}},
	{"a form by two content types", "POST", "ROOT/todos", "Content-Type: application/json\r\nContent-Type: application/x-www-form-urlencoded", "_method=DELETE", []int{400, 415}},
}

// A REST server gets the authorized method and path, and no header or parameter that
// overrides them.
func TestRESTServer(t *testing.T) {
	t.Parallel()
	s := registerREST(t, "todo.example.com")
	user, jane := s.jane(t, "", policyRule{APIGroups: []string{s.group}, Resources: []string{"todos"}, Verbs: []string{"get", "list", "create"}})
	for _, tc := range restRequests {
		header := tc.header
		if header != "" {
			header += "\r\n"
		}
		if !strings.Contains(header, "Content-Type") && tc.body != "" {
			header += "Content-Type: application/json\r\n"
		}
		if tc.body != "" {
			header += fmt.Sprintf("Content-Length: %d\r\n", len(tc.body))
		}
		where := strings.ReplaceAll(tc.target, "ROOT", "/apis/"+s.group+"/v1")
		a := target.send(t, jane, tc.method, fmt.Sprintf("%s %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n%s\r\n%s", tc.method, where, header, tc.body))
		if err := a.among(tc.codes...); err != nil {
			t.Errorf("%s: answered %v, want %v", tc.name, err, tc.codes)
		}
		if err := confined(a); err != nil {
			t.Errorf("%s: %v", tc.name, err)
		}
		seen := s.take(t)
		for _, r := range seen {
			if err := within(r, "/todos", []string{"GET"}, []string{"GET", "POST"}); err != nil {
				t.Errorf("%s: %v", tc.name, err)
			}
			if text := strings.ToLower(r.String()); strings.Contains(text, mark) || strings.Contains(strings.TrimPrefix(text, "delete"), "delete") {
				t.Errorf("%s: the server saw\n%s", tc.name, r)
			}
			if strings.Contains(tc.header, "coLOUR: green") != (r.header.Get("X-Colour") == "green") {
				t.Errorf("%s: X-Colour is %q", tc.name, r.header["X-Colour"])
			}
			if r.header.Get("X-Remote-User") != user {
				t.Errorf("%s: the user is %q", tc.name, r.header.Get("X-Remote-User"))
			}
		}
		if reached := len(seen) == 1; reached != (a.code == 200) || len(seen) > 1 {
			t.Errorf("%s: answered %v, and %d requests reached the server: %v", tc.name, a, len(seen), seen)
		}
	}
}

// A right to some names does not allow listing a REST server, which ignores field
// selectors.
func TestSelectorsOfRESTServers(t *testing.T) {
	t.Parallel()
	s := registerREST(t, "selected.example.com")
	_, jane := s.jane(t, "", policyRule{APIGroups: []string{s.group}, Resources: []string{"todos"}, ResourceNames: []string{"mine"}, Verbs: []string{"get", "list"}})
	for _, tc := range []struct {
		name, target string
		code         int
	}{
		{"control: the item", "/todos/mine", 200},
		{"another item", "/todos/other", 403},
		{"the list", "/todos", 403},
		{"the list with a selector", "/todos?fieldSelector=metadata.name%3Dmine", 400},
		{"the list with a selector that is not escaped", "/todos?fieldSelector=metadata.name=mine", 400},
		{"the list with two selectors", "/todos?fieldSelector=metadata.name=mine&fieldSelector=", 400},
		{"the list with a selector of labels", "/todos?labelSelector=a=b", 403},
		{"an item with a selector", "/todos/other?fieldSelector=metadata.name=mine", 403},
	} {
		a := target.send(t, jane, "GET", fmt.Sprintf("GET /apis/%s/v1%s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", s.group, tc.target))
		if seen := s.take(t); a.code != tc.code || (len(seen) == 1) != (tc.code == 200) {
			t.Errorf("%s: answered %v, want %d; the server saw %v", tc.name, a, tc.code, seen)
		}
	}
}
