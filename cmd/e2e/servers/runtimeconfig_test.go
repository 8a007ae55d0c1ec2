package servers

import (
	"net/http"
	"strings"
	"testing"

	"portico/cmd/e2e"
)

// A group/version that is switched off is not in discovery, its APIService goes, and its objects
// are there when it is switched on again.
func TestRuntimeConfig(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const class = `{"metadata":{"name":"kept"},"spec":{"controller":"example.com/c"}}`
	const path, service = "/apis/networking.k8s.io/v1/ingressclasses", "/apis/apiregistration.k8s.io/v1/apiservices/v1.networking.k8s.io"
	for _, config := range []string{"", "networking.k8s.io/v1=false,autoscaling/v1=false", "api/all=true"} {
		func() {
			var args []string
			if config != "" {
				args = []string{"--runtime-config=" + config}
			}
			up, err := e2e.Launch(dir, args...)
			if err != nil {
				t.Fatal(err)
			}
			defer up.Stop()
			if strings.Contains(config, "false") {
				isGone(t, up, path)
				isGone(t, up, service)
				isGone(t, up, "/apis/autoscaling/v1")
				if code, body := up.Do(t, http.MethodGet, "/apis", ""); code != http.StatusOK || strings.Contains(body, "networking.k8s.io") || !strings.Contains(body, "autoscaling/v2") {
					t.Errorf("/apis is %d %s", code, body)
				}
				return
			}
			up.Shows(t, service, "networking.k8s.io")
			if config == "" {
				up.Post(t, path, class)
			}
			up.Shows(t, path+"/kept", "example.com/c")
		}()
	}
}
