package admission

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	upstream "k8s.io/apiserver/pkg/authorization/authorizer"

	"portico/resource"
	"portico/resource/authz"
)

func question() upstream.AttributesRecord {
	return upstream.AttributesRecord{
		User: &user.DefaultInfo{Name: "alice", UID: "u-7", Groups: []string{"people"}, Extra: map[string][]string{"scope": {"a"}}},
		Verb: "get", Namespace: "default", APIGroup: "apps", APIVersion: "v1", Resource: "deployments", Subresource: "scale", Name: "x", ResourceRequest: true,
	}
}

// Without an authorizer of the process, expressions send access reviews. Their results are
// not cached.
func TestAccessReview(t *testing.T) {
	var asked authorizationv1.SubjectAccessReview
	result := authorizationv1.SubjectAccessReviewStatus{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost || r.URL.Path != "/apis/authorization.k8s.io/v1/subjectaccessreviews" {
			t.Errorf("%s %s", r.Method, r.URL)
		}
		asked = authorizationv1.SubjectAccessReview{}
		if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
			t.Error(err)
		}
		asked.Status = result
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		_ = json.NewEncoder(w).Encode(asked)
	}))
	e, err := NewEngine(EngineConfig{BaseURL: server.URL, Transport: http.DefaultTransport, Logger: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	for want, status := range map[upstream.Decision]authorizationv1.SubjectAccessReviewStatus{
		upstream.DecisionAllow: {Allowed: true, Reason: "because"}, upstream.DecisionDeny: {Denied: true, Reason: "because"}, upstream.DecisionNoOpinion: {Reason: "because"},
	} {
		result = status
		decision, reason, err := e.authorizer.Authorize(t.Context(), question())
		if decision != want || reason != "because" || err != nil {
			t.Errorf("%v: %v %q %v", want, decision, reason, err)
		}
	}
	if a := asked.Spec.ResourceAttributes; asked.Spec.User != "alice" || asked.Spec.Groups[0] != "people" || a.Resource != "deployments" || a.Subresource != "scale" || a.Namespace != "default" {
		t.Errorf("sent %+v", asked.Spec)
	}
	server.Close()
	if decision, _, err := e.authorizer.Authorize(t.Context(), question()); decision != upstream.DecisionNoOpinion || err == nil {
		t.Errorf("no response: %v, %v", decision, err)
	}
}

// With an authorizer of the process, expressions use it.
func TestLocalAuthorizer(t *testing.T) {
	for answer, want := range map[authz.Decision]upstream.Decision{
		authz.Allow: upstream.DecisionAllow, authz.Deny: upstream.DecisionDeny, authz.NoOpinion: upstream.DecisionNoOpinion,
	} {
		var asked *resource.Action
		local := authz.Func(func(_ context.Context, a *resource.Action) (authz.Decision, string, error) {
			asked = a
			return answer, "because", nil
		})
		e, err := NewEngine(EngineConfig{Transport: http.DefaultTransport, Authorizer: local, Logger: quiet()})
		if err != nil {
			t.Fatal(err)
		}
		decision, reason, err := e.authorizer.Authorize(t.Context(), question())
		if decision != want || reason != "because" || err != nil {
			t.Errorf("%v: %v %q %v", answer, decision, reason, err)
		}
		if asked.User.Name != "alice" || asked.User.Extra["scope"][0] != "a" || asked.Group != "apps" || asked.Subresource != "scale" || !asked.IsResource || asked.Name != "x" {
			t.Errorf("asked %+v", asked)
		}
	}
}

// Without a gateway, access reviews fail.
func TestNoAuthorizer(t *testing.T) {
	e, err := NewEngine(EngineConfig{Store: func(*resource.Info) resource.Store { return nil }, Logger: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	if decision, _, err := e.authorizer.Authorize(t.Context(), question()); decision != upstream.DecisionNoOpinion || err == nil {
		t.Errorf("%v, %v", decision, err)
	}
}
