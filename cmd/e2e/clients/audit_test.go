package clients

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/rest"

	"portico/cmd/e2e"
)

const auditPolicy = `
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
omitManagedFields: true
rules:
- {level: None, nonResourceURLs: ["/readyz*", "/metrics"]}
- {level: Metadata, resources: [{group: "", resources: [secrets]}]}
- {level: RequestResponse, verbs: [patch]}
- {level: Request, verbs: [create, update, delete]}
- {level: Metadata}
`

// sendAuditedRequests sends the requests that checkAuditLog expects in the audit log. One of its
// two watches stays open.
func sendAuditedRequests(t *testing.T, up *e2e.Installation) {
	t.Helper()
	up.MustKubectl(t, "create", "configmap", "a", "--from-literal=k=v")
	up.MustKubectl(t, "label", "configmap", "a", "l=v")
	up.MustKubectl(t, "create", "secret", "generic", "s", "--from-literal=password=hidden")
	if _, err := up.Kubectl(t, "get", "configmap", "a", "--as=jane", "--as-group=dev"); err == nil {
		t.Error("jane may read everything")
	}
	up.MustKubectl(t, "delete", "configmap", "a", "--cascade=orphan", "--wait=false")
	anonymous := rest.AnonymousClientConfig(up.Config(t))
	anonymous.BearerToken = "wrong"
	if code, _ := e2e.Get(t, e2e.HTTPClient(t, anonymous), up.Endpoint+"/api/v1/namespaces/default/configmaps", ""); code != http.StatusUnauthorized {
		t.Errorf("a wrong token: got %d", code)
	}
	for _, ends := range []bool{true, false} {
		ctx, cancel := context.WithCancel(t.Context())
		w, err := up.Client(t).CoreV1().ConfigMaps("default").Watch(ctx, metav1.ListOptions{FieldSelector: fmt.Sprintf("metadata.name=w%v", ends)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { cancel(); w.Stop() })
		if ends {
			cancel()
		}
	}
	_, metrics := up.Do(t, http.MethodGet, "/metrics", "")
	for _, want := range []string{"apiserver_audit_event_total ", `apiserver_audit_level_total{level="Metadata"} `, "apiserver_audit_requests_rejected_total 0"} {
		if !strings.Contains(metrics, want) {
			t.Errorf("/metrics has no %s", want)
		}
	}
}

// checkAuditLog checks the audit log of a stopped installation.
func checkAuditLog(t *testing.T, file string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(text), "hidden") || strings.Contains(string(text), "managedFields") {
		t.Error("the log has fields that the policy excludes")
	}
	const maps = "/api/v1/namespaces/default/configmaps"
	for _, want := range []audited{
		{user: "portico:admin", verb: "create", uri: maps, stage: "ResponseComplete", code: 201, name: "a", request: `"data":{"k":"v"}`},
		{user: "portico:admin", verb: "patch", uri: maps + "/a", stage: "ResponseComplete", code: 200, name: "a", request: `"l":"v"`, response: `"labels":{"l":"v"}`},
		{user: "portico:admin", verb: "create", uri: "/api/v1/namespaces/default/secrets", stage: "ResponseComplete", code: 201, name: "s"},
		{user: "portico:admin", as: "jane", verb: "get", uri: maps + "/a", stage: "ResponseComplete", code: 403, name: "a", reason: metav1.StatusReasonForbidden},
		{user: "portico:admin", verb: "delete", uri: maps + "/a", stage: "ResponseComplete", code: 200, name: "a", request: `"propagationPolicy":"Orphan"`},
		{verb: "list", uri: maps, stage: "ResponseStarted", code: 401},
		{user: "portico:admin", verb: "watch", uri: maps + "?fieldSelector=metadata.name%3Dwtrue", stage: "ResponseStarted", code: 200, name: "wtrue"},
		{user: "portico:admin", verb: "watch", uri: maps + "?fieldSelector=metadata.name%3Dwtrue", stage: "ResponseComplete", code: 200, name: "wtrue"},
		{user: "portico:admin", verb: "watch", uri: maps + "?fieldSelector=metadata.name%3Dwfalse", stage: "ResponseComplete", code: 200, name: "wfalse"},
	} {
		if !want.in(t, string(text)) {
			t.Errorf("the log does not have %+v", want)
		}
	}
	if t.Failed() {
		t.Logf("the log:\n%s", text)
	}
}

// audited is an event that the audit log must have.
type audited struct {
	user, as, verb, uri string
	stage               auditv1.Stage
	code                int32
	reason              metav1.StatusReason
	name                string
	request, response   string // part of it; "" is no object
}

// in reports whether the log has the event.
func (a audited) in(t *testing.T, log string) bool {
	t.Helper()
	for line := range strings.Lines(log) {
		var e auditv1.Event
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		if a.is(&e) {
			return true
		}
	}
	return false
}

func (a audited) is(e *auditv1.Event) bool {
	as, request, response, name := "", "", "", ""
	if e.ImpersonatedUser != nil {
		as = e.ImpersonatedUser.Username
	}
	if e.RequestObject != nil {
		request = string(e.RequestObject.Raw)
	}
	if e.ResponseObject != nil {
		response = string(e.ResponseObject.Raw)
	}
	if e.ObjectRef != nil {
		name = e.ObjectRef.Name
	}
	uri, rest, _ := strings.Cut(e.RequestURI, "?")
	if strings.Contains(a.uri, "?") && strings.Contains(rest, "watch") {
		uri, _, _ = strings.Cut(e.RequestURI, "&")
	}
	same := e.User.Username == a.user && as == a.as && e.Verb == a.verb && uri == a.uri && e.Stage == a.stage &&
		e.ResponseStatus != nil && e.ResponseStatus.Code == a.code && (a.reason == "" || e.ResponseStatus.Reason == a.reason)
	return same && name == a.name && part(request, a.request) && part(response, a.response)
}

func part(of, want string) bool { return (of == "") == (want == "") && strings.Contains(of, want) }
