package clients

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico/cmd/e2e"
)

// The resource of a new definition is served at once, is in discovery, and has an APIService;
// after the deletion of the definition it is in none of them. At once is less than the interval
// of any polling.
func TestDefinitionIsServedAtOnce(t *testing.T) {
	t.Parallel()
	up := e2e.SharedInstallation(t)
	const limit = 5 * time.Second
	client, plain := e2e.DynamicClient(t, up.Config(t)), e2e.HTTPClient(t, up.Config(t))
	for i := range 5 {
		group := fmt.Sprintf("g%d.speed.example.com", i)
		expect := func(want int) {
			for _, path := range []string{
				"/apis/" + group + "/v1/widgets", "/apis/" + group + "/v1", "/apis/apiregistration.k8s.io/v1/apiservices/v1." + group,
			} {
				began := time.Now()
				e2e.Within(t, limit, fmt.Sprint(path, " is ", want), func() error {
					if code, body := e2e.Get(t, plain, up.Endpoint+path, ""); code != want {
						return fmt.Errorf("%d %.300s", code, body)
					}
					return nil
				})
				t.Logf("%s is %d after %v", path, want, time.Since(began))
			}
		}
		if _, err := client.Resource(e2e.Definitions).Create(t.Context(), e2e.Widgets(t, group), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		expect(http.StatusOK)
		if err := client.Resource(e2e.Definitions).Delete(t.Context(), "widgets."+group, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		expect(http.StatusNotFound)
	}
}
