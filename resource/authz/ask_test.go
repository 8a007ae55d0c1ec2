package authz

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"portico/resource"
)

// doer sends requests to a test server.
type doer struct{ url string }

func (d doer) Do(ctx context.Context, method, path string, _ url.Values, body []byte) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, method, d.url+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	return http.DefaultClient.Do(r)
}

// Ask sends a SubjectAccessReview; without a valid response the error is 503.
func TestAsk(t *testing.T) {
	act := &resource.Action{
		User: &resource.User{Name: "alice", UID: "u", Groups: []string{"g"}, Extra: map[string][]string{"k": {"v"}}},
		Verb: "create", Group: "example.com", Version: "v1", Resource: "widgets", Namespace: "default", Name: "w", IsResource: true,
	}
	for name, test := range map[string]struct {
		response string
		ok       func(error) bool
	}{
		"allowed": {`{"status":{"allowed":true}}`, func(err error) bool { return err == nil }},
		"refused": {`{"status":{"allowed":false,"reason":"because"}}`, func(err error) bool {
			return apierrors.IsForbidden(err) && err.Error() == Forbidden(act, "because").Error()
		}},
		"invalid JSON": {`{`, apierrors.IsServiceUnavailable},
		"no object":    {`[]`, apierrors.IsServiceUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			var asked authorizationv1.SubjectAccessReview
			gateway := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if err := json.NewDecoder(r.Body).Decode(&asked); err != nil || r.URL.Path != "/apis/authorization.k8s.io/v1/subjectaccessreviews" {
					t.Errorf("%s: %v", r.URL.Path, err)
				}
				_, _ = w.Write([]byte(test.response))
			}))
			defer gateway.Close()
			if err := Ask(t.Context(), doer{gateway.URL}, act); !test.ok(err) {
				t.Errorf("got %v", err)
			}
			spec, at := asked.Spec, asked.Spec.ResourceAttributes
			if spec.User != "alice" || spec.UID != "u" || len(spec.Groups) != 1 || spec.Extra["k"][0] != "v" ||
				at.Verb != "create" || at.Group != "example.com" || at.Version != "v1" || at.Resource != "widgets" || at.Namespace != "default" || at.Name != "w" {
				t.Errorf("asked %+v", asked)
			}
		})
	}
	if err := Ask(t.Context(), nil, act); !apierrors.IsForbidden(err) {
		t.Errorf("without a gateway: %v", err)
	}
	if err := Ask(t.Context(), broken{}, act); !apierrors.IsServiceUnavailable(err) {
		t.Errorf("a gateway that is away: %v", err)
	}
}

// A constrained impersonation needs a review of the user and one of the impersonator.
func TestAskUnderConstraint(t *testing.T) {
	imp := &resource.User{Name: "imp", Groups: []string{"g"}}
	act := &resource.Action{
		User: &resource.User{Name: "boss", Constraint: &resource.Constraint{Impersonator: imp, Mode: "user-info"}},
		Verb: "create", Version: "v1", Resource: "configmaps", Namespace: "a", IsResource: true,
	}
	for _, refused := range []string{"", "boss", "imp"} {
		var asked []string
		gateway := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			var review authorizationv1.SubjectAccessReview
			if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
				t.Error(err)
			}
			asked = append(asked, review.Spec.User+" "+review.Spec.ResourceAttributes.Verb)
			review.Status.Allowed = review.Spec.User != refused
			_ = json.NewEncoder(w).Encode(review)
		}))
		err := Ask(t.Context(), doer{gateway.URL}, act)
		gateway.Close()
		want := []string{"boss create", "imp impersonate-on:user-info:create"}
		if refused == "boss" {
			want = want[:1]
		}
		if !slices.Equal(asked, want) || apierrors.IsForbidden(err) != (refused != "") {
			t.Errorf("%q is refused: asked %q, got %v", refused, asked, err)
		}
	}
}

type broken struct{}

func (broken) Do(context.Context, string, string, url.Values, []byte) (*http.Response, error) {
	return nil, errors.New("connection refused")
}
