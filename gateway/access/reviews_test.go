package access

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"portico/resource"
)

const (
	authorizationPath  = "/apis/authorization.k8s.io/v1/"
	authenticationPath = "/apis/authentication.k8s.io/v1/"
)

func reviewBench(t *testing.T) *bench {
	p := granting(on("get", "-", "pods"), urls("get", "/metrics"))
	p.bindIn("ns", "lost", "Role", "lost", user("u"))
	return policyBench(t, p)
}

// A SubjectAccessReview has the decision and its reason.
func TestSubjectAccessReview(t *testing.T) {
	b := reviewBench(t)
	pods := &authorizationv1.ResourceAttributes{Namespace: "x", Verb: "get", Version: "v1", Resource: "pods", Name: "p"}
	metrics := &authorizationv1.NonResourceAttributes{Verb: "get", Path: "/metrics"}
	for name, c := range map[string]struct {
		spec authorizationv1.SubjectAccessReviewSpec
		want authorizationv1.SubjectAccessReviewStatus
		code int32
	}{
		"allowed": {spec: authorizationv1.SubjectAccessReviewSpec{User: "u", ResourceAttributes: pods},
			want: authorizationv1.SubjectAccessReviewStatus{Allowed: true, Reason: `RBAC: allowed by ClusterRoleBinding "granted" of ClusterRole "granted" to User "u"`}},
		"not allowed": {spec: authorizationv1.SubjectAccessReviewSpec{User: "v", ResourceAttributes: pods}},
		"by path": {spec: authorizationv1.SubjectAccessReviewSpec{User: "u", NonResourceAttributes: metrics},
			want: authorizationv1.SubjectAccessReviewStatus{Allowed: true, Reason: `RBAC: allowed by ClusterRoleBinding "granted" of ClusterRole "granted" to User "u"`}},
		"by group": {spec: authorizationv1.SubjectAccessReviewSpec{Groups: []string{"system:masters"}, ResourceAttributes: pods},
			want: authorizationv1.SubjectAccessReviewStatus{Allowed: true}},
		"both":    {spec: authorizationv1.SubjectAccessReviewSpec{User: "u", ResourceAttributes: pods, NonResourceAttributes: metrics}, code: 422},
		"neither": {spec: authorizationv1.SubjectAccessReviewSpec{User: "u"}, code: 422},
		"no user": {spec: authorizationv1.SubjectAccessReviewSpec{ResourceAttributes: pods}, code: 422},
	} {
		t.Run(name, func(t *testing.T) {
			review := &authorizationv1.SubjectAccessReview{Spec: c.spec}
			err := b.as(&resource.User{Name: "asker"}, http.MethodPost, authorizationPath+"subjectaccessreviews", review, review)
			if code := codeOf(err); code != c.code || err == nil && review.Status != c.want {
				t.Errorf("got %d %+v (%v), want %d %+v", code, review.Status, err, c.code, c.want)
			}
		})
	}
}

// codeOf returns the status code of an error; 0 for none.
func codeOf(err error) int32 {
	var status *apierrors.StatusError
	if errors.As(err, &status) {
		return status.ErrStatus.Code
	}
	return 0
}

// SelfSubjectAccessReview is about the sender, LocalSubjectAccessReview about its own namespace only.
func TestSelfAndLocalSubjectAccessReview(t *testing.T) {
	b := reviewBench(t)
	for name, want := range map[string]bool{"u": true, "v": false} {
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
			ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "get", Resource: "pods"},
		}}
		if err := b.as(&resource.User{Name: name}, http.MethodPost, authorizationPath+"selfsubjectaccessreviews", review, review); err != nil || review.Status.Allowed != want {
			t.Errorf("%s: %+v, %v", name, review.Status, err)
		}
	}
	for namespace, code := range map[string]int32{"ns": 0, "other": 422, "": 422} {
		review := &authorizationv1.LocalSubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: "u", ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: namespace, Verb: "get", Resource: "pods"},
		}}
		err := b.as(&resource.User{Name: "v"}, http.MethodPost, authorizationPath+"namespaces/ns/localsubjectaccessreviews", review, review)
		if codeOf(err) != code || err == nil && !review.Status.Allowed {
			t.Errorf("namespace %q: %+v, %v", namespace, review.Status, err)
		}
	}
}

// SelfSubjectRulesReview has the rules of the sender in a namespace, and what could not be found.
func TestSelfSubjectRulesReview(t *testing.T) {
	b, u := reviewBench(t), &resource.User{Name: "u"}
	review := &authorizationv1.SelfSubjectRulesReview{}
	if err := b.as(u, http.MethodPost, authorizationPath+"selfsubjectrulesreviews", review, nil); codeOf(err) != 400 || err.Error() != "no namespace on request" {
		t.Errorf("without namespace: %v", err)
	}
	review.Spec.Namespace = "ns"
	if err := b.as(u, http.MethodPost, authorizationPath+"selfsubjectrulesreviews", review, review); err != nil {
		t.Fatal(err)
	}
	s := review.Status
	if len(s.ResourceRules) != 1 || !slices.Equal(s.ResourceRules[0].Resources, []string{"pods"}) || len(s.NonResourceRules) != 1 || s.EvaluationError == "" {
		t.Errorf("got %+v", s)
	}
	if err := b.as(masters(), http.MethodPost, authorizationPath+"selfsubjectrulesreviews", review, review); err != nil || review.Status.ResourceRules[0].Resources[0] != "*" || review.Status.NonResourceRules[0].NonResourceURLs[0] != "*" {
		t.Errorf("masters: %+v, %v", review.Status, err)
	}
}

// SelfSubjectReview has the sender.
func TestSelfSubjectReview(t *testing.T) {
	b := reviewBench(t)
	review := &authenticationv1.SelfSubjectReview{}
	u := &resource.User{Name: "u", UID: "1", Groups: []string{"g"}, Extra: map[string][]string{"k": {"v"}}}
	if err := b.as(u, http.MethodPost, authenticationPath+"selfsubjectreviews", review, review); err != nil {
		t.Fatal(err)
	}
	if got := review.Status.UserInfo; got.Username != "u" || got.UID != "1" || !slices.Equal(got.Groups, u.Groups) || !slices.Equal(got.Extra["k"], []string{"v"}) {
		t.Errorf("got %+v", got)
	}
}

// keyring is an authenticator that knows two tokens, and fails for one.
type keyring struct{}

func (keyring) Authenticate(r *http.Request) (*resource.User, bool, error) {
	switch r.Header.Get("Authorization") {
	case "Bearer good":
		return &resource.User{Name: "jane", Groups: []string{"devs"}}, true, nil
	case "Bearer anonymous":
		return &resource.User{Name: resource.Anonymous}, true, nil
	case "Bearer broken":
		return nil, false, errors.New("it is broken")
	}
	return nil, false, nil
}

// A TokenReview has the user of a valid token, or the error of the authenticator.
func TestTokenReview(t *testing.T) {
	b := newBench(t, Config{Authenticator: keyring{}, Audiences: []string{"api"}})
	ask := func(token string) (authenticationv1.TokenReviewStatus, error) {
		review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}
		review.Status.Authenticated = true // ignored
		response := &authenticationv1.TokenReview{}
		err := b.as(&resource.User{Name: "asker"}, http.MethodPost, authenticationPath+"tokenreviews", review, response)
		return response.Status, err
	}
	got, err := ask("good")
	if err != nil || !got.Authenticated || got.User.Username != "jane" || !slices.Equal(got.User.Groups, []string{"devs", "system:authenticated"}) || !slices.Equal(got.Audiences, []string{"api"}) {
		t.Errorf("good: %+v, %v", got, err)
	}
	for token, want := range map[string]string{"bad": "", "anonymous": "", "broken": "it is broken"} {
		if got, err := ask(token); err != nil || got.Authenticated || got.Error != want || got.User.Username != "" {
			t.Errorf("%s: %+v, %v", token, got, err)
		}
	}
	if _, err := ask(""); codeOf(err) != 400 {
		t.Errorf("no token: %v", err)
	}
}

// A small body with aliases that expand to hundreds of megabytes is rejected before they are
// expanded: all users may send access reviews.
func TestReviewOfManyAliases(t *testing.T) {
	b := reviewBench(t)
	body := "apiVersion: authorization.k8s.io/v1\nkind: SelfSubjectAccessReview\nspec: {x: &a \"" + strings.Repeat("x", 64<<10) + `", z: [` + strings.Repeat("*a,", 3_000) + "]}\n"
	for _, validation := range []string{"Ignore", "Strict"} {
		r := httptest.NewRequest(http.MethodPost, authorizationPath+"selfsubjectaccessreviews?fieldValidation="+validation, strings.NewReader(body))
		r.Header.Set("Content-Type", "application/yaml")
		act := resource.ParseAction(r)
		act.User = &resource.User{Name: "u"}
		w := httptest.NewRecorder()
		var start, end runtime.MemStats
		runtime.ReadMemStats(&start)
		b.api.ServeHTTP(w, r.WithContext(resource.WithAction(r.Context(), act)))
		runtime.ReadMemStats(&end)
		if used := (end.TotalAlloc - start.TotalAlloc) >> 20; used > 16 {
			t.Errorf("%s: %d MB were allocated", validation, used)
		}
		if w.Code != http.StatusRequestEntityTooLarge || !strings.Contains(w.Body.String(), "aliases of the YAML") {
			t.Errorf("%s: got %d %.300s", validation, w.Code, w.Body)
		}
	}
}
