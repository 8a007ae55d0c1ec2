package faults

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"portico/cmd/e2e"
	"strings"
	"syscall"
	"testing"
	"time"
)

const (
	writtenGroup      = "written.example.com"
	writtenBackend    = "/apis/gateway.portico.dev/v1alpha1/backends/written"
	writtenAPIService = "/apis/apiregistration.k8s.io/v1/apiservices/v1." + writtenGroup
)

// listed is a server that lists one group and version.
func listed(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	switch r.URL.Path {
	case "/apis":
		fmt.Fprintf(w, `{"kind":"APIGroupList","apiVersion":"v1","groups":[{"name":%q,"versions":[{"groupVersion":"%[1]s/v1","version":"v1"}]}]}`, writtenGroup)
	case "/apis/" + writtenGroup + "/v1":
		fmt.Fprintf(w, `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"%s/v1","resources":[{"name":"things","singularName":"thing","namespaced":false,"kind":"Thing","verbs":["get"]}]}`, writtenGroup)
	default:
		w.WriteHeader(http.StatusNotFound)
		io.WriteString(w, `{}`)
	}
}

// versions returns the resourceVersions of what is stored at these paths.
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

// Of two gateways the one that writes is stopped, without an end of its connections.
// The other takes over what the status of a Backend and of its APIService say, and
// the first one, going on, undoes nothing of it, although it has slept through what
// happened. When the other ends, it is its turn again.
func TestStoppedWriter(t *testing.T) {
	t.Parallel()
	a := newLasting(t)
	b := a.second(t)
	a.start(t, "gateway")
	a.reached(t, "/readyz")
	first := a.as(t, "")
	server := httptest.NewTLSServer(http.HandlerFunc(listed))
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

	signal := func(p *os.Process, s os.Signal) {
		t.Helper()
		if err := p.Signal(s); err != nil {
			t.Fatal(err)
		}
	}
	signal(a.processes["gateway"].Process, syscall.SIGSTOP)
	stopped := time.Now()
	server.Close()
	e2e.Within(t, 10*time.Second, "the other says of the Backend what it sees", second.get(writtenBackend, http.StatusOK, `"state":"Unhealthy"`, `"reason":"FailedDiscoveryCheck"`, "(observed by second)"))
	e2e.Within(t, 10*time.Second-time.Since(stopped), "and all of it", second.get(writtenBackend, http.StatusOK, `"freshness":"Stale"`))
	e2e.Within(t, 10*time.Second-time.Since(stopped), "and of the APIService", second.get(writtenAPIService, http.StatusOK, `"reason":"FailedDiscoveryCheck"`, "(observed by second)"))
	t.Logf("the writer's stop was covered after %v", time.Since(stopped))

	before, err := second.versions(writtenBackend, writtenAPIService)
	if err != nil {
		t.Fatal(err)
	}
	kept, err := second.ask(http.MethodGet, writtenBackend, "", "application/json", http.StatusOK)
	if err != nil {
		t.Fatal(err)
	}
	signal(a.processes["gateway"].Process, syscall.SIGCONT)
	e2e.Eventually(t, "the first one sees it too", first.get("/apis/"+writtenGroup+"/v1/things", http.StatusServiceUnavailable, "FailedDiscoveryCheck"))
	for end := time.Now().Add(2 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if now, err := second.versions(writtenBackend, writtenAPIService); err != nil || now != before {
			stored, _ := second.ask(http.MethodGet, writtenBackend, "", "application/json", http.StatusOK)
			t.Fatalf("somebody wrote: %s, it was %s (%v); the Backend, which was\n%s\nis\n%s", now, before, err, kept, stored)
		}
	}

	signal(b.processes["gateway"].Process, syscall.SIGTERM)
	listener, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	again := &http.Server{Handler: server.Config.Handler, TLSConfig: server.TLS}
	defer again.Close()
	go again.ServeTLS(listener, "", "")
	e2e.Eventually(t, "the first one writes again", first.get(writtenBackend, http.StatusOK, `"state":"Healthy"`, `"reason":"Passed"`))
	e2e.Eventually(t, "and of the APIService", first.get(writtenAPIService, http.StatusOK, `"reason":"Local"`))
}
