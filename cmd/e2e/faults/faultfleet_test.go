package faults

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"portico/apiservice/backend"
	"portico/cmd/e2e"
	"portico/cmd/internal/pki"
	"portico/cmd/internal/testtools"
)

// fleet is a cluster with several CRD servers on the same etcd, which are the endpoints of one
// Backend. The last one has a serving certificate of its own.
type fleet struct {
	*cluster
	crds []*node
}

// fleetBackend is the Backend of the CRD servers.
const fleetBackend = "crds"

// fleetPolicy shortens the intervals of health checks and ejections. An ejection lasts longer than
// requests are made while an endpoint is broken, also on a busy machine: an endpoint gets requests
// again when its ejection ends. The health checks do not depend on etcd, so that servers get
// requests for objects in memory while etcd is away.
const fleetPolicy = `{"spec":{
	"healthCheck":{"path":"/readyz?exclude=etcd&exclude=etcd-readiness","interval":"500ms","timeout":"1s"},
	"outlierDetection":{"baseEjectionTime":"15s","maxEjectionTime":"15s"}}}`

// startFleet starts the processes, registers the CRD servers and returns when all are healthy.
func startFleet(t *testing.T, servers int) *fleet {
	t.Helper()
	names := []string{"crd-1", "crd-2", "crd-3"}[:servers]
	f := &fleet{cluster: newCluster(t, append([]string{"core"}, names...)...)}
	for _, server := range []string{"core", "crd"} {
		f.extra[server] = []string{"--shutdown-delay-duration=2s"}
	}
	for _, name := range names {
		f.crds = append(f.crds, f.nodes[name])
	}
	f.crds[servers-1].certify(t, time.Hour)
	f.start(t, append(names, "core", "gateway")...)
	f.register(t)
	return f
}

// certify issues a serving certificate for the process, which is expired if validFor is
// negative.
func (n *node) certify(t *testing.T, validFor time.Duration) {
	t.Helper()
	dir := filepath.Join(n.cluster.up.Dir, n.name)
	issued, err := pki.Issue(filepath.Join(n.cluster.up.Dir, "pki"), dir, pki.Request{
		By: pki.ServingAuthority, Name: "server", User: "server", Hosts: []string{"127.0.0.1"}, ValidFor: validFor, Replace: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	n.serving = issued.Pair
}

// portico runs a command of portico as the administrator and returns its output.
func (f *fleet) portico(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), e2e.Program(t, testtools.Portico), args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+f.up.Kubeconfig)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("portico %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// register registers the CRD servers.
func (f *fleet) register(t *testing.T) {
	t.Helper()
	f.up.Shows(t, "/api/v1/namespaces/default", "")
	args := []string{"register", fleetBackend, "--all-groups", "--ca-file=" + f.files.ServingCAFile, "--wait=60s"}
	for _, n := range f.crds {
		args = append(args, "--url="+n.url())
	}
	t.Logf("%s", f.portico(t, args...))
	f.up.MustKubectl(t, "patch", "backend", fleetBackend, "--type=merge", "-p", fleetPolicy)
	for _, n := range f.crds {
		f.state(t, n, backend.EndpointHealthy)
	}
}

// endpoint returns the status of a node in the Backend's status.
func (f *fleet) endpoint(t *testing.T, n *node) (*backend.EndpointStatus, error) {
	t.Helper()
	code, body := f.up.Do(t, http.MethodGet, "/apis/gateway.portico.dev/v1alpha1/backends/"+fleetBackend, "")
	var b backend.Backend
	if err := json.Unmarshal([]byte(body), &b); err != nil || code != http.StatusOK {
		return nil, fmt.Errorf("%d %s: %w", code, body, err)
	}
	for i := range b.Status.Endpoints {
		if b.Status.Endpoints[i].URL == n.url() {
			return &b.Status.Endpoints[i], nil
		}
	}
	return nil, fmt.Errorf("the status of the Backend lacks %s: %s", n.url(), body)
}

// state waits until a node is in one of some states in the Backend's status, with a reason
// unless it is healthy.
func (f *fleet) state(t *testing.T, n *node, want ...backend.EndpointState) *backend.EndpointStatus {
	t.Helper()
	var got *backend.EndpointStatus
	e2e.Eventually(t, fmt.Sprintf("%s is %v", n.name, want), func() (err error) {
		if got, err = f.endpoint(t, n); err != nil {
			return err
		}
		if !slices.Contains(want, got.State) {
			return fmt.Errorf("it is %s (%s)", got.State, got.LastError)
		}
		if got.State != backend.EndpointHealthy && got.LastError == "" {
			return fmt.Errorf("it is %s without an error", got.State)
		}
		return nil
	})
	return got
}
