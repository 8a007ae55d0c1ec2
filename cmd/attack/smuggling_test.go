package attack

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// inner is a request that an attack hides behind another one.
const inner = "DELETE /apis/%[1]s/v1/namespaces/a/things/mallory HTTP/1.1\r\nHost: localhost\r\nX-Remote-User: mallory\r\nContent-Length: 0\r\n\r\n"

// smuggled are header sections and bodies of a POST. Servers and proxies may differ in where
// they end. INNER stands for the hidden request.
var smuggled = []struct {
	name, header, body string
	codes              []int
	// saw is the body that the server may get; "-" if the request must not reach it.
	saw string
}{
	{"control: a length", "Content-Length: 2\r\n", "{}", passed, "{}"},
	{"control: chunks", "Transfer-Encoding: chunked\r\n", "2\r\n{}\r\n0\r\n\r\n", passed, "{}"},
	{"a length and chunks", "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", "2\r\n{}\r\n0\r\n\r\nINNER", []int{200, 400}, "{}"},
	{"chunks and a length", "Transfer-Encoding: chunked\r\nContent-Length: 300\r\n", "0\r\n\r\nINNER", []int{200, 400}, ""},
	{"another coding", "Transfer-Encoding: xchunked\r\nContent-Length: 2\r\n", "{}INNER", []int{400, 501}, "-"},
	{"a coding with a vertical tab", "Transfer-Encoding: \x0bchunked\r\nContent-Length: 2\r\n", "{}INNER", []int{400, 501}, "-"},
	{"two codings", "Transfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\n", "2\r\n{}\r\n0\r\n\r\nINNER", []int{400, 501}, "-"},
	{"two codings in a list", "Transfer-Encoding: gzip, chunked\r\n", "2\r\n{}\r\n0\r\n\r\nINNER", []int{400, 501}, "-"},
	{"identity", "Transfer-Encoding: identity\r\nContent-Length: 2\r\n", "{}INNER", []int{400, 501}, "-"},
	{"a space before the colon", "Transfer-Encoding : chunked\r\nContent-Length: 2\r\n", "{}INNER", refused, "-"},
	{"a coding on a second line", "Transfer-Encoding:\r\n chunked\r\nContent-Length: 2\r\n", "2\r\n{}\r\n0\r\n\r\nINNER", []int{200, 400}, "{}"},
	{"another case of the coding", "transfer-encoding: CHUNKED\r\n", "2\r\n{}\r\n0\r\n\r\nINNER", passed, "{}"},
	{"two lengths", "Content-Length: 2\r\nContent-Length: 3\r\n", "{} INNER", refused, "-"},
	{"the same length twice", "Content-Length: 2\r\nContent-Length: 2\r\n", "{}INNER", []int{200, 400}, "{}"},
	{"lengths in a list", "Content-Length: 2, 2\r\n", "{}INNER", refused, "-"},
	{"a length with a sign", "Content-Length: +2\r\n", "{}INNER", refused, "-"},
	{"a negative length", "Content-Length: -2\r\n", "{}INNER", refused, "-"},
	{"a length in hexadecimal", "Content-Length: 0x2\r\n", "{}INNER", refused, "-"},
	{"a length that overflows", "Content-Length: 18446744073709551618\r\n", "{}INNER", refused, "-"},
	{"a length with a space in it", "Content-Length: 2 2\r\n", "{}INNER", refused, "-"},
	{"a length with an underscore", "Content_Length: 2\r\n", "{}INNER", passed, ""},
	{"chunks with an extension", "Transfer-Encoding: chunked\r\n", "2;a=b\r\n{}\r\n0\r\n\r\nINNER", passed, "{}"},
	{"chunks with line feeds", "Transfer-Encoding: chunked\r\n", "2\n{}\n0\n\nINNER", []int{200, 400}, "{}"},
	{"a chunk's size with a sign", "Transfer-Encoding: chunked\r\n", "+2\r\n{}\r\n0\r\n\r\nINNER", []int{200, 400}, ""},
	{"a chunk's size that overflows", "Transfer-Encoding: chunked\r\n", "10000000000000002\r\n{}\r\n0\r\n\r\nINNER", []int{200, 400}, ""},
	{"a chunk longer than it says", "Transfer-Encoding: chunked\r\n", "1\r\n{}\r\n0\r\n\r\nINNER", []int{200, 400}, "{"},
	{"an extension without an end", "Transfer-Encoding: chunked\r\n", "2;" + strings.Repeat("a", 1<<20), []int{0, 200, 400}, ""},
	{"HTTP/1.0 with chunks", "Transfer-Encoding: chunked\r\nX-Version: 1.0\r\n", "2\r\n{}\r\n0\r\n\r\nINNER", []int{200, 400, 501}, ""},
}

// A server gets one request for each authorized one, whatever the client sends as the
// length of a body.
func TestSmuggling(t *testing.T) {
	t.Parallel()
	s := register(t, "smuggling.example.com", http1)
	// Without delete, so that the hidden request is refused if the gateway reads it as one.
	user, jane := s.jane(t, "a", policyRule{APIGroups: []string{s.group}, Resources: []string{"things"}, Verbs: []string{"get", "create"}})
	hidden := fmt.Sprintf(inner, s.group)
	for n, tc := range smuggled {
		version := "1.1"
		if strings.Contains(tc.header, "X-Version: 1.0") {
			version = "1.0"
		}
		a := target.send(t, jane, "POST", fmt.Sprintf("POST %s?row=%d HTTP/%s\r\nHost: localhost\r\n%s\r\n%s", s.root(), n, version, tc.header, strings.ReplaceAll(tc.body, "INNER", hidden)))
		if err := a.among(tc.codes...); err != nil {
			t.Errorf("%s: answered %v, want %v", tc.name, err, tc.codes)
		}
		seen := ofRow(t, n, user, s.take(t))
		if err := only(user, seen); err != nil {
			t.Errorf("%s: %v", tc.name, err)
		}
		for _, r := range seen {
			body, _, broken := strings.Cut(string(r.body), "\n")
			if tc.saw == "-" || body != tc.saw && !broken || r.method != "POST" {
				t.Errorf("%s: the server saw a body of %q in\n%s", tc.name, r.body, r)
			}
		}
		if len(seen) == 0 && (a.code == 200 || strings.HasPrefix(tc.name, "control")) {
			t.Errorf("%s: nothing reached the server: %v", tc.name, a)
		}
	}
	t.Run("control: a request that is hidden from nobody", func(t *testing.T) {
		a := target.send(t, jane, "GET", fmt.Sprintf("GET %s/x HTTP/1.1\r\nHost: localhost\r\n\r\n", s.root())+strings.Replace(hidden, "DELETE", "GET", 1))
		if seen := s.take(t); a.code != 200 || a.more != 1 || len(seen) != 2 || only(user, seen) == nil {
			t.Errorf("answered %v and %d more, the server saw %v", a, a.more, seen)
		}
	})
}

// ofRow returns the requests of a row, and those without one. A request that the gateway
// has given up may reach the server after the next row's fence: it is checked here and left
// out.
func ofRow(t *testing.T, row int, user string, seen []*request) []*request {
	t.Helper()
	return slices.DeleteFunc(seen, func(r *request) bool {
		_, number, found := strings.Cut(r.uri, "?row=")
		if !found || number == fmt.Sprint(row) {
			return false
		}
		if err := only(user, []*request{r}); err != nil {
			t.Errorf("row %s: %v", number, err)
		}
		return true
	})
}

// The length of a body over HTTP/2 is that of its frames.
func TestSmugglingOverHTTP2(t *testing.T) {
	t.Parallel()
	s := register(t, "smuggling2.example.com", http1)
	user, jane := s.jane(t, "a", things(s.group))
	for n, tc := range []struct {
		name string
		more []field
		body string
		// codes and saw are as for HTTP/1.1.
		codes []int
		saw   string
	}{
		{"control: the right length", []field{{"content-length", "2"}}, "{}", passed, "{}"},
		{"control: no length", nil, "{}", passed, "{}"},
		{"a length that is too long", []field{{"content-length", "100"}}, "{}", []int{0, 400, 502}, "{}"},
		{"a length that is too short", []field{{"content-length", "1"}}, "{}" + fmt.Sprintf(inner, s.group), []int{0, 400, 502}, "{"},
		{"no length and another request", nil, "0\r\n\r\n" + strings.ReplaceAll(fmt.Sprintf(inner, s.group), mark, "hidden"), passed, ""},
		{"two lengths", []field{{"content-length", "2"}, {"content-length", "3"}}, "{}", []int{0, 200, 400}, "{}"},
		{"a length of none", []field{{"content-length", "0"}}, "{}", []int{0, 200, 400}, ""},
		{"a length that is no number", []field{{"content-length", "x"}}, "{}", []int{0, 200, 400}, ""},
		{"chunks", []field{{"transfer-encoding", "chunked"}}, "0\r\n\r\n", []int{0, 400}, "-"},
	} {
		a := target.sendStream(t, jane, stream{header: append(pseudo("POST", fmt.Sprintf("%s?row=%d", s.root(), n)), tc.more...), body: []byte(tc.body)})
		if err := a.among(tc.codes...); err != nil {
			t.Errorf("%s: answered %v, want %v", tc.name, err, tc.codes)
		}
		seen := ofRow(t, n, user, s.take(t))
		if len(seen) > 1 {
			t.Errorf("%s: %d requests reached the server: %v", tc.name, len(seen), seen)
		}
		for _, r := range seen {
			first, _, broken := strings.Cut(string(r.body), "\n")
			cut := broken && strings.HasPrefix(tc.saw, first) // before the server had read all of it
			if tc.saw == "-" || tc.saw != "" && !cut && !strings.HasPrefix(first, tc.saw) || a.code != 200 && first != "" && !broken || r.method != "POST" {
				t.Errorf("%s: %v; the server saw a body of %q in\n%s", tc.name, a, r.body, r)
			}
		}
		if len(seen) == 0 && a.code == 200 {
			t.Errorf("%s: nothing reached the server: %v", tc.name, a)
		}
	}
}
