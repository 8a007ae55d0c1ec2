package admission

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"reflect"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apiserver/pkg/authentication/user"
	upstream "k8s.io/apiserver/pkg/authorization/authorizer"

	"portico/resource"
	"portico/resource/authz"
)

func question(t *testing.T) upstream.AttributesRecord {
	t.Helper()
	selector, err := labels.Parse("a=1,b!=2,c,!d,e in (x,y)")
	if err != nil {
		t.Fatal(err)
	}
	requirements, _ := selector.Requirements()
	return upstream.AttributesRecord{
		User: &user.DefaultInfo{Name: "alice", UID: "u-7", Groups: []string{"people"}, Extra: map[string][]string{"scope": {"a"}}},
		Verb: "get", Namespace: "default", APIGroup: "apps", APIVersion: "v1", Resource: "deployments", Subresource: "scale", Name: "x", ResourceRequest: true,
		LabelSelectorRequirements: requirements,
		FieldSelectorRequirements: fields.AndSelectors(fields.OneTermEqualSelector("f", "1"), fields.OneTermNotEqualSelector("g", "2")).Requirements(),
	}
}

func TestAccessReview(t *testing.T) {
	var asked authorizationv1.SubjectAccessReview
	answer := authorizationv1.SubjectAccessReviewStatus{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost || r.URL.Path != "/apis/authorization.k8s.io/v1/subjectaccessreviews" {
			t.Errorf("%s %s", r.Method, r.URL)
		}
		asked = authorizationv1.SubjectAccessReview{}
		if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
			t.Error(err)
		}
		asked.Status = answer
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		_ = json.NewEncoder(w).Encode(asked)
	}))
	e, err := NewEngine(EngineConfig{BaseURL: server.URL, Transport: http.DefaultTransport, Logger: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		status authorizationv1.SubjectAccessReviewStatus
		want   upstream.Decision
	}{
		{authorizationv1.SubjectAccessReviewStatus{Allowed: true, Reason: "because"}, upstream.DecisionAllow},
		{authorizationv1.SubjectAccessReviewStatus{Denied: true, Reason: "because"}, upstream.DecisionDeny},
		{authorizationv1.SubjectAccessReviewStatus{Reason: "because"}, upstream.DecisionNoOpinion},
	} {
		answer = test.status
		decision, reason, err := e.authorizer.Authorize(t.Context(), question(t))
		if decision != test.want || reason != "because" || err != nil {
			t.Errorf("%v: %v %q %v", test.want, decision, reason, err)
		}
	}
	want := authorizationv1.SubjectAccessReviewSpec{
		User: "alice", UID: "u-7", Groups: []string{"people"}, Extra: map[string]authorizationv1.ExtraValue{"scope": {"a"}},
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: "default", Verb: "get", Group: "apps", Version: "v1", Resource: "deployments", Subresource: "scale", Name: "x",
			FieldSelector: &authorizationv1.FieldSelectorAttributes{Requirements: []metav1.FieldSelectorRequirement{
				{Key: "f", Operator: "In", Values: []string{"1"}}, {Key: "g", Operator: "NotIn", Values: []string{"2"}}}},
			LabelSelector: &authorizationv1.LabelSelectorAttributes{Requirements: []metav1.LabelSelectorRequirement{
				{Key: "a", Operator: "In", Values: []string{"1"}}, {Key: "b", Operator: "NotIn", Values: []string{"2"}},
				{Key: "c", Operator: "Exists"}, {Key: "d", Operator: "DoesNotExist"}, {Key: "e", Operator: "In", Values: []string{"x", "y"}}}},
		},
	}
	if !reflect.DeepEqual(asked.Spec, want) {
		t.Errorf("asked %+v", asked.Spec)
	}
	if _, _, err := e.authorizer.Authorize(t.Context(), upstream.AttributesRecord{Verb: "get", Path: "/healthz"}); err != nil || asked.Spec.NonResourceAttributes.Path != "/healthz" {
		t.Errorf("%v, asked %+v", err, asked.Spec)
	}
	server.Close()
	if decision, _, err := e.authorizer.Authorize(t.Context(), question(t)); decision != upstream.DecisionNoOpinion || err == nil {
		t.Errorf("no response: %v, %v", decision, err)
	}
}

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
		decision, reason, err := e.authorizer.Authorize(t.Context(), question(t))
		if decision != want || reason != "because" || err != nil {
			t.Errorf("%v: %v %q %v", answer, decision, reason, err)
		}
		if asked.User.Name != "alice" || asked.User.Extra["scope"][0] != "a" || asked.Group != "apps" || asked.Subresource != "scale" || !asked.IsResource || asked.Name != "x" {
			t.Errorf("asked %+v", asked)
		}
	}
}

func TestNoAuthorizer(t *testing.T) {
	e, err := NewEngine(EngineConfig{Store: func(*resource.Info) resource.Store { return nil }, Logger: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	if decision, _, err := e.authorizer.Authorize(t.Context(), question(t)); decision != upstream.DecisionNoOpinion || err == nil {
		t.Errorf("%v, %v", decision, err)
	}
}
