package faults

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"portico/cmd/e2e"
)

const (
	writtenGroup      = "written.example.com"
	writtenBackend    = "/apis/gateway.portico.dev/v1alpha1/backends/written"
	writtenAPIService = "/apis/apiregistration.k8s.io/v1/apiservices/v1." + writtenGroup
	writtenRoles      = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
)

// versions returns the resourceVersions of the objects at these paths.
func (c holder) versions(paths ...string) (string, error) {
	var out []string
	for _, path := range paths {
		text, err := c.ask(http.MethodGet, path, "", "application/json", http.StatusOK)
		if err != nil {
			return "", err
		}
		var object struct {
			Metadata struct{ ResourceVersion string }
		}
		if err := json.Unmarshal([]byte(text), &object); err != nil {
			return "", err
		}
		out = append(out, object.Metadata.ResourceVersion)
	}
	return strings.Join(out, " "), nil
}

// Of two gateways on one etcd each routes on its own checks, one writes status, and neither
// writes while nothing changes. When the writer is stopped without closing its connections,
// the other one takes over; the first one, when it continues, does not revert what the other
// has written. Without etcd both answer reads from memory and refuse writes. The first one takes
// over again when the other is killed.
func TestStoppedWriter(t *testing.T) {
	t.Parallel()
	a := newLasting(t)
	b := a.second(t)
	a.start(t, "gateway")
	a.reached(t, "/readyz")
	first := a.as(t, "")
	server := httptest.NewTLSServer(things(writtenGroup))
	defer server.Close()
	address := server.Listener.Addr().String()
	if _, err := first.ask(http.MethodPost, "/apis/gateway.portico.dev/v1alpha1/backends", `{"apiVersion":"gateway.portico.dev/v1alpha1","kind":"Backend","metadata":{"name":"written"},
		"spec":{"endpoints":[{"url":"https://`+address+`"}],"tls":{"insecureSkipVerify":true},"autoRegister":{"groups":["*"]}}}`, "application/json", http.StatusCreated); err != nil {
		t.Fatal(err)
	}
	b.start(t, "gateway")
	b.reached(t, "/readyz")
	second := b.as(t, "")
	e2e.Eventually(t, "the Backend is available", second.get(writtenBackend, http.StatusOK, `"state":"Healthy"`, `"reason":"Registered"`))
	e2e.Eventually(t, "its group is served", second.get("/apis/"+writtenGroup+"/v1", http.StatusOK, "things"))

	e2e.Eventually(t, "the first gateway serves it too", first.get("/apis/"+writtenGroup+"/v1", http.StatusOK, "things"))
	a.idle(t)
	a.nodes["gateway"].signal(t, syscall.SIGSTOP)
	stopped := time.Now()
	server.Close()
	e2e.Within(t, 10*time.Second, "the other writes the status of the Backend", second.get(writtenBackend, http.StatusOK, `"state":"Unhealthy"`, `"reason":"FailedDiscoveryCheck"`, "(observed by second)"))
	e2e.Within(t, 10*time.Second-time.Since(stopped), "and the freshness of its group", second.get(writtenBackend, http.StatusOK, `"freshness":"Stale"`))
	e2e.Within(t, 10*time.Second-time.Since(stopped), "and the status of the APIService", second.get(writtenAPIService, http.StatusOK, `"reason":"FailedDiscoveryCheck"`, "(observed by second)"))
	t.Logf("the other has taken over after %v", time.Since(stopped))

	before, err := second.versions(writtenBackend, writtenAPIService)
	if err != nil {
		t.Fatal(err)
	}
	a.nodes["gateway"].signal(t, syscall.SIGCONT)
	e2e.Eventually(t, "the first one has noticed", first.get("/apis/"+writtenGroup+"/v1/things", http.StatusServiceUnavailable, "FailedDiscoveryCheck"))
	a.idle(t)
	if now, err := second.versions(writtenBackend, writtenAPIService); err != nil || now != before {
		stored, _ := second.ask(http.MethodGet, writtenBackend, "", "application/json", http.StatusOK)
		t.Fatalf("resourceVersions are %s, and were %s (%v); the Backend is\n%s", now, before, err, stored)
	}

	a.etcd.Kill()
	var without sync.WaitGroup
	for _, through := range []holder{first, second} {
		without.Go(func() {
			must(t, through.get(writtenBackend+"?resourceVersion=0", http.StatusOK, `"state":"Unhealthy"`)())
			must(t, through.get("/apis/"+writtenGroup+"/v1", http.StatusOK, "things")())
			must(t, through.post(writtenRoles, role("during"), http.StatusServiceUnavailable, `"kind":"Status"`))
		})
	}
	without.Wait()
	a.etcd.Start(t)
	for i, through := range []holder{first, second} {
		e2e.Eventually(t, "writes pass again", func() error {
			_, err := through.ask(http.MethodPost, writtenRoles, role(fmt.Sprint("after-", i)), "application/json", http.StatusCreated)
			return err
		})
	}

	b.nodes["gateway"].signal(t, syscall.SIGKILL)
	listener, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	again := &http.Server{Handler: server.Config.Handler, TLSConfig: server.TLS}
	defer again.Close()
	go again.ServeTLS(listener, "", "")
	e2e.Eventually(t, "the first one writes again", first.get(writtenBackend, http.StatusOK, `"state":"Healthy"`, `"reason":"Passed"`))
	e2e.Eventually(t, "and the status of the APIService", first.get(writtenAPIService, http.StatusOK, `"reason":"Local"`))
}
