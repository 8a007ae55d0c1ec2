package clients

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico/cmd/e2e"
)

// errNotYet makes Eventually try again.
var errNotYet = errors.New("not yet")

// labelling starts a mutating webhook that labels every object.
func labelling(t *testing.T) *httptest.Server {
	t.Helper()
	return e2e.StartWebhook(t, func(r *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		return &admissionv1.AdmissionResponse{
			Allowed: true, PatchType: new(admissionv1.PatchTypeJSONPatch), Warnings: []string{"labelled"},
			Patch: []byte(`[{"op":"add","path":"/metadata/labels","value":{"seen":"` + string(r.Operation) + `"}}]`),
		}
	})
}

// Webhooks and policies, which the core server stores, apply to writes of the core and of the
// CRD server, which observe them independently of each other. A required webhook that does not
// respond fails writes, and nothing else.
func TestAdmission(t *testing.T) {
	t.Parallel()
	const group = "admission.example.com"
	up := e2e.SharedInstallation(t)
	client := up.Client(t)
	ns := e2e.NewNamespace(t, client)
	w := e2e.Define(t, e2e.DynamicClient(t, up.Config(t)), group).Namespace(ns)
	maps := client.CoreV1().ConfigMaps(ns)
	// create creates a widget and a ConfigMap, and returns their labels and errors.
	create := func(name, size string) (labels [2]map[string]string, errs [2]error) {
		_ = w.Delete(t.Context(), name, metav1.DeleteOptions{})
		_ = maps.Delete(t.Context(), name, metav1.DeleteOptions{})
		widget := e2e.Widget(group, name)
		widget.SetAnnotations(map[string]string{"size": size})
		made, err := w.Create(t.Context(), widget, metav1.CreateOptions{})
		if errs[0] = err; err == nil {
			labels[0] = made.GetLabels()
		}
		cm, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: widget.GetAnnotations()}}, metav1.CreateOptions{})
		if errs[1] = err; err == nil {
			labels[1] = cm.Labels
		}
		return labels, errs
	}
	hook := labelling(t)
	e2e.CallWebhook(t, up, "label", hook, `["","`+group+`"]`, `["configmaps","widgets"]`, `{"matchLabels":{"kubernetes.io/metadata.name":"`+ns+`"}}`)
	defer up.Do(t, http.MethodDelete, e2e.Admission+"mutatingwebhookconfigurations/label", "")
	e2e.Eventually(t, "the webhook labels widgets and configmaps", func() error {
		labels, errs := create("a", "small")
		if err := errors.Join(errs[:]...); err != nil || labels[0]["seen"] != "CREATE" || labels[1]["seen"] != "CREATE" {
			return errors.Join(errNotYet, err)
		}
		return nil
	})
	e2e.Policy(t, up, "small", `["","`+group+`"]`, `["configmaps","widgets"]`,
		"!has(object.metadata.annotations) || !('size' in object.metadata.annotations) || object.metadata.annotations.size != 'big'", "nothing big")
	e2e.Eventually(t, "the policy refuses big ones", func() error {
		_, errs := create("b", "big")
		for _, err := range errs {
			if err == nil || !strings.Contains(err.Error(), "ValidatingAdmissionPolicy 'small' with binding 'small' denied request: nothing big") {
				return errors.Join(errNotYet, err)
			}
		}
		return nil
	})

	hook.Close()
	_, errs := create("c", "small")
	for _, err := range errs {
		if !apierrors.IsInternalError(err) || !strings.Contains(err.Error(), `failed calling webhook "label.example.com"`) {
			t.Errorf("with the webhook closed: %v", err)
		}
	}
	if _, err := w.Get(t.Context(), "a", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
}
