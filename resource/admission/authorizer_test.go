package admission

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	upstream "k8s.io/apiserver/pkg/authorization/authorizer"

	"portico/resource"
	"portico/resource/authz"
)

// Expressions ask the authorizer of the process, or send access reviews, which are not cached.
func TestAuthorizerOfExpressions(t *testing.T) {
	question := upstream.AttributesRecord{
		User: &user.DefaultInfo{Name: "alice", UID: "u-7", Groups: []string{"people"}, Extra: map[string][]string{"scope": {"a"}}},
		Verb: "get", Namespace: "default", APIGroup: "apps", APIVersion: "v1", Resource: "deployments", Subresource: "scale", Name: "x", ResourceRequest: true,
	}
	var answer authz.Decision
	var review authorizationv1.SubjectAccessReview
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost || r.URL.Path != "/apis/authorization.k8s.io/v1/subjectaccessreviews" {
			t.Errorf("got %s %s", r.Method, r.URL)
		}
		review = authorizationv1.SubjectAccessReview{}
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			t.Error(err)
		}
		review.Status = authorizationv1.SubjectAccessReviewStatus{Allowed: answer == authz.Allow, Denied: answer == authz.Deny, Reason: "because"}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		_ = json.NewEncoder(w).Encode(review)
	}))
	var action *resource.Action
	local := authz.Func(func(_ context.Context, a *resource.Action) (authz.Decision, string, error) {
		action = a
		return answer, "because", nil
	})
	for name, authorizer := range map[string]authz.Authorizer{"reviews": nil, "local": local} {
		e, err := NewEngine(EngineConfig{BaseURL: server.URL, Transport: http.DefaultTransport, Authorizer: authorizer, Logger: quiet()})
		if err != nil {
			t.Fatal(err)
		}
		for decision, want := range map[authz.Decision]upstream.Decision{
			authz.Allow: upstream.DecisionAllow, authz.Deny: upstream.DecisionDeny, authz.NoOpinion: upstream.DecisionNoOpinion,
		} {
			answer = decision
			if got, reason, err := e.authorizer.Authorize(t.Context(), question); got != want || reason != "because" || err != nil {
				t.Errorf("%s: got %v %q %v, want %v", name, got, reason, err, want)
			}
		}
		if authorizer != nil {
			continue
		}
		server.Close()
		if decision, _, err := e.authorizer.Authorize(t.Context(), question); decision != upstream.DecisionNoOpinion || err == nil {
			t.Errorf("got %v, %v without a response", decision, err)
		}
	}
	if a := review.Spec.ResourceAttributes; review.Spec.User != "alice" || review.Spec.Groups[0] != "people" || a.Resource != "deployments" || a.Subresource != "scale" || a.Namespace != "default" {
		t.Errorf("got review %+v", review.Spec)
	}
	if action.User.Name != "alice" || action.User.Extra["scope"][0] != "a" || action.Group != "apps" || action.Subresource != "scale" || !action.IsResource || action.Name != "x" {
		t.Errorf("got action %+v", action)
	}
}

// An expression about a user that is impersonated under a constraint asks about the impersonator
// too, in the process or by access reviews.
func TestExpressionsUnderConstraint(t *testing.T) {
	var refused string
	var asked []string
	decide := func(user, verb string) bool {
		asked = append(asked, user+" "+verb)
		return user != refused
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review authorizationv1.SubjectAccessReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			t.Error(err)
		}
		review.Status.Allowed = decide(review.Spec.User, review.Spec.ResourceAttributes.Verb)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		_ = json.NewEncoder(w).Encode(review)
	}))
	defer server.Close()
	local := authz.Func(func(ctx context.Context, a *resource.Action) (authz.Decision, string, error) {
		return authz.Constrained(ctx, func(_ context.Context, a *resource.Action) (authz.Decision, string, error) {
			if decide(a.User.Name, a.Verb) {
				return authz.Allow, "", nil
			}
			return authz.NoOpinion, "", nil
		}, a)
	})
	as := &resource.User{Name: "boss", Constraint: &resource.Constraint{Impersonator: &resource.User{Name: "imp"}, Mode: "user-info"}}
	question := upstream.AttributesRecord{User: userOf(&resource.Action{User: as}), Verb: "get", APIVersion: "v1", Resource: "secrets", ResourceRequest: true}
	for name, authorizer := range map[string]authz.Authorizer{"reviews": nil, "local": local} {
		e, err := NewEngine(EngineConfig{BaseURL: server.URL, Transport: http.DefaultTransport, Authorizer: authorizer, Logger: quiet()})
		if err != nil {
			t.Fatal(err)
		}
		for user, want := range map[string]upstream.Decision{"": upstream.DecisionAllow, "imp": upstream.DecisionNoOpinion} {
			refused, asked = user, nil
			got, _, err := e.authorizer.Authorize(t.Context(), question)
			if got != want || err != nil || !slices.Equal(asked, []string{"boss get", "imp impersonate-on:user-info:get"}) {
				t.Errorf("%s, %q is refused: got %v %v, asked %q", name, user, got, err, asked)
			}
		}
	}
}
