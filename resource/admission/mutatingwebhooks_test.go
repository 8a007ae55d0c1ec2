package admission

import (
	"net/http"
	"strings"
	"testing"

	admissionreview "k8s.io/api/admission/v1"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// The patch of a webhook is in the response and in the stored object, without the fields that
// the kind lacks.
func TestMutation(t *testing.T) {
	b := newBench(t)
	labels := newHookServer(t, patching(`[{"op": "add", "path": "/metadata/labels", "value": {"by": "hook"}}, {"op": "add", "path": "/metadata/wheels", "value": 4}]`))
	b.configure(mutatingHooks("hooks", mutatingHook("a.example.com", labels)))
	for body, path := range map[string]string{configMap("x"): configMapsPath, widget("x"): widgetsPath} {
		got := b.must(http.MethodPost, path, body)
		if _, found, _ := unstructured.NestedInt64(got.Object, "metadata", "wheels"); found && path == configMapsPath || text(got, "metadata", "labels", "by") != "hook" {
			t.Errorf("created %v", got)
		}
		if got := b.must(http.MethodGet, path+"/x", ""); text(got, "metadata", "labels", "by") != "hook" {
			t.Errorf("stored %v", got)
		}
	}
}

// A patched object is pruned, defaulted and validated like a request, in the version of the
// webhook.
func TestPatchedObjectIsPrunedAndDefaulted(t *testing.T) {
	b := newBench(t)
	hook := newHookServer(t, patching(`[{"op": "replace", "path": "/spec", "value": {"size": 7, "wheels": 4}}]`))
	for _, version := range []string{"v1", "v2"} {
		b.configure(mutatingHooks("hooks", mutatingHook("a.example.com", hook, func(h *admissionv1.MutatingWebhook) {
			h.Rules[0].APIVersions = []string{version}
		})))
		got := b.must(http.MethodPost, widgetsPath, widget("x-"+version))
		spec := got.Object["spec"].(map[string]any)
		if len(spec) != 2 || spec["size"] != int64(7) || spec["color"] != "grey" || got.GetAPIVersion() != "example.com/v1" {
			t.Errorf("%s: created %v", version, got)
		}
		if asked := hook.asked(); len(asked) != 1 || asked[0].Request.Kind.Version != version {
			t.Errorf("%s: asked %+v", version, asked)
		}
	}
	b.configure(mutatingHooks("hooks", mutatingHook("a.example.com", newHookServer(t, patching(`[{"op": "replace", "path": "/kind", "value": "Gadget"}]`)))))
	_, status := b.do(http.MethodPost, widgetsPath, widget("other"))
	if status == nil || status.Code != 500 || !strings.HasPrefix(status.Message, "Internal error occurred: ") {
		t.Errorf("another kind: %+v", status)
	}
}

// Webhooks with reinvocation that were called before a change are called once more.
func TestReinvocation(t *testing.T) {
	b := newBench(t)
	first := newHookServer(t, patching(`[{"op": "add", "path": "/data/first", "value": "1"}]`))
	never, second := newHookServer(t, allow), newHookServer(t, func(r *admissionreview.AdmissionRequest) *admissionreview.AdmissionResponse {
		return patching(`[{"op": "add", "path": "/data/second", "value": "` + string(r.UID) + `"}]`)(r)
	})
	again := func(h *admissionv1.MutatingWebhook) {
		h.ReinvocationPolicy = new(admissionv1.IfNeededReinvocationPolicy)
	}
	b.configure(mutatingHooks("hooks", mutatingHook("a.example.com", first, again), mutatingHook("b.example.com", never), mutatingHook("c.example.com", second, again)))
	got := b.must(http.MethodPost, configMapsPath, configMap("x"))
	if a, n, c := len(first.asked()), len(never.asked()), len(second.asked()); a != 2 || n != 1 || c != 1 {
		t.Errorf("asked %d, %d and %d times", a, n, c)
	}
	if text(got, "data", "first") != "1" || text(got, "data", "second") == "" {
		t.Errorf("%v", got)
	}
}

// Rejections, patches of deletions and invalid patches are errors.
func TestMutatingWebhookErrors(t *testing.T) {
	b := newBench(t)
	b.must(http.MethodPost, configMapsPath, configMap("old"))
	b.configure(mutatingHooks("hooks", mutatingHook("a.example.com", newHookServer(t, deny("not today")))))
	b.refused(http.MethodPost, configMapsPath, configMap("x"), 400, `admission webhook "a.example.com" denied the request: not today`)
	b.configure(mutatingHooks("hooks", mutatingHook("a.example.com", newHookServer(t, patching(`[{"op": "add", "path": "/data/b", "value": "2"}]`)))))
	b.refused(http.MethodDelete, configMapsPath+"/old", "", 500,
		`Internal error occurred: admission webhook "a.example.com" attempted to modify the object, which is not supported for this operation`)
	b.configure(mutatingHooks("hooks", mutatingHook("a.example.com", newHookServer(t, patching(`{`)))))
	_, status := b.do(http.MethodPost, widgetsPath, widget("x"))
	if status == nil || status.Code != 500 || !strings.HasPrefix(status.Message, `Internal error occurred: failed calling webhook "a.example.com": received undecodable patch in webhook response:`) {
		t.Errorf("%+v", status)
	}
}

// Defaults are set between webhooks, in their version.
func TestDefaultsBetweenWebhooks(t *testing.T) {
	b := newBench(t)
	second := newHookServer(t, allow)
	v2 := func(h *admissionv1.MutatingWebhook) { h.Rules[0].APIVersions = []string{"v2"} }
	b.configure(mutatingHooks("hooks", mutatingHook("a.example.com", newHookServer(t, patching(`[{"op": "remove", "path": "/spec/color"}]`)), v2),
		mutatingHook("b.example.com", second, v2)))
	b.must(http.MethodPost, widgetsPath, widget("x"))
	asked := second.asked()
	if len(asked) != 1 {
		t.Fatalf("asked %d times", len(asked))
	}
	obj := string(asked[0].Request.Object.Raw)
	if !strings.Contains(obj, `"color":"grey"`) || !strings.Contains(obj, `"apiVersion":"example.com/v2"`) {
		t.Error(obj)
	}
}
