package attack

import (
	"fmt"
	"net/http"
	"path"
	"strings"
	"testing"
	"time"

	"portico/internal/testing/await"
)

// requestTargets are methods and queries of HTTP/2 that would be malformed in a request
// line of HTTP/1.1. THING is the path.
var requestTargets = []struct{ name, method, path string }{
	{"a space in the query", "GET", "THING?a=b c"},
	{"a version in the query", "GET", "THING?x HTTP/1.0"},
	{"two versions in the query", "GET", "THING?x HTTP/1.1 HTTP/1.1"},
	{"a space as the query", "GET", "THING? "},
	{"a tab in the query", "GET", "THING?a=b\tc"},
	{"a control character in the query", "GET", "THING?a=\x01"},
	{"a DEL in the query", "GET", "THING?a=\x7f"},
	{"line breaks in the query", "GET", "THING?a=b\r\nX-Remote-User: mallory"},
	{"a line feed in the query", "GET", "THING?a=b\nX-Remote-User: mallory"},
	{"bytes beyond ASCII in the query", "GET", "THING?a=\xe9\xff"},
	{"what should be escaped in the query", "GET", "THING?a=\"<>`{}|^\\"},
	{"a number sign in the query", "GET", "THING?a=b#c"},
	{"a space in the path", "GET", "THING y"},
	{"a number sign in the path", "GET", "THING#c"},
	{"bytes beyond ASCII in the path", "GET", "THING\xff\xfe"},
	{"a space in the method", "GET /x", "THING"},
	{"a colon in the method", "GET:", "THING"},
	{"a bracket in the method", "(GET)", "THING"},
	{"a method that is longer than any", strings.Repeat("G", 300), "THING"},
	{"a method in lower case", "get", "THING"},
}

// A server of HTTP/1.1 gets a request line with a method, a target and a version, whatever
// a user of all verbs sends over HTTP/2.
func TestRequestLines(t *testing.T) {
	t.Parallel()
	for _, s := range []*server{register(t, "lines.example.com", http1), registerREST(t, "lines-rest.example.com")} {
		_, jane := s.jane(t, "", policyRule{APIGroups: []string{s.group}, Resources: []string{"*"}, Verbs: []string{"*"}})
		thing := "/apis/" + s.group + "/v1/things/x"
		for _, tc := range requestTargets {
			a := target.sendStream(t, jane, stream{header: pseudo(tc.method, strings.ReplaceAll(tc.path, "THING", thing))})
			seen := s.take(t)
			if err := a.among(0, 200, 400, 403, 404, 405, 414, 501); err != nil {
				t.Errorf("%s: %v", tc.name, err)
			}
			for _, r := range seen {
				line, _, _ := strings.Cut(r.String(), "\r\n")
				if len(seen) > 1 || strings.Count(line, " ") != 2 || !strings.HasSuffix(line, " HTTP/1.1") || strings.ContainsFunc(line, func(c rune) bool { return c < ' ' || c >= 0x7f }) || strings.Contains(r.String(), mark) {
					t.Errorf("%s: the server saw %q", tc.name, r)
				}
			}
			if (len(seen) > 0) != (a.code == 200) {
				t.Errorf("%s: answered %v, and %d requests reached the server", tc.name, a, len(seen))
			}
		}
		if a := target.sendStream(t, jane, stream{header: pseudo("GET", thing+"?a=b%20c")}); a.code != 200 || len(s.take(t)) != 1 {
			t.Errorf("control: a query that is escaped: %v", a)
		}
	}
}

// A registration that leads back to the gateway is not available and says why, with and
// without the gateway's certificate. The gateway responds at once to requests for it, and a
// watch of it ends.
func TestLoops(t *testing.T) {
	t.Parallel()
	i := target
	for group, tls := range map[string]string{"loop.example.com": "", "loop-anonymous.example.com": `,"clientCertificate":"None"`} {
		i.backend(t, group, fmt.Sprintf(`{"endpoints":[{"url":%q}],"tls":{"caBundle":%q%s}}`, i.Endpoint, base64Of(i.servers.pem()), tls))
		apiservice := "/apis/apiregistration.k8s.io/v1/apiservices/v1." + group
		i.must(t, "POST", path.Dir(apiservice), fmt.Sprintf(`{"apiVersion":"apiregistration.k8s.io/v1","kind":"APIService","metadata":{"name":"v1.%s","annotations":{"gateway.portico.dev/backend":%q}},
			"spec":{"group":%[1]q,"version":"v1","groupPriorityMinimum":1000,"versionPriority":15}}`, group, strings.ReplaceAll(group, ".", "-")))
		t.Cleanup(func() { i.must(t, "DELETE", apiservice, "") })
		eventually(t, "a check that the gateway answers itself fails", func() error {
			return i.answers(apiservice, http.StatusOK, "508 Loop Detected: the address leads back to this gateway")
		})
		for _, path := range []string{"/foos", "/foos/x", "/namespaces/a/foos?watch=1", "/foos?watch=1"} {
			began := time.Now()
			if err := i.answers("/apis/"+group+"/v1"+path, http.StatusServiceUnavailable, "508 Loop Detected"); err != nil {
				t.Errorf("%s: %v", path, err)
			}
			await.Bar(t, path, time.Since(began), 5*time.Second)
		}
	}
	i.unharmed(t)
}
