package clients

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
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
	up.MustKubectl(t, "create", "namespace", "audited")
	up.MustKubectl(t, "label", "namespace", "audited", "pod-security.kubernetes.io/audit=restricted")
	up.MustKubectl(t, "run", "p", "--namespace=audited", "--image=i", "--overrides", `{"spec":{"automountServiceAccountToken":false}}`, "--dry-run=server")
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
	// The core server, which admits the pod, relays the annotation.
	if !strings.Contains(string(text), `"pod-security.kubernetes.io/audit-violations":"would violate PodSecurity`) {
		t.Error("no event has the annotation of the admission plugin PodSecurity")
	}
	const admin, maps = "portico:admin as ", "/api/v1/namespaces/default/configmaps"
	for _, want := range []audited{
		{admin + " create " + maps + " a ResponseComplete 201 ", `"data":{"k":"v"}`, ""},
		{admin + " patch " + maps + "/a a ResponseComplete 200 ", `"l":"v"`, `"labels":{"l":"v"}`},
		{admin + " create /api/v1/namespaces/default/secrets s ResponseComplete 201 ", "", ""},
		{admin + "jane get " + maps + "/a a ResponseComplete 403 Forbidden", "", ""},
		{admin + " delete " + maps + "/a a ResponseComplete 200 ", `"propagationPolicy":"Orphan"`, ""},
		{" as  list " + maps + "  ResponseStarted 401 ", "", ""},
		{admin + " watch " + maps + " wtrue ResponseStarted 200 ", "", ""},
		{admin + " watch " + maps + " wtrue ResponseComplete 200 ", "", ""},
		{admin + " watch " + maps + " wfalse ResponseComplete 200 ", "", ""},
	} {
		found := false
		for line := range strings.Lines(string(text)) {
			found = found || want.is(t, line)
		}
		if !found {
			t.Errorf("the log does not have %+v", want)
		}
	}
	if t.Failed() {
		t.Logf("the log:\n%s", text)
	}
}

// audited is an event that the audit log must have.
type audited struct {
	what              string // user as user, verb, path, name, stage, code and reason
	request, response string // part of it; "" is no object
}

// is reports whether a line of the log is the event.
func (a audited) is(t *testing.T, line string) bool {
	t.Helper()
	e := auditv1.Event{
		ImpersonatedUser: &authenticationv1.UserInfo{}, ObjectRef: &auditv1.ObjectReference{}, ResponseStatus: &metav1.Status{},
		RequestObject: &runtime.Unknown{}, ResponseObject: &runtime.Unknown{},
	}
	if err := json.Unmarshal([]byte(line), &e); err != nil {
		t.Fatalf("%v: %s", err, line)
	}
	path, _, _ := strings.Cut(e.RequestURI, "?")
	part := func(of []byte, want string) bool {
		return (len(of) == 0) == (want == "") && strings.Contains(string(of), want)
	}
	what := fmt.Sprintf("%s as %s %s %s %s %s %d %s", e.User.Username, e.ImpersonatedUser.Username, e.Verb, path, e.ObjectRef.Name, e.Stage, e.ResponseStatus.Code, e.ResponseStatus.Reason)
	return a.what == what && part(e.RequestObject.Raw, a.request) && part(e.ResponseObject.Raw, a.response)
}
