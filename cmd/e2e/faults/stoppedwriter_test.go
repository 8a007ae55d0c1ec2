package faults

import (
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
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

// versions returns the resourceVersions of the objects, and of those in lists, at these paths.
func (c holder) versions(paths ...string) (string, error) {
	var out []string
	for _, path := range paths {
		text, err := c.ask(http.MethodGet, path, "", "application/json", http.StatusOK)
		if err != nil {
			return "", err
		}
		type object struct {
			Metadata struct{ ResourceVersion string }
		}
		var found struct {
			object
			Items []object // of a list
		}
		if err := json.Unmarshal([]byte(text), &found); err != nil {
			return "", err
		}
		if found.Items == nil {
			found.Items = []object{found.object}
		}
		for _, o := range found.Items {
			out = append(out, o.Metadata.ResourceVersion)
		}
	}
	return strings.Join(out, " "), nil
}

// idle waits until no gateway wrote an APIService, a Backend or a document for longer than the
// interval of any of their periodic work. Processes renew their Leases all the time.
func (a *cluster) idle(t *testing.T, through holder) {
	t.Helper()
	const while = 6 * time.Second
	documents := a.open(t).Documents("gateway")
	last, since := "", time.Now()
	e2e.Eventually(t, "nothing is written", func() error {
		now, err := through.versions("/apis/apiregistration.k8s.io/v1/apiservices", "/apis/gateway.portico.dev/v1alpha1/backends")
		if err != nil {
			return err
		}
		stored, err := documents.Read(t.Context())
		if err != nil {
			return err
		}
		for _, name := range slices.Sorted(maps.Keys(stored)) {
			now += fmt.Sprint(" ", stored[name].Revision)
		}
		if now != last {
			last, since = now, time.Now()
		}
		if quiet := time.Since(since); quiet < while {
			return fmt.Errorf("the last write was %v ago", quiet)
		}
		return nil
	})
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
	a.idle(t, second)
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
	a.idle(t, second)
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
