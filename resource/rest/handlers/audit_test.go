package handlers

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"portico/resource"
	"portico/resource/audit"
)

// auditedContext has the values of an audited request.
type auditedContext struct {
	context.Context
	audited *audit.Request
}

func (c auditedContext) Value(key any) any {
	if v := c.audited.Value(key); v != nil {
		return v
	}
	return c.Context.Value(key)
}

// audited sends a request and returns its audit event.
func (b *bench) audited(method, path, body string) *auditv1.Event {
	b.t.Helper()
	dir, o := b.t.TempDir(), audit.DefaultOptions()
	o.PolicyFile, o.Log.Path, o.Log.MaxSize = filepath.Join(dir, "policy.yaml"), filepath.Join(dir, "audit.log"), 0
	const policy = "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules: [{level: Metadata}]\n"
	must := func(err error) {
		b.t.Helper()
		if err != nil {
			b.t.Fatal(err)
		}
	}
	must(os.WriteFile(o.PolicyFile, []byte(policy), 0o600))
	auditor, err := audit.Open(o, nil)
	must(err)
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	r.Header.Set("Content-Type", runtime.ContentTypeJSON)
	q, err := auditor.Begin(r, audit.Arrival{Action: resource.ParseAction(r), Time: time.Now()})
	must(err)
	b.Config.Handler.ServeHTTP(httptest.NewRecorder(), r.WithContext(auditedContext{r.Context(), q}))
	q.End(200, nil)
	text, err := os.ReadFile(o.Log.Path)
	must(err)
	event := new(auditv1.Event)
	must(json.Unmarshal(text, event))
	return event
}

// Audit events have the name in the body of a create, and mark unsafe deletions, also if they
// are rejected.
func TestAuditOfWrites(t *testing.T) {
	b := newBench(t)
	for _, tc := range []struct{ method, path, body, name, uid, revision, note string }{
		{"POST", configMaps, `{"metadata":{"name":"a"}}`, "a", "", "", ""},
		{"PUT", configMapA, `{"metadata":{"name":"a","uid":"u","resourceVersion":"7"}}`, "", "u", "7", ""},
		{"POST", configMaps, `{"metadata":{"generateName":"g"}}`, "", "", "", ""},
		{"POST", configMaps, `{"metadata":`, "", "", "", ""},
		{"DELETE", configMapA, `{"ignoreStoreReadErrorWithClusterBreakingPotential":true}`, "", "", "", "apiserver.k8s.io/unsafe-delete-ignore-read-error"},
		{"DELETE", configMapA, ``, "", "", "", ""},
	} {
		event, ref := b.audited(tc.method, tc.path, tc.body), auditv1.ObjectReference{}
		if event.ObjectRef != nil {
			ref = *event.ObjectRef
		}
		if tc.path == configMapA {
			ref.Name = "" // the path has it
		}
		if ref.Name != tc.name || string(ref.UID) != tc.uid || ref.ResourceVersion != tc.revision || event.RequestObject != nil {
			t.Errorf("%s %s: got %+v, %v", tc.method, tc.body, ref, event.RequestObject)
		}
		if _, noted := event.Annotations[tc.note]; noted != (tc.note != "") || len(event.Annotations) > 1 {
			t.Errorf("%s %s: annotations %v, want %q", tc.method, tc.body, event.Annotations, tc.note)
		}
	}
}

// Every request for a deprecated version has a warning, an audit annotation and one metric for
// its resource (docs/wire.md 1.6).
func TestDeprecatedVersions(t *testing.T) {
	registry := prometheus.NewRegistry()
	b := newBench(t, func(cfg *Config, _ *bench) { cfg.Metrics = registry })
	const text = "v1 is deprecated"
	b.configMaps.Deprecated = func(version string) string { return version + " is deprecated" }
	b.services.Deprecated = func(string) string { return "" }
	series := func() int {
		t.Helper()
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, f := range families {
			if f.GetName() == "apiserver_requested_deprecated_apis" {
				n += len(f.GetMetric())
			}
		}
		return n
	}
	for _, path := range []string{configMaps, configMaps + "/none", inDefault + "services"} {
		want, marked := "", ""
		if path != inDefault+"services" {
			want, marked = text, "true"
		}
		event := b.audited("GET", path, "")
		if got := b.takeWarnings(); got != want || event.Annotations["k8s.io/deprecated"] != marked {
			t.Errorf("%s: warned %q, annotations %v", path, got, event.Annotations)
		}
	}
	if n := series(); n != 1 {
		t.Errorf("%d series of one deprecated resource", n)
	}
	for i := range 2 * maxDeprecated {
		b.api.deprecated.requested(&resource.Action{Group: "a", Version: "v1", Resource: fmt.Sprint(i)})
	}
	if n := series(); n != maxDeprecated {
		t.Errorf("%d series, want at most %d", n, maxDeprecated)
	}
}
