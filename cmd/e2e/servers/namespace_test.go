package servers

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"portico/cmd/e2e"
)

// A server that is down holds up a namespace with its own objects only. The condition names its
// APIService and the command that abandons what is behind it; the namespace then goes, and an
// Event says so. A namespace that was not abandoned waits for the server.
func TestNamespaceWithADeadAPI(t *testing.T) {
	t.Parallel()
	up := e2e.Install(t, t.TempDir())
	s := e2e.RegisterSample(t, up, func(_, text string) string { return text })
	s.Start(t)
	s.Available(t, "True")
	const flunders = "/apis/wardle.example.com/v1alpha1/namespaces/%s/flunders"
	for _, ns := range []string{"abandoned", "waits"} {
		up.MustKubectl(t, "create", "namespace", ns)
		up.Post(t, "/api/v1/namespaces/"+ns+"/configmaps", `{"metadata":{"name":"own"}}`)
		e2e.Eventually(t, "the server admits writes", func() error {
			code, body := up.Do(t, http.MethodPost, fmt.Sprintf(flunders, ns), `{"apiVersion":"wardle.example.com/v1alpha1","kind":"Flunder","metadata":{"name":"behind"}}`)
			if code != http.StatusCreated && code != http.StatusConflict {
				return errors.New(body)
			}
			return nil
		})
	}
	// What was never read of a server that is down may be anything, in each version.
	for _, version := range []string{"v1alpha1", "v1beta1"} {
		up.Shows(t, "/apis/wardle.example.com/"+version, `"name":"flunders"`)
	}
	s.Kill()
	s.Available(t, "False (FailedDiscoveryCheck)")
	advice := ""
	for _, ns := range []string{"waits", "abandoned"} {
		path := "/api/v1/namespaces/" + ns
		if code, body := up.Do(t, http.MethodDelete, path, ""); code != http.StatusOK {
			t.Fatal(body)
		}
		e2e.Eventually(t, "the condition names the APIService", func() error {
			var have corev1.Namespace
			_, body := up.Do(t, http.MethodGet, path, "")
			if err := json.Unmarshal([]byte(body), &have); err != nil {
				return err
			}
			for _, c := range have.Status.Conditions {
				_, command, ok := strings.Cut(c.Message, ": kubectl ")
				if advice = command; ok && c.Type == corev1.NamespaceDeletionContentFailure && strings.Contains(c.Message, "flunders.wardle.example.com: ") {
					return nil
				}
			}
			return errors.New(body)
		})
		isGone(t, up, path+"/configmaps/own")
	}
	up.MustKubectl(t, strings.Fields(advice)...)
	isGone(t, up, "/api/v1/namespaces/abandoned")
	up.Shows(t, "/api/v1/namespaces/default/events?fieldSelector=reason%3DContentAbandoned", "without the deletion of flunders.wardle.example.com: APIService v1")
	if code, body := up.Do(t, http.MethodGet, "/api/v1/namespaces/waits", ""); code != http.StatusOK {
		t.Errorf("the other namespace went: %s", body)
	}
	s.Start(t)
	isGone(t, up, "/api/v1/namespaces/waits")
	isGone(t, up, fmt.Sprintf(flunders, "waits")+"/behind")
	up.Shows(t, fmt.Sprintf(flunders, "abandoned"), `"name":"behind"`)
}

// isGone waits until the response to a GET is 404.
func isGone(t *testing.T, up *e2e.Installation, path string) {
	t.Helper()
	e2e.Eventually(t, path+" is gone", func() error {
		if code, body := up.Do(t, http.MethodGet, path, ""); code != http.StatusNotFound {
			return fmt.Errorf("%d %s", code, body)
		}
		return nil
	})
}
