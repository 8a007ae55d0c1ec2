package gateway

import (
	"log/slog"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apireg "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico/apiservice"
	"portico/resource/etcd"
	"portico/resource/serve"
)

// A gateway is ready without the core and the CRD server: no endpoint lists a check that waits for another server before it
// has passed. Under its own name it has the reason.
func TestChecksOfOtherServers(t *testing.T) {
	t.Parallel()
	g, err := New(Config{
		Listen: []serve.ListenAddress{{Address: "unix://" + filepath.Join(t.TempDir(), "socket")}}, Etcd: etcd.Config{Endpoints: []string{"unix:///nowhere"}},
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { g.encrypted.Close(); g.etcd.Close() })
	answer := func(path string) string {
		w := httptest.NewRecorder()
		g.health.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		return w.Body.String()
	}
	const admission = "poststarthook/start-apiserver-admission-initializer"
	g.sync.SetAPIServices(nil) // of a first start
	if err := g.askServers(t.Context()); err == nil {
		t.Error("servers that are not registered have answered")
	}
	for name, reason := range map[string]string{
		"poststarthook/bootstrap-controller":                          "no server is registered for v1",
		"poststarthook/start-system-namespaces-controller":            "no server is registered for v1",
		"poststarthook/start-service-ip-repair-controllers":           "no server is registered for v1",
		"poststarthook/scheduling/bootstrap-system-priority-classes":  "no server is registered for v1",
		"poststarthook/start-legacy-token-tracking-controller":        "no server is registered for v1",
		"poststarthook/start-apiextensions-informers":                 "no server is registered for apiextensions.k8s.io/v1",
		"poststarthook/start-apiextensions-controllers":               "no server is registered for apiextensions.k8s.io/v1",
		"poststarthook/crd-informer-synced":                           "no server is registered for apiextensions.k8s.io/v1",
		"poststarthook/start-cluster-authentication-info-controller":  "has not been stored yet",
		"poststarthook/apiservice-status-remote-available-controller": "not every APIService has been checked yet",
		"poststarthook/kube-apiserver-autoregistration":               "have not been stored yet",
		admission: "no server of admission configurations is registered yet",
	} {
		for _, endpoint := range []string{"/readyz", "/healthz", "/livez"} {
			if got := answer(endpoint + "?verbose&exclude=etcd&exclude=etcd-readiness"); strings.Contains(got, name) {
				t.Errorf("%s lists %s:\n%s", endpoint, name, got)
			}
			if got := answer(endpoint + "/" + name); !strings.Contains(got, reason) {
				t.Errorf("%s/%s: got %q, want %q", endpoint, name, got, reason)
			}
		}
	}
	g.admission = newOwnAdmission(t, true)
	g.admission.registered = g.isRegistered
	g.sync.SetAPIServices([]*apireg.APIService{{ObjectMeta: metav1.ObjectMeta{Name: apiservice.Name("admissionregistration.k8s.io", "v1")}}})
	if got := answer("/readyz?verbose&exclude=etcd&exclude=etcd-readiness"); !strings.Contains(got, "[+]"+admission+" ok\n") {
		t.Errorf("the configurations have been read:\n%s", got)
	}
}
