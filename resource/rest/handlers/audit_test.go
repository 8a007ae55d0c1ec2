package handlers

import (
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	auditapi "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"
)

// events is a sink that keeps the last event.
type events struct{ last *auditapi.Event }

func (e *events) ProcessEvents(all ...*auditapi.Event) bool {
	e.last = all[len(all)-1].DeepCopy()
	return true
}

// Audit gets the name in the body of a create, and that a deletion is unsafe, also if it is
// rejected.
func TestAuditOfWrites(t *testing.T) {
	b := newWriteBench(t)
	for _, tc := range []struct{ method, path, body, name, uid, revision, note string }{
		{"POST", inDefault + "configmaps", `{"metadata":{"name":"a"}}`, "a", "", "", ""},
		{"PUT", configMapA, `{"metadata":{"name":"a","uid":"u","resourceVersion":"7"}}`, "", "u", "7", ""},
		{"POST", inDefault + "configmaps", `{"metadata":{"generateName":"g"}}`, "", "", "", ""},
		{"POST", inDefault + "configmaps", `{"metadata":`, "", "", "", ""},
		{"DELETE", configMapA, `{"ignoreStoreReadErrorWithClusterBreakingPotential":true}`, "", "", "", "apiserver.k8s.io/unsafe-delete-ignore-read-error"},
		{"DELETE", configMapA, ``, "", "", "", ""},
	} {
		ctx, sink := audit.WithAuditContext(t.Context()), &events{}
		if err := audit.AuditContextFrom(ctx).Init(audit.RequestAuditConfig{Level: auditapi.LevelMetadata}, sink); err != nil {
			t.Fatal(err)
		}
		r := httptest.NewRequest(tc.method, tc.path, strings.NewReader(tc.body)).WithContext(ctx)
		r.Header.Set("Content-Type", runtime.ContentTypeJSON)
		b.Config.Handler.ServeHTTP(httptest.NewRecorder(), r)
		audit.AuditContextFrom(ctx).ProcessEventStage(ctx, auditapi.StageResponseComplete)
		ref := auditapi.ObjectReference{}
		if sink.last.ObjectRef != nil {
			ref = *sink.last.ObjectRef
		}
		if tc.method == "PUT" {
			ref.Name = "" // the path has it
		}
		if ref.Name != tc.name || string(ref.UID) != tc.uid || ref.ResourceVersion != tc.revision || sink.last.RequestObject != nil {
			t.Errorf("%s %s: got %+v, %v", tc.method, tc.body, ref, sink.last.RequestObject)
		}
		if _, noted := sink.last.Annotations[tc.note]; noted != (tc.note != "") || len(sink.last.Annotations) > 1 {
			t.Errorf("%s %s: got %v", tc.method, tc.body, sink.last.Annotations)
		}
	}
}

// Requests for a deprecated version are marked.
func TestAuditAnnotatesDeprecatedVersions(t *testing.T) {
	b := newOwnBench(t)
	b.configMaps.Deprecated = func(string) string { return "it is deprecated" }
	for path, want := range map[string]string{"configmaps": "true", "services": ""} {
		ctx, sink := audit.WithAuditContext(t.Context()), &events{}
		if err := audit.AuditContextFrom(ctx).Init(audit.RequestAuditConfig{Level: auditapi.LevelMetadata}, sink); err != nil {
			t.Fatal(err)
		}
		b.Config.Handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", inDefault+path, nil).WithContext(ctx))
		audit.AuditContextFrom(ctx).ProcessEventStage(ctx, auditapi.StageResponseComplete)
		if got := sink.last.Annotations["k8s.io/deprecated"]; got != want {
			t.Errorf("%s: got %q", path, got)
		}
	}
}
