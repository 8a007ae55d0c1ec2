package serve

import (
	"encoding/base64"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"

	"portico/resource"
	"portico/resource/audit"
)

// Events have the bodies that their level asks for; the bodies themselves are not changed.
func TestAuditOfBodies(t *testing.T) {
	t.Parallel()
	const object = `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","managedFields":[{"manager":"m"}]}}`
	const plain = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"}}`
	echo := func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Query().Has("copy") {
			_, _ = io.Copy(w, strings.NewReader(string(body)))
			return
		}
		_, _ = w.Write(body)
	}
	for _, tc := range []struct{ name, level, method, path, contentType, encoding, body, request, response, ref, notes string }{
		{name: "metadata", level: "Metadata", method: "PUT", path: "/a", body: object, ref: "a"},
		{name: "a created object has a name", level: "Metadata", method: "POST", body: object, ref: "a"},
		{name: "so has a large one", level: "Metadata", method: "POST", body: `{"metadata":{"name":"a"},"data":"` + strings.Repeat("x", 2<<20) + `"}`, ref: "a"},
		{name: "one beyond all bounds has none", level: "Metadata", method: "POST", body: `{"metadata":{"name":"a"},"data":"` + strings.Repeat("x", 3<<20) + `"}`, notes: "audit.portico.dev/unread=objectRef"},
		{name: "an unknown encoding hides nothing", level: "Request", method: "POST", encoding: "foo", body: object, request: plain, ref: "a"},
		{name: "nor does a false one", level: "RequestResponse", method: "POST", encoding: "gzip", body: object, request: plain, response: plain, ref: "a"},
		{name: "the answer names what is sent in an unknown form", level: "Request", method: "POST", contentType: "application/msgpack", body: object, ref: "a", notes: "audit.portico.dev/unread=requestObject"},
		{name: "request", level: "Request", method: "POST", body: object, request: plain, ref: "a"},
		{name: "response", level: "RequestResponse", method: "POST", body: object, request: plain, response: plain, ref: "a"},
		{name: "copied response", level: "RequestResponse", method: "PUT", path: "/a?copy=1", body: object, request: plain, response: plain, ref: "a"},
		{name: "watch", level: "RequestResponse", method: "GET", path: "?watch=1", body: object},
		{name: "delete", level: "Request", method: "DELETE", path: "/a", body: `{"propagationPolicy":"Orphan"}`, request: `{"propagationPolicy":"Orphan"}`, ref: "a"},
		{name: "patch", level: "Request", method: "PATCH", path: "/a", contentType: "application/apply-patch+yaml", body: "spec: {x: 1}\n", request: `{"spec":{"x":1}}`, ref: "a"},
		{name: "unknown form", level: "Request", method: "PUT", path: "/a", contentType: "application/msgpack", body: "\x80", ref: "a", notes: "audit.portico.dev/unread=requestObject"},
		{name: "broken", level: "Request", method: "PUT", path: "/a", body: "{", ref: "a", notes: "audit.portico.dev/unread=requestObject"},
		{name: "large", level: "Request", method: "PUT", path: "/a", body: `"` + strings.Repeat("x", 3<<20) + `"`, ref: "a", notes: "audit.k8s.io/truncated=true"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			change, events := auditing(t, "- {level: "+tc.level+", omitStages: [RequestReceived, ResponseStarted], omitManagedFields: true}\n")
			s := newTestServer(t, echo, change)
			r := httptest.NewRequest(tc.method, pathPods+tc.path, strings.NewReader(tc.body))
			if r.Header.Set("Content-Type", tc.contentType); tc.contentType == "" {
				r.Header.Set("Content-Type", "application/json")
			}
			if tc.encoding != "" {
				r.Header.Set("Content-Encoding", tc.encoding)
			}
			w := httptest.NewRecorder()
			s.chain.ServeHTTP(w, r)
			if w.Body.String() != tc.body {
				t.Error("the response was changed")
			}
			got := events()
			if len(got) != 1 {
				t.Fatalf("got %s", told(got))
			}
			e := got[0]
			request, response, notes := raw(e.RequestObject), raw(e.ResponseObject), ""
			for k, v := range e.Annotations {
				if !strings.HasPrefix(k, audit.LatencyPrefix) { // the machine is slow
					notes += k + "=" + v
				}
			}
			if request != tc.request || response != tc.response || e.ObjectRef.Name != tc.ref || notes != tc.notes {
				t.Errorf("got %q %q %q %q", request, response, e.ObjectRef.Name, notes)
			}
		})
	}
}

// raw returns an object of an event; "" without one.
func raw(o *runtime.Unknown) string {
	if o == nil {
		return ""
	}
	return string(o.Raw)
}

// A response to a client that accepts streams of events is in its event unless it is one.
func TestAuditOfStreams(t *testing.T) {
	t.Parallel()
	for answer, want := range map[string]string{
		"application/json":  "ResponseComplete {}",
		"text/event-stream": "ResponseStarted , ResponseComplete ",
	} {
		change, events := auditing(t, "- {level: RequestResponse, omitStages: [RequestReceived]}\n")
		s := newTestServer(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", answer)
			_, _ = io.WriteString(w, "{}")
		}, change, func(c *testConfig) { c.LongRunning = func(*http.Request, *resource.Action) bool { return true } })
		do(s, "GET", pathPods+"/a", "Accept", "text/event-stream, application/json")
		var got []string
		for _, e := range events() {
			got = append(got, string(e.Stage)+" "+raw(e.ResponseObject))
		}
		if got := strings.Join(got, ", "); got != want {
			t.Errorf("%s: got %s", answer, got)
		}
	}
}

// The id of an issued token is in events of every level, and the token only with response bodies.
func TestAuditOfIssuedTokens(t *testing.T) {
	t.Parallel()
	const id = "0f9e"
	token := "e30." + base64.RawURLEncoding.EncodeToString([]byte(`{"jti":"`+id+`"}`)) + ".c2ln"
	for _, tc := range []struct {
		level, path, answer, want string
		shown                     bool
	}{
		{"Metadata", "serviceaccounts/a/token", token, "JTI=" + id, false},
		{"Request", "serviceaccounts/a/token", token, "JTI=" + id, false},
		{"RequestResponse", "serviceaccounts/a/token", token, "JTI=" + id, true},
		{"Metadata", "serviceaccounts/a/token", "opaque", "", false},
		{"Metadata", "serviceaccounts/a/token", "a.b.c", "", false},
		{"Metadata", "pods/a/token", token, "", false},
	} {
		change, events := auditing(t, "- {level: "+tc.level+", omitStages: [RequestReceived]}\n")
		s := newTestServer(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"kind":"TokenRequest","status":{"token":"`+tc.answer+`"}}`)
		}, change)
		do(s, "POST", "/api/v1/namespaces/ns/"+tc.path)
		e := events()[0]
		if got := e.Annotations["authentication.kubernetes.io/issued-credential-id"]; got != tc.want || (e.ResponseObject != nil) != tc.shown {
			t.Errorf("%s of %s: %q, %v", tc.level, tc.path, got, e.ResponseObject)
		}
	}
}
