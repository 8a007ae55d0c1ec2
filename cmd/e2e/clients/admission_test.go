package clients

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"portico/cmd/e2e"
)

// errNotYet makes Eventually try again.
var errNotYet = errors.New("not yet")

// writesOf returns rules for writes of ConfigMaps and of the widgets of a group.
func writesOf(group string) []admissionregistrationv1.RuleWithOperations {
	every := []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update}
	return []admissionregistrationv1.RuleWithOperations{
		{Operations: every, Rule: admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}}},
		{Operations: every, Rule: admissionregistrationv1.Rule{APIGroups: []string{group}, APIVersions: []string{"v1"}, Resources: []string{"widgets"}}},
	}
}

// labelling starts a mutating webhook that labels every object.
func labelling(t *testing.T) *httptest.Server {
	t.Helper()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		review := &admissionv1.AdmissionReview{}
		if err := json.NewDecoder(r.Body).Decode(review); err != nil || review.Request == nil {
			http.Error(w, "no review", http.StatusBadRequest)
			return
		}
		kind := admissionv1.PatchTypeJSONPatch
		review.Response = &admissionv1.AdmissionResponse{
			UID: review.Request.UID, Allowed: true, PatchType: &kind, Warnings: []string{"labelled"},
			Patch: []byte(`[{"op":"add","path":"/metadata/labels","value":{"seen":"` + string(review.Request.Operation) + `"}}]`),
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(review) // the client reports a failed write
	}))
	t.Cleanup(server.Close)
	return server
}

// Webhooks and policies, which the core server stores, apply to writes of the core and of the
// CRD server.
func TestAdmission(t *testing.T) {
	t.Parallel()
	const group = "admission.example.com"
	up := e2e.SharedInstallation(t)
	client := up.Client(t)
	ns := e2e.NewNamespace(t, client)
	dynamic := e2e.DynamicClient(t, up.Config(t))
	w := e2e.Define(t, dynamic, group).Namespace(ns)
	maps := client.CoreV1().ConfigMaps(ns)
	hook := labelling(t)
	none, fail, url := admissionregistrationv1.SideEffectClassNone, admissionregistrationv1.Fail, hook.URL
	configuration := &admissionregistrationv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "label"},
		Webhooks: []admissionregistrationv1.MutatingWebhook{{
			Name: "label.example.com", SideEffects: &none, FailurePolicy: &fail, AdmissionReviewVersions: []string{"v1"}, Rules: writesOf(group),
			ClientConfig: admissionregistrationv1.WebhookClientConfig{
				URL: &url, CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: hook.Certificate().Raw}),
			},
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: ns}},
		}},
	}
	configurations := client.AdmissionregistrationV1().MutatingWebhookConfigurations()
	if _, err := configurations.Create(t.Context(), configuration, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := configurations.Delete(context.Background(), configuration.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	}()
	e2e.Eventually(t, "the webhook labels widgets", func() error {
		_ = w.Delete(t.Context(), "a", metav1.DeleteOptions{})
		made, err := w.Create(t.Context(), e2e.Widget(group, "a"), metav1.CreateOptions{})
		if err == nil && made.GetLabels()["seen"] != "CREATE" {
			err = errNotYet
		}
		return err
	})
	// Core and the CRD server observe configurations independently of each other.
	e2e.Eventually(t, "the webhook labels configmaps", func() error {
		_ = maps.Delete(t.Context(), "a", metav1.DeleteOptions{})
		made, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, metav1.CreateOptions{})
		if err == nil && made.Labels["seen"] != "CREATE" {
			err = errNotYet
		}
		return err
	})

	policy(t, up, group)
	big := func(name string) *unstructured.Unstructured {
		o := e2e.Widget(group, name)
		o.SetAnnotations(map[string]string{"size": "big"})
		return o
	}
	e2e.Eventually(t, "the policy refuses big widgets", func() error {
		_ = w.Delete(t.Context(), "b", metav1.DeleteOptions{})
		if _, err := w.Create(t.Context(), big("b"), metav1.CreateOptions{}); apierrors.IsForbidden(err) || apierrors.IsInvalid(err) {
			if !strings.Contains(err.Error(), "ValidatingAdmissionPolicy 'small' with binding 'small' denied request: nothing big") {
				t.Fatal(err)
			}
			return nil
		}
		return errNotYet
	})
	e2e.Eventually(t, "the policy refuses big configmaps", func() error {
		_ = maps.Delete(t.Context(), "b", metav1.DeleteOptions{})
		_, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "b", Annotations: map[string]string{"size": "big"}}}, metav1.CreateOptions{})
		if err == nil {
			return errNotYet
		}
		if !strings.Contains(err.Error(), "nothing big") {
			t.Fatal(err)
		}
		return nil
	})

	// A required webhook that does not respond fails writes, and nothing else.
	hook.Close()
	if _, err := w.Create(t.Context(), e2e.Widget(group, "c"), metav1.CreateOptions{}); !apierrors.IsInternalError(err) || !strings.Contains(err.Error(), `failed calling webhook "label.example.com"`) {
		t.Errorf("with the webhook closed: %v", err)
	}
	if _, err := w.Get(t.Context(), "a", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
}

// policy denies objects with the annotation size=big.
func policy(t *testing.T, up *e2e.Installation, group string) {
	t.Helper()
	var rules []admissionregistrationv1.NamedRuleWithOperations
	for _, r := range writesOf(group) {
		rules = append(rules, admissionregistrationv1.NamedRuleWithOperations{RuleWithOperations: r})
	}
	api := up.Client(t).AdmissionregistrationV1()
	if _, err := api.ValidatingAdmissionPolicies().Create(t.Context(), &admissionregistrationv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "small"},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionregistrationv1.MatchResources{ResourceRules: rules},
			Validations: []admissionregistrationv1.Validation{{
				Expression: "!has(object.metadata.annotations) || !('size' in object.metadata.annotations) || object.metadata.annotations.size != 'big'",
				Message:    "nothing big",
			}},
		},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := api.ValidatingAdmissionPolicyBindings().Create(t.Context(), &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "small"},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: "small", ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
		},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}
