package faults

import (
	"fmt"
	"net/http"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"portico/cmd/e2e"
)

// A gateway that starts answers no request with 503: connections wait until it knows routes,
// discovery and access policy. Connections that the dead gateway had may break.
func TestNoUnavailabilityWhileTheGatewayStarts(t *testing.T) {
	t.Parallel()
	up := e2e.Install(t, t.TempDir())
	client := e2e.HTTPClient(t, up.Config(t))
	var answered atomic.Int64
	ask := func(path string) error {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, up.Endpoint+path, nil)
		if err != nil {
			return err
		}
		request.Close = true
		response, err := client.Do(request)
		if err != nil {
			return err
		}
		response.Body.Close()
		if response.StatusCode != http.StatusOK {
			t.Errorf("%s: got %s", path, response.Status)
		}
		answered.Add(1)
		return nil
	}
	for range 3 {
		stop, ended := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(ended)
			for {
				for _, path := range []string{"/api/v1/namespaces/default", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", "/apis/rbac.authorization.k8s.io/v1/clusterroles/edit", "/apis", "/openapi/v3"} {
					_ = ask(path) // no connection while no gateway runs
				}
				select {
				case <-stop:
					return
				case <-time.After(5 * time.Millisecond): // leaves the processor to the gateway that starts
				}
			}
		}()
		old := up.Child(t, "gateway")
		if err := syscall.Kill(old, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		e2e.Eventually(t, "another gateway answers", func() error {
			if now := up.Child(t, "gateway"); now == old {
				return fmt.Errorf("gateway %d is there", now)
			}
			return ask("/readyz?exclude=poststarthook/apiservice-discovery-controller")
		})
		close(stop)
		<-ended
	}
	t.Logf("%d requests were answered", answered.Load())
}
