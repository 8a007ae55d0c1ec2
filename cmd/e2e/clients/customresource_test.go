package clients

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico/cmd/e2e"
)

// The resource of a new definition is served at once, is in discovery, and has an APIService;
// after the deletion of the definition it is in none of them.
func TestDefinitionIsServedAtOnce(t *testing.T) {
	t.Parallel()
	up := e2e.SharedInstallation(t)
	// Less than the interval of any polling.
	const limit = 5 * time.Second
	client, plain := e2e.DynamicClient(t, up.Config(t)), e2e.HTTPClient(t, up.Config(t))
	took := map[string][]time.Duration{}
	check := func(group, what, path string, good func(code int, body string) bool) {
		t.Helper()
		began := time.Now()
		for {
			code, body := e2e.Get(t, plain, up.Endpoint+path, "")
			passed := time.Since(began)
			if good(code, body) {
				took[what] = append(took[what], passed)
				return
			}
			if passed > limit {
				t.Fatalf("%s of %s not within %v: %d %.300s", what, group, limit, code, body)
			}
		}
	}
	there := func(code int, _ string) bool { return code == http.StatusOK }
	gone := func(code int, _ string) bool { return code == http.StatusNotFound }
	for i := range 10 {
		group := fmt.Sprintf("g%d.speed.example.com", i)
		paths := []struct{ what, path string }{
			{"LIST", "/apis/" + group + "/v1/widgets"},
			{"discovery", "/apis/" + group + "/v1"},
			{"APIService", "/apis/apiregistration.k8s.io/v1/apiservices/v1." + group},
		}
		began := time.Now()
		if _, err := client.Resource(e2e.Definitions).Create(t.Context(), e2e.Widgets(t, group), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		took["create"] = append(took["create"], time.Since(began))
		for _, p := range paths {
			check(group, p.what, p.path, there)
		}
		if err := client.Resource(e2e.Definitions).Delete(t.Context(), "widgets."+group, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		for _, p := range paths {
			check(group, "no "+p.what, p.path, gone)
		}
	}
	for _, what := range slices.Sorted(maps.Keys(took)) {
		all := took[what]
		slices.SortFunc(all, cmp.Compare)
		t.Logf("%-13s min %v, median %v, max %v", what, all[0], all[len(all)/2], all[len(all)-1])
	}
}
