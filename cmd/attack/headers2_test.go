package attack

import (
	"strings"
	"testing"
)

// pseudo returns the pseudo-header fields of an ordinary request.
func pseudo(method, path string) []field {
	return []field{{":method", method}, {":scheme", "https"}, {":authority", "localhost"}, {":path", path}}
}

// broken are the results of a request that the gateway refuses by a status, a reset of the
// stream or the end of the connection.
var broken = []int{0, 400}

// headersOverHTTP2 are header blocks. PATH stands for the path of the request. Those
// without pseudo-header fields follow the ordinary ones.
var headersOverHTTP2 = []struct {
	name   string
	header []field
	codes  []int
}{
	{"the user", []field{{"x-remote-user", "mallory"}, {"x-remote-group", "system:mallory"}, {"x-remote-uid", "mallory"}, {"x-remote-extra-a", "mallory"}}, passed},
	{"upper case", []field{{"X-Remote-User", "mallory"}}, broken},
	{"one upper-case letter", []field{{"x-remote-useR", "mallory"}}, broken},
	{"underscores", []field{{"x_remote_user", "mallory"}, {"x_remote-extra_a", "mallory"}, {"x_remote_group", "mallory"}}, passed},
	{"dots", []field{{"x.remote.user", "mallory"}, {"x.remote.group", "mallory"}}, passed},
	{"three times", []field{{"x-remote-user", "mallory1"}, {"x-remote-user", "mallory2"}, {"x-remote-user", "mallory3"}}, passed},
	{"an escaped extra", []field{{"x-remote-extra-%53copes", "mallory"}}, passed},
	{"a constraint of an impersonation", []field{{"x-remote-impersonation-mode", "mallory"}, {"x-remote-impersonator", "mallory"}, {"x_remote_impersonator_group", "mallory"}}, passed},
	{"line breaks in the value", []field{{"a", "b\r\nX-Remote-User: mallory"}}, broken},
	{"a line feed in the value", []field{{"a", "b\nX-Remote-User: mallory"}}, broken},
	{"a carriage return in the value", []field{{"a", "b\rX-Remote-User: mallory"}}, broken},
	{"a NUL in the value", []field{{"x-remote-user", "mallory\x00"}}, broken},
	{"a control character in the value", []field{{"a", "mallory\x01"}}, broken},
	{"line breaks in the name", []field{{"a: b\r\nx-remote-user", "mallory"}}, broken},
	{"a header within the name", []field{{"x-remote-user: mallory\r\na", "b"}}, broken},
	{"a colon in the name", []field{{"x-remote-user:", "mallory"}}, broken},
	{"a space behind the name", []field{{"x-remote-user ", "mallory"}}, broken},
	{"a space before the name", []field{{" x-remote-user", "mallory"}}, broken},
	{"a NUL in the name", []field{{"x-remote-user\x00", "mallory"}}, broken},
	{"no name", []field{{"", "mallory"}}, broken},
	{"a name beyond ASCII", []field{{"x-remote-user\xc3\xa9", "mallory"}}, broken},
	{"transfer-encoding", []field{{"transfer-encoding", "chunked"}, {"a", "mallory"}}, broken},
	{"connection", []field{{"connection", "x-remote-user"}, {"x-remote-user", "mallory"}}, broken},
	{"keep-alive", []field{{"keep-alive", "timeout=5"}, {"a", "mallory"}}, broken},
	{"proxy-connection", []field{{"proxy-connection", "keep-alive"}, {"a", "mallory"}}, broken},
	{"upgrade", []field{{"upgrade", "websocket"}, {"a", "mallory"}}, broken},
	{"te other than trailers", []field{{"te", "gzip"}, {"a", "mallory"}}, broken},
	{"te: trailers", []field{{"te", "trailers"}, {"x-remote-user", "mallory"}}, passed},
	{"cookies", []field{{"cookie", "sso=mallory"}, {"cookie", "a=mallory"}}, passed},
	{"authorization of a proxy", []field{{"proxy-authorization", "Basic mallory"}}, passed},
	{"tokens", []field{{"x-id-token", "mallory"}, {"x-access-token", "mallory"}, {"x-auth-token", "mallory"}, {"x-api-key", "mallory"}}, passed},
	{"what proxies add for a session", []field{{"x-forwarded-access-token", "mallory"}, {"x-auth-request-access-token", "mallory"}, {"cf-access-jwt-assertion", "mallory"}}, passed},
	{"tenants and roles", []field{{"x-scope-orgid", "mallory"}, {"x-user-role", "mallory"}, {"kubeflow-userid", "mallory"}}, passed},
	{"a user to impersonate", []field{{"impersonate-user", "mallory"}}, []int{403}},
	{"a user to impersonate with underscores", []field{{"impersonate_user", "mallory"}}, passed},
	{"authorization", []field{{"authorization", "Bearer mallory"}}, passed},
	{"a pseudo-header field that there is not", []field{{":remote-user", "mallory"}}, broken},
	{"a pseudo-header field of answers", []field{{":status", "200"}, {"a", "mallory"}}, broken},
	{"cookies with a line break", []field{{"cookie", "a=b"}, {"cookie", "c=d\r\nX-Remote-User: mallory"}}, broken},

	{"no path", []field{{":method", "GET"}, {":scheme", "https"}, {":authority", "localhost"}, {"a", "mallory"}}, broken},
	{"an empty path", append(pseudo("GET", ""), field{"a", "mallory"}), broken},
	{"a relative path", append(pseudo("GET", "apis"), field{"a", "mallory"}), broken},
	{"a path that is a star", append(pseudo("GET", "*"), field{"a", "mallory"}), []int{0, 400, 403, 404}},
	{"two paths", append(pseudo("GET", "PATH"), field{":path", "/mallory"}), broken},
	{"two methods", append(pseudo("GET", "PATH"), field{":method", "DELETE"}, field{"a", "mallory"}), broken},
	{"a field before the pseudo-header fields", append([]field{{"a", "mallory"}}, pseudo("GET", "PATH")...), broken},
	{"line breaks in the path", pseudo("GET", "PATH\r\nX-Remote-User: mallory"), broken},
	{"an HTTP/1.1 request in the path", pseudo("GET", "PATH HTTP/1.1\r\nX-Remote-User: mallory\r\nA: b"), broken},
	{"an HTTP/1.1 request in the method", pseudo("GET /mallory HTTP/1.1\r\nX: y", "PATH"), broken},
	{"a space in the method", pseudo("GET mallory", "PATH"), []int{0, 400, 403}},
	{"a line feed in the method", pseudo("GET\nmallory", "PATH"), broken},
	{"line breaks in the authority", []field{{":method", "GET"}, {":scheme", "https"}, {":authority", "localhost\r\nX-Remote-User: mallory"}, {":path", "PATH"}}, broken},
	{"an odd scheme", []field{{":method", "GET"}, {":scheme", "mallory x"}, {":authority", "localhost"}, {":path", "PATH"}}, []int{0, 200, 400}},
	{"CONNECT", []field{{":method", "CONNECT"}, {":authority", "127.0.0.1:1"}, {"a", "mallory"}}, []int{0, 400, 403, 404, 405}},
	{"extended CONNECT", append(pseudo("CONNECT", "PATH"), field{":protocol", "websocket"}, field{"a", "mallory"}), []int{0, 400, 405}},
	{"a path that is not escaped well", pseudo("GET", "PATH%mallory"), broken},
}

// Whatever header blocks a client sends, a server gets the user of the certificate and no
// forged value.
func TestIdentityHeadersOverHTTP2(t *testing.T) {
	t.Parallel()
	for _, protocol := range []string{http1, http2} {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			group := "headers2-" + strings.TrimSuffix(protocol, "/1.1") + ".example.com"
			s := register(t, group, protocol)
			_, jane := s.jane(t, "a", things(group))
			send := func(st stream) answer {
				for i := range st.header {
					st.header[i].value = strings.ReplaceAll(st.header[i].value, "PATH", s.root()+"/x")
				}
				return target.sendStream(t, jane, st)
			}
			ordinary := func(method string, more ...field) []field {
				path := "PATH"
				if method == "POST" {
					path = s.root()
				}
				return append(pseudo(method, path), more...)
			}
			controlHeaders(t, s, func(name, value string) answer {
				return send(stream{header: ordinary("GET", field{strings.ToLower(name), value})})
			})
			for _, tc := range headersOverHTTP2 {
				header := append([]field(nil), tc.header...)
				if !strings.HasPrefix(header[0].name, ":") && header[len(header)-1].name != ":path" || header[0].name == ":remote-user" || header[0].name == ":status" {
					header = ordinary("GET", header...)
				}
				judgeHeaders(t, s, tc.name, send(stream{header: header}), tc.codes)
			}
			for _, tc := range []struct {
				name    string
				more    []field
				trailer []field
				codes   []int
			}{
				{"in a trailer", []field{{"trailer", "x-remote-user"}}, []field{{"x-remote-user", "mallory"}}, passed},
				{"in a trailer that is not announced", nil, []field{{"x-remote-group", "mallory"}}, passed},
				{"in a trailer with underscores", nil, []field{{"x_remote_user", "mallory"}}, passed},
				{"a pseudo-header field in a trailer", nil, []field{{":path", "/mallory"}}, []int{0, 200, 400}},
				{"an upper-case trailer", nil, []field{{"X-Remote-User", "mallory"}}, []int{0, 200, 400}},
				{"a trailer with line breaks", nil, []field{{"a", "b\r\nX-Remote-User: mallory"}}, []int{0, 200, 400}},
			} {
				a := send(stream{header: ordinary("POST", tc.more...), body: []byte("{}"), trailer: tc.trailer})
				judgeTrailer(t, s, tc.name, a, tc.codes)
			}
		})
	}
}

// judgeTrailer checks the result of a forged trailer. The gateway may have sent the request
// on before it reads the trailer, so that it arrives after the next one.
func judgeTrailer(t *testing.T, s *server, name string, a answer, codes []int) {
	t.Helper()
	if err := a.among(codes...); err != nil {
		t.Errorf("%s: answered %v, want %v", name, err, codes)
	}
	for _, r := range s.take(t) {
		if err := only("jane-"+s.group, []*request{r}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
