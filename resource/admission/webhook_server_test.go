package admission

import (
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	admissionreview "k8s.io/api/admission/v1"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// hookServer is a webhook server over TLS that records its requests.
type hookServer struct {
	*httptest.Server
	mu      sync.Mutex
	reviews []*admissionreview.AdmissionReview
	queries []string
}

// newHookServer starts a webhook server with the responses of answer, and their uid. A nil
// response is a 500.
func newHookServer(t testing.TB, answer func(*admissionreview.AdmissionRequest) *admissionreview.AdmissionResponse) *hookServer {
	s := &hookServer{}
	s.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		review := &admissionreview.AdmissionReview{}
		if err := json.NewDecoder(r.Body).Decode(review); err != nil {
			t.Error(err)
		}
		s.mu.Lock()
		s.reviews, s.queries = append(s.reviews, review), append(s.queries, r.URL.RawQuery)
		s.mu.Unlock()
		response := answer(review.Request)
		if response == nil {
			http.Error(w, "out of order", http.StatusInternalServerError)
			return
		}
		if response.UID == "" {
			response.UID = review.Request.UID
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(&admissionreview.AdmissionReview{TypeMeta: review.TypeMeta, Response: response})
	}))
	t.Cleanup(s.Close)
	return s
}

// asked returns the reviews since the last call.
func (s *hookServer) asked() []*admissionreview.AdmissionReview {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.reviews
	s.reviews = nil
	return out
}

func (s *hookServer) clientConfig() admissionv1.WebhookClientConfig {
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	return admissionv1.WebhookClientConfig{URL: new(s.URL + "/admit"), CABundle: ca}
}

func allow(*admissionreview.AdmissionRequest) *admissionreview.AdmissionResponse {
	return &admissionreview.AdmissionResponse{Allowed: true}
}

func deny(message string) func(*admissionreview.AdmissionRequest) *admissionreview.AdmissionResponse {
	return func(*admissionreview.AdmissionRequest) *admissionreview.AdmissionResponse {
		return &admissionreview.AdmissionResponse{Result: &metav1.Status{Message: message}}
	}
}

func patching(patch string) func(*admissionreview.AdmissionRequest) *admissionreview.AdmissionResponse {
	return func(*admissionreview.AdmissionRequest) *admissionreview.AdmissionResponse {
		return &admissionreview.AdmissionResponse{Allowed: true, Patch: []byte(patch), PatchType: new(admissionreview.PatchTypeJSONPatch)}
	}
}

// everything matches all writes of these tests.
func everything() []admissionv1.RuleWithOperations {
	return []admissionv1.RuleWithOperations{{
		Operations: []admissionv1.OperationType{admissionv1.OperationAll},
		Rule:       admissionv1.Rule{APIGroups: []string{"", widgetGroup}, APIVersions: []string{"*"}, Resources: []string{"configmaps", "widgets", "widgets/status", "namespaces"}, Scope: new(admissionv1.AllScopes)},
	}}
}

// validatingHook is a webhook with all defaults.
func validatingHook(name string, s *hookServer, change ...func(*admissionv1.ValidatingWebhook)) admissionv1.ValidatingWebhook {
	h := admissionv1.ValidatingWebhook{
		Name: name, ClientConfig: s.clientConfig(), Rules: everything(), FailurePolicy: new(admissionv1.Fail), MatchPolicy: new(admissionv1.Equivalent),
		NamespaceSelector: &metav1.LabelSelector{}, ObjectSelector: &metav1.LabelSelector{}, SideEffects: new(admissionv1.SideEffectClassNone),
		TimeoutSeconds: new(int32(10)), AdmissionReviewVersions: []string{"v1"},
	}
	for _, c := range change {
		c(&h)
	}
	return h
}

func validatingHooks(name string, hooks ...admissionv1.ValidatingWebhook) *admissionv1.ValidatingWebhookConfiguration {
	return &admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: name}, Webhooks: hooks}
}

// mutatingHook is a webhook with all defaults.
func mutatingHook(name string, s *hookServer, change ...func(*admissionv1.MutatingWebhook)) admissionv1.MutatingWebhook {
	h := admissionv1.MutatingWebhook{
		Name: name, ClientConfig: s.clientConfig(), Rules: everything(), FailurePolicy: new(admissionv1.Fail), MatchPolicy: new(admissionv1.Equivalent),
		NamespaceSelector: &metav1.LabelSelector{}, ObjectSelector: &metav1.LabelSelector{}, SideEffects: new(admissionv1.SideEffectClassNone),
		TimeoutSeconds: new(int32(10)), AdmissionReviewVersions: []string{"v1"}, ReinvocationPolicy: new(admissionv1.NeverReinvocationPolicy),
	}
	for _, c := range change {
		c(&h)
	}
	return h
}

func mutatingHooks(name string, hooks ...admissionv1.MutatingWebhook) *admissionv1.MutatingWebhookConfiguration {
	return &admissionv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: name}, Webhooks: hooks}
}
