package serve

import (
	"net/http"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico/resource"
)

// neverAsked is an authenticator that must not be asked.
type neverAsked struct{ t *testing.T }

func (n neverAsked) Authenticate(*http.Request) (*resource.User, bool, error) {
	n.t.Error("the user of a refused request is looked up")
	return nil, false, nil
}

// What Config.Refuse refuses is answered with its Status before authentication, also
// a path that anyone may read; nothing is handled.
func TestRefuseBeforeAuthentication(t *testing.T) {
	t.Parallel()
	s := newTestServer(t, func(http.ResponseWriter, *http.Request) { t.Error("a refused request is handled") }, func(c *testConfig) {
		c.Authenticator = neverAsked{t}
		c.Refuse = func(*http.Request) error { return apierrors.NewBadRequest("no") }
	})
	for _, path := range []string{"/api/v1/pods", "/healthz", "/api/v1/pods?watch=1"} {
		w := do(s, "GET", path)
		if w.Code != 400 {
			t.Errorf("%s: %d", path, w.Code)
		}
		wantStatus(t, w.Body, 400, metav1.StatusReasonBadRequest, "no")
	}
}
