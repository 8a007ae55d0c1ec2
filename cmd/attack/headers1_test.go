package attack

import (
	"fmt"
	"strings"
	"testing"
)

// things returns the rights of the users in tests of headers.
func things(group string) policyRule {
	return policyRule{APIGroups: []string{group}, Resources: []string{"things"}, Verbs: []string{"get", "list", "create", "update", "patch", "delete"}}
}

// The usual expectations: the request reaches the server, or is refused as malformed.
var (
	passed  = []int{200}
	refused = []int{400}
)

// headersOverHTTP1 are header sections as sent, each after a request line and Host. A row
// without a body is a GET.
var headersOverHTTP1 = []struct {
	name, header, body string
	codes              []int
}{
	{"lower case", "x-remote-user: mallory\r\nx-remote-group: system:mallory\r\n", "", passed},
	{"canonical", "X-Remote-User: mallory\r\nX-Remote-Group: system:mallory\r\nX-Remote-Uid: mallory\r\nX-Remote-Extra-Mallory: mallory\r\n", "", passed},
	{"upper case", "X-REMOTE-USER: mallory\r\nX-REMOTE-GROUP: mallory\r\nX-REMOTE-UID: mallory\r\nX-REMOTE-EXTRA-A: mallory\r\n", "", passed},
	{"mixed case", "x-ReMoTe-UsEr: mallory\r\nX-remote-GROUP: mallory\r\n", "", passed},
	{"underscores", "X_Remote_User: mallory\r\nX_REMOTE_GROUP: mallory\r\nx_remote_extra_a: mallory\r\nX_Remote_Uid: mallory\r\n", "", passed},
	{"dashes and underscores", "X-Remote_User: mallory\r\nX_Remote-Group: mallory\r\nX-Remote_Extra-A: mallory\r\n", "", passed},
	{"dots", "X.Remote.User: mallory\r\nX.Remote.Group: mallory\r\nX.Remote-Extra.A: mallory\r\n", "", passed},
	{"other characters", "X!Remote!User: mallory\r\nX~Remote~Group: mallory\r\n", "", passed},
	{"the other configured headers", "X-Login-User: mallory\r\nX-Login-Group: mallory\r\nX-Login-Uid: mallory\r\nX-Login-Extra-A: mallory\r\n", "", passed},
	{"the other configured headers, lower case with underscores", "x_login_user: mallory\r\nx-login_group: mallory\r\nx_login_extra_a: mallory\r\n", "", passed},
	{"three times", "X-Remote-User: mallory1\r\nx-remote-user: mallory2\r\nX-REMOTE-USER: mallory3\r\n", "", passed},
	{"a list of groups", "X-Remote-Group: mallory, system:mallory\r\n", "", passed},
	{"a group alone", "X-Remote-Group: mallory\r\n", "", passed},
	{"an extra alone", "X-Remote-Extra-Scopes: mallory\r\n", "", passed},
	{"an escaped extra", "X-Remote-Extra-%53copes: mallory\r\n", "", passed},
	{"an extra without a name", "X-Remote-Extra-: mallory\r\n", "", passed},
	{"a credential id", "X-Remote-Extra-Authentication.kubernetes.io%2fcredential-Id: mallory\r\n", "", passed},
	{"a constraint of an impersonation", "X-Remote-Impersonation-Mode: mallory\r\nX-Remote-Impersonator: mallory\r\nX-Remote-Impersonator-Group: mallory\r\n", "", passed},
	{"a user of the family without a name", "X-Remote-: mallory\r\n", "", passed},
	{"a tab before the value", "X-Remote-User:\tmallory\r\n", "", passed},
	{"no space before the value", "X-Remote-User:mallory\r\n", "", passed},
	{"an empty value", "X-Remote-User:\r\nX-Remote-Group:\r\n", "", passed},
	{"named in Connection", "Connection: close, X-Remote-User, X-Remote-Group, Authorization\r\nX-Remote-User: mallory\r\n", "", passed},
	{"Connection names what the gateway sets", "Connection: close, x-remote-user, x-remote-group, x-forwarded-for\r\n", "", passed},
	{"Connection twice", "Connection: X-Remote-User\r\nConnection: close, X-Remote-Extra-A\r\nX-Remote-Extra-A: mallory\r\n", "", passed},
	{"a space before the colon", "X-Remote-User : mallory\r\n", "", refused},
	{"a tab before the colon", "X-Remote-User\t: mallory\r\n", "", refused},
	{"a space before the name", " X-Remote-User: mallory\r\n", "", refused},
	{"a carriage return alone", "A: b\rX-Remote-User: mallory\r\n", "", refused},
	{"a carriage return before the end of the line", "A: b\r\r\nX-Remote-User: mallory\r\n", "", refused},
	{"a NUL in the value", "X-Remote-User: mallory\x00\r\n", "", refused},
	{"a NUL in the name", "X-Remote-User\x00: mallory\r\n", "", refused},
	{"no colon", "X-Remote-User mallory\r\n", "", refused},
	{"no name", ": mallory\r\n", "", refused},
	{"a name with a slash", "X-Remote-User/: mallory\r\n", "", refused},
	{"a name beyond ASCII", "X-Remote-User\xc3\xa9: mallory\r\n", "", refused},
	{"a control character in the value", "X-Remote-User: mallory\x01\r\n", "", refused},
	{"in a trailer", "Transfer-Encoding: chunked\r\nTrailer: X-Remote-User\r\n", "2\r\n{}\r\n0\r\nX-Remote-User: mallory\r\n\r\n", passed},
	{"in a trailer that is not announced", "Transfer-Encoding: chunked\r\n", "2\r\n{}\r\n0\r\nX-Remote-Group: mallory\r\n\r\n", passed},
	{"in a trailer with underscores", "Transfer-Encoding: chunked\r\nTrailer: X_Remote_User\r\n", "2\r\n{}\r\n0\r\nX_Remote_User: mallory\r\n\r\n", passed},
	{"authorization of another scheme", "Authorization: Basic bWFsbG9yeTptYWxsb3J5\r\n", "", passed},
	{"a bearer token beside the certificate", "Authorization: Bearer mallory\r\n", "", passed},
	{"authorization twice", "Authorization: Basic bWFsbG9yeQ==\r\nAuthorization: Bearer mallory\r\n", "", passed},
	{"cookies", "Cookie: sso=mallory; a=b\r\nCookie: c=mallory\r\n", "", passed},
	{"a cookie that Connection names", "Connection: close, Cookie\r\nCookie: sso=mallory\r\n", "", passed},
	{"authorization of a proxy", "Proxy-Authorization: Basic mallory\r\n", "", passed},
	{"tokens", "X-Id-Token: mallory\r\nX-Access-Token: mallory\r\nX-Auth-Token: mallory\r\nX-Api-Key: mallory\r\nX-Vault-Token: mallory\r\nX-Csrf-Token: mallory\r\nX-Amz-Security-Token: mallory\r\n", "", passed},
	{"what proxies add for a session", "X-Forwarded-Access-Token: mallory\r\nX-Forwarded-User: mallory\r\nX-Auth-Request-Access-Token: mallory\r\nCf-Access-Jwt-Assertion: mallory\r\n", "", passed},
	{"tenants and roles", "X-Scope-OrgID: mallory\r\nX-User-Role: mallory\r\nX-Tenant: mallory\r\nKubeflow-Userid: mallory\r\nX-Hasura-Role: mallory\r\n", "", passed},
	{"what a browser says of the page", "Referer: https://mallory.example\r\n", "", passed},
	{"a user to impersonate", "Impersonate-User: mallory\r\n", "", []int{403}},
	{"a group to impersonate without a user", "Impersonate-Group: mallory\r\n", "", []int{400}},
	{"an extra to impersonate without a user", "Impersonate-Extra-Mallory: mallory\r\n", "", []int{400}},
	{"a user to impersonate, named in Connection", "Connection: close, Impersonate-User\r\nImpersonate-User: mallory\r\n", "", []int{403}},
	{"an id of a user to impersonate without a user", "Impersonate-Uid: mallory\r\n", "", []int{400}},
	{"a user to impersonate with underscores", "Impersonate_User: mallory\r\nImpersonate_Group: system:mallory\r\n", "", passed},
	{"a user to impersonate with dots", "Impersonate.User: mallory\r\n", "", passed},
}

// Whatever header a client sends over HTTP/1.1, a server gets the user of the certificate
// and no forged value.
func TestIdentityHeadersOverHTTP1(t *testing.T) {
	t.Parallel()
	for _, protocol := range []string{http1, http2} {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			group := "headers1-" + strings.TrimSuffix(protocol, "/1.1") + ".example.com"
			s := register(t, group, protocol)
			_, jane := s.jane(t, "a", things(group))
			send := func(header, body string) answer {
				if !strings.Contains(header, "Connection") {
					header += "Connection: close\r\n"
				}
				method, path := "GET", s.root()+"/x"
				if body != "" {
					method, path = "POST", s.root()
				}
				return target.send(t, jane, method, fmt.Sprintf("%s %s HTTP/1.1\r\nHost: localhost\r\n%s\r\n%s", method, path, header, body))
			}
			controlHeaders(t, s, func(name, value string) answer { return send(name+": "+value+"\r\n", "") })
			for _, tc := range headersOverHTTP1 {
				a := send(tc.header, tc.body)
				judgeHeaders(t, s, tc.name, a, tc.codes)
				if err := confined(a); err != nil {
					t.Errorf("%s: %v", tc.name, err)
				}
			}
		})
	}
}

// judgeHeaders checks the result of a request with a forged header.
func judgeHeaders(t *testing.T, s *server, name string, a answer, codes []int) {
	t.Helper()
	if err := a.among(codes...); err != nil {
		t.Errorf("%s: answered %v, want %v", name, err, codes)
	}
	seen := s.take(t)
	if err := only("jane-"+s.group, seen); err != nil {
		t.Errorf("%s: %v", name, err)
	}
	if reached := len(seen) > 0; reached != (a.code == 200) {
		t.Errorf("%s: it reached the server: %t, and was answered %v", name, reached, a)
	}
}

// controlHeaders shows that the check works: an ordinary header arrives, and one with a
// user does if a front proxy sends it.
func controlHeaders(t *testing.T, s *server, send func(name, value string) answer) {
	t.Helper()
	a := send("X-Request-Id", mark)
	seen := s.take(t)
	if a.code != 200 || len(seen) != 1 || only("jane-"+s.group, seen) == nil {
		t.Fatalf("a header like any other: %v, the server saw %v", a, seen)
	}
	proxy := target.frontProxies.issue(t, subject{name: "front-proxy-client"})
	target.grant(t, mark+s.group, "a", things(s.group))
	a = target.send(t, proxy, "GET", fmt.Sprintf("GET %s/x HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nX-Remote-User: %s\r\n\r\n", s.root(), mark+s.group))
	seen = s.take(t)
	if a.code != 200 || len(seen) != 1 || seen[0].header.Get("X-Remote-User") != mark+s.group || only("jane-"+s.group, seen) == nil {
		t.Fatalf("a front proxy's user: %v, the server saw %v", a, seen)
	}
}
