package e2e

import (
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
)

// Admission is the path of the admission configurations.
const Admission = "/apis/admissionregistration.k8s.io/v1/"

// StartWebhook starts an admission webhook with the responses of respond, without their UID.
func StartWebhook(t *testing.T, respond func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse) *httptest.Server {
	t.Helper()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		review := &admissionv1.AdmissionReview{}
		if err := json.NewDecoder(r.Body).Decode(review); err != nil || review.Request == nil {
			http.Error(w, "no review", http.StatusBadRequest)
			return
		}
		review.Response = respond(review.Request)
		review.Response.UID = review.Request.UID
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(review) // the client reports a failed write
	}))
	t.Cleanup(server.Close)
	return server
}

// CallWebhook makes the MutatingWebhookConfiguration name, which calls a webhook for creates that
// match a rule, in namespaces that match a selector. Groups, resources and the selector are JSON.
func CallWebhook(t *testing.T, up *Installation, name string, webhook *httptest.Server, groups, resources, selector string) {
	t.Helper()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: webhook.Certificate().Raw})
	up.Post(t, Admission+"mutatingwebhookconfigurations", fmt.Sprintf(`{"metadata":{"name":%q},"webhooks":[
		{"name":"%[1]s.example.com","sideEffects":"None","failurePolicy":"Fail","admissionReviewVersions":["v1"],"namespaceSelector":%[2]s,
		 "rules":[{"apiGroups":%[3]s,"apiVersions":["*"],"resources":%[4]s,"operations":["CREATE"]}],"clientConfig":{"url":%[5]q,"caBundle":%[6]q}}]}`,
		name, selector, groups, resources, webhook.URL, base64.StdEncoding.EncodeToString(ca)))
}

// Policy makes a ValidatingAdmissionPolicy with its binding: writes of the groups and resources,
// which are JSON, must satisfy the expression.
func Policy(t *testing.T, up *Installation, name, groups, resources, expression, message string) {
	t.Helper()
	up.Post(t, Admission+"validatingadmissionpolicies", fmt.Sprintf(`{"metadata":{"name":%q},"spec":{"failurePolicy":"Fail",
		"matchConstraints":{"resourceRules":[{"apiGroups":%s,"apiVersions":["*"],"resources":%s,"operations":["CREATE","UPDATE"]}]},
		"validations":[{"expression":%q,"message":%q}]}}`, name, groups, resources, expression, message))
	up.Post(t, Admission+"validatingadmissionpolicybindings", fmt.Sprintf(
		`{"metadata":{"name":%q},"spec":{"policyName":%[1]q,"validationActions":["Deny"]}}`, name))
}
