package faults

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	apidiscovery "k8s.io/api/apidiscovery/v2"
	"k8s.io/client-go/tools/clientcmd"

	"portico/cmd/e2e"
	"portico/cmd/internal/pki"
	"portico/resource/etcd"
)

// issuerOfTokens is the issuer of service-account tokens, as up sets it.
const issuerOfTokens = "https://kubernetes.default.svc.cluster.local"

// registered is an API server of somebody's, which an APIService names by a
// Service with hand-written endpoints.
const (
	registeredGroup   = "lasting.example.com"
	registeredService = "v1.lasting.example.com"
	registeredPath    = "/apis/" + registeredGroup + "/v1"
)

func startRegistered(t *testing.T) *httptest.Server {
	t.Helper()
	// An EndpointSlice may not name a loopback address.
	listener, err := net.Listen("tcp", net.JoinHostPort(e2e.RoutableAddress(t), "0"))
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch r.URL.Path {
		case registeredPath:
			io.WriteString(w, `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"`+registeredGroup+`/v1","resources":[{"name":"things","singularName":"thing","namespaced":false,"kind":"Thing","verbs":["get","list"]}]}`)
		case registeredPath + "/things":
			fmt.Fprintf(w, `{"kind":"ThingList","apiVersion":"`+registeredGroup+`/v1","metadata":{},"items":[],"user":%q}`, r.Header.Get("X-Remote-User"))
		default:
			w.WriteHeader(http.StatusNotFound)
			io.WriteString(w, `{}`)
		}
	}))
	s.Listener.Close()
	s.Listener = listener
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

// register makes the Service, its endpoints, the APIService and an account that
// may read what is there, and returns a token of it.
func register(t *testing.T, a *alone, s *httptest.Server) (token string) {
	t.Helper()
	host, port, err := net.SplitHostPort(s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	family := "IPv4"
	if strings.Contains(host, ":") {
		family = "IPv6"
	}
	file := filepath.Join(a.up.Dir, "registered.yaml")
	manifest := fmt.Sprintf(`
{apiVersion: v1, kind: Service, metadata: {name: lasting, namespace: default}, spec: {ports: [{name: https, port: 443}]}}
---
{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: lasting-1, namespace: default, labels: {kubernetes.io/service-name: lasting}},
 addressType: %s, ports: [{name: https, port: %s}], endpoints: [{addresses: [%q]}]}
---
{apiVersion: apiregistration.k8s.io/v1, kind: APIService, metadata: {name: %s},
 spec: {group: %s, version: v1, groupPriorityMinimum: 1000, versionPriority: 15, insecureSkipTLSVerify: true, service: {namespace: default, name: lasting}}}
---
{apiVersion: v1, kind: ServiceAccount, metadata: {name: reader, namespace: default}}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: lasting}, rules: [{apiGroups: ["*"], resources: ["*"], verbs: ["*"]}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: lasting}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: lasting},
 subjects: [{kind: ServiceAccount, name: reader, namespace: default}]}
`, family, port, host, registeredService, registeredGroup)
	if err := os.WriteFile(file, []byte(manifest), 0o600); err != nil {
		t.Fatal(err)
	}
	a.up.MustKubectl(t, "apply", "-f", file)
	return strings.TrimSpace(a.up.MustKubectl(t, "create", "token", "reader", "--duration=1h"))
}

// newLasting is an installation that knows service accounts, its gateway with
// a state directory and a short grace.
func newLasting(t *testing.T) *alone {
	t.Helper()
	a := newAlone(t)
	a.extra = map[string][]string{
		"core": {"--service-account-issuer=" + issuerOfTokens, "--service-account-signing-key-file=" + a.files.ServiceAccountKeyFile},
		"gateway": {
			"--service-account-issuer=" + issuerOfTokens, "--service-account-key-file=" + a.files.ServiceAccountPublicKeyFile,
			"--state-dir=" + filepath.Join(a.up.Dir, "gateway-state"), "--discovery-grace=2s", "--instance-id=first",
		},
	}
	return a
}

// holder asks a gateway as the holder of a token.
type holder struct {
	*http.Client
	endpoint, token string
}

func (a *alone) as(t *testing.T, token string) holder {
	t.Helper()
	cfg, err := clientcmd.BuildConfigFromFlags("", a.up.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		cfg.TLSClientConfig.CertData, cfg.TLSClientConfig.KeyData, cfg.TLSClientConfig.CertFile, cfg.TLSClientConfig.KeyFile = nil, nil, "", ""
	}
	return holder{e2e.HTTPClient(t, cfg), a.up.Endpoint, token}
}

// ask returns an error unless the answer has the code and says the texts.
func (c holder) ask(method, path, body, accept string, code int, texts ...string) (answer string, err error) {
	req, err := http.NewRequest(method, c.endpoint+path, strings.NewReader(body))
	if err != nil {
		return "", err
	}
	req.Header.Set("Accept", accept)
	req.Header.Set("Content-Type", "application/json")
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	resp, err := c.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != code {
		return "", fmt.Errorf("%s %s: %d, want %d: %.500s (%w)", method, path, resp.StatusCode, code, data, err)
	}
	for _, text := range texts {
		if !strings.Contains(string(data), text) {
			return "", fmt.Errorf("%s %s does not say %q: %.500s", method, path, text, data)
		}
	}
	return string(data), nil
}

func (c holder) get(path string, code int, texts ...string) func() error {
	return func() error {
		_, err := c.ask(http.MethodGet, path, "", "application/json", code, texts...)
		return err
	}
}

// groups returns the group/versions of /api and /apis, each with its freshness
// and how many resources it has, and the legacy documents of both.
func (c holder) groups() (map[string]string, error) {
	out := map[string]string{}
	for _, path := range []string{"/api", "/apis"} {
		text, err := c.ask(http.MethodGet, path, "", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList", http.StatusOK)
		if err != nil {
			return nil, err
		}
		var list apidiscovery.APIGroupDiscoveryList
		if err := json.Unmarshal([]byte(text), &list); err != nil {
			return nil, err
		}
		for _, g := range list.Items {
			for _, v := range g.Versions {
				resources, err := json.Marshal(v.Resources)
				if err != nil {
					return nil, err
				}
				out[g.Name+"/"+v.Version] = string(v.Freshness) + " " + string(resources)
			}
		}
	}
	return out, nil
}

// same returns an error unless every group/version is as it was before, those
// of the servers that are away with this freshness.
func (c holder) same(before map[string]string, away apidiscovery.DiscoveryFreshness, are ...string) func() error {
	return func() error {
		now, err := c.groups()
		if err != nil {
			return err
		}
		for name, was := range before {
			if slices.Contains(are, name) {
				was = strings.Replace(was, "Current", string(away), 1)
			}
			if now[name] != was {
				return fmt.Errorf("%s is %.200s, was %.200s", name, now[name], was)
			}
		}
		if len(now) != len(before) {
			return fmt.Errorf("%d group/versions, there were %d", len(now), len(before))
		}
		return nil
	}
}

// documents waits until etcd and the local copy have what the restart needs.
func (a *alone) documents(t *testing.T) {
	t.Helper()
	c, err := etcd.Open(etcd.Config{Endpoints: []string{a.etcd}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	e2e.Eventually(t, "last-good is kept", func() error {
		docs, err := c.Documents("gateway").Read(t.Context())
		if err != nil {
			return err
		}
		copied, err := os.ReadFile(filepath.Join(a.up.Dir, "gateway-state", "last-good"))
		if err != nil {
			return err
		}
		for _, name := range []string{"backend/core", "backend/crd", "apiservice/" + registeredService, "core/services", "core/serviceaccounts",
			"core/admission/mutatingwebhookconfigurations", "core/admission/validatingadmissionpolicies"} {
			if docs[name].Data == nil || !strings.Contains(string(copied), name) {
				return errors.New(name + " is missing")
			}
		}
		return nil
	})
}

// must asks once.
func must(t *testing.T, ask func() error) {
	t.Helper()
	if err := ask(); err != nil {
		t.Error(err)
	}
}

// A gateway that starts while everything behind it is away shows and knows what
// the one before it did; and so does one that starts while etcd is away too.
func TestLastGood(t *testing.T) {
	t.Parallel()
	a := newLasting(t)
	for _, name := range []string{"core", "crd", "gateway"} {
		a.start(t, name)
	}
	a.reached(t, "/api/v1/namespaces/default")
	a.reached(t, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions")
	server := startRegistered(t)
	token := register(t, a, server)
	reader := a.as(t, token)
	things := reader.get(registeredPath+"/things", http.StatusOK, `"user":"system:serviceaccount:default:reader"`)
	e2e.Eventually(t, "the registered server is reached", things)
	a.up.MustKubectl(t, "explain", "configmaps.data")
	a.documents(t)
	before, err := reader.groups()
	if err != nil {
		t.Fatal(err)
	}

	for _, name := range []string{"gateway", "core", "crd"} {
		a.kill9(t, name)
	}
	a.start(t, "gateway")
	a.reached(t, "/readyz")
	a.withoutServers(t, reader, before, things)

	a.member.Close()
	a.kill9(t, "gateway")
	a.start(t, "gateway")
	e2e.Eventually(t, "the registered server is reached without etcd", things)
	a.withoutEtcd(t, reader, before, things)

	a.startEtcd(t)
	a.reached(t, "/readyz")
	e2e.Eventually(t, "writes pass again", func() error {
		_, err := reader.ask(http.MethodPost, "/apis/rbac.authorization.k8s.io/v1/clusterroles", role("after"), "application/json", http.StatusCreated)
		return err
	})
	for _, name := range []string{"core", "crd"} {
		a.start(t, name)
	}
	e2e.Eventually(t, "all is as it was", reader.same(before, "Current"))
	e2e.Eventually(t, "the core server is reached again", reader.get("/api/v1/namespaces/default", http.StatusOK))
	must(t, things)
	must(t, reader.get("/apis/rbac.authorization.k8s.io/v1/clusterroles/after", http.StatusOK))
}

// withoutServers checks what a gateway shows whose configured servers are away.
func (a *alone) withoutServers(t *testing.T, reader holder, before map[string]string, things func() error) {
	t.Helper()
	must(t, things)
	must(t, a.as(t, reader.token+"x").get("/version", http.StatusUnauthorized))
	must(t, reader.get("/api/v1", http.StatusOK, `"name":"configmaps"`, "storageVersionHash"))
	must(t, reader.get("/apis/apiextensions.k8s.io/v1", http.StatusOK, `"name":"customresourcedefinitions"`))
	e2e.Eventually(t, "requests say which APIService is away", reader.get("/api/v1/namespaces/default", http.StatusServiceUnavailable, `"kind":"Status"`, `APIService \"v1.\" is not available`))
	must(t, reader.get("/openapi/v3", http.StatusOK, `"api/v1":`, `"apis/coordination.k8s.io/v1":`, `"apis/apiextensions.k8s.io/v1":`))
	must(t, reader.get("/openapi/v3/apis/coordination.k8s.io/v1", http.StatusServiceUnavailable, `"kind":"Status"`, "the server of the OpenAPI document apis/coordination.k8s.io/v1 cannot be asked for it"))
	// The core and the CRD server, Services, accounts and admission; not the registered
	// server.
	e2e.Eventually(t, "a metric tells what is from before", a.as(t, "").get("/metrics", http.StatusOK, "portico_gateway_last_good_documents 10\n"))
	var away []string
	for name := range before {
		group, _, _ := strings.Cut(name, "/")
		if isOfBackend(group) {
			away = append(away, name)
		}
	}
	e2e.Eventually(t, "what is away is stale after the grace", reader.same(before, "Stale", away...))
}

// isOfBackend reports whether a group is the core or the CRD server's.
func isOfBackend(group string) bool {
	switch group {
	case "rbac.authorization.k8s.io", "authentication.k8s.io", "authorization.k8s.io", "flowcontrol.apiserver.k8s.io", "apiregistration.k8s.io", "gateway.portico.dev", registeredGroup:
		return false
	}
	return true
}

func role(name string) string {
	return `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRole","metadata":{"name":"` + name + `"},"rules":[]}`
}

// withoutEtcd checks that proxying and discovery go on, and that writes say why
// they do not.
func (a *alone) withoutEtcd(t *testing.T, reader holder, before map[string]string, things func() error) {
	t.Helper()
	must(t, things)
	now, err := reader.groups()
	if err != nil || len(now) != len(before) {
		t.Errorf("%d group/versions, there were %d (%v)", len(now), len(before), err)
	}
	must(t, reader.get(registeredPath, http.StatusOK, `"name":"things"`))
	began := time.Now()
	if _, err := reader.ask(http.MethodPost, "/apis/rbac.authorization.k8s.io/v1/clusterroles", role("during"), "application/json",
		http.StatusServiceUnavailable, `"kind":"Status"`); err != nil {
		t.Errorf("after %v: %v", time.Since(began), err)
	}
	must(t, things)
}

// second is another gateway on the same etcd, with a state directory, an
// address and a name of its own.
func (a *alone) second(t *testing.T) *alone {
	t.Helper()
	b := *a
	up := &e2e.Installation{Dir: a.up.Dir, Output: a.up.Output}
	b.up, b.processes, b.addresses = up, map[string]*exec.Cmd{}, map[string]string{}
	for name, address := range a.addresses {
		b.addresses[name] = address
	}
	b.addresses["gateway"] = "127.0.0.1:" + e2e.FreePort(t, "127.0.0.1")
	up.Endpoint = "https://" + b.addresses["gateway"]
	up.Kubeconfig = filepath.Join(a.up.Dir, "kubeconfig-second")
	if err := pki.WriteKubeconfig(up.Kubeconfig, up.Endpoint, a.files.ServingCAFile, a.files.Admin); err != nil {
		t.Fatal(err)
	}
	flags := slices.Clone(a.extra["gateway"])
	b.extra = map[string][]string{"gateway": append(flags, "--state-dir="+filepath.Join(a.up.Dir, "gateway-state-2"), "--instance-id=second")}
	return &b
}

// revision returns etcd's: every write moves it.
func (a *alone) revision(t *testing.T) int64 {
	t.Helper()
	c, err := etcd.Open(etcd.Config{Endpoints: []string{a.etcd}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	rev, err := c.Feed("none/").Current(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return rev
}

// idle waits until nothing is written to etcd for a while, in which everything
// that is done from time to time is done at least once.
func (a *alone) idle(t *testing.T) {
	t.Helper()
	const while = 6 * time.Second
	e2e.Eventually(t, "nothing is written", func() error {
		before := a.revision(t)
		time.Sleep(while)
		if writes := a.revision(t) - before; writes != 0 {
			return fmt.Errorf("%d writes in %v", writes, while)
		}
		return nil
	})
}

// Of two gateways on one etcd each routes on what it sees, and one writes, the
// other when that has died.
func TestTwoGateways(t *testing.T) {
	t.Parallel()
	a := newLasting(t)
	b := a.second(t)
	a.start(t, "core")
	a.start(t, "gateway")
	a.reached(t, "/api/v1/namespaces/default")
	b.start(t, "gateway")
	server := startRegistered(t)
	token := register(t, a, server)
	first, second := a.as(t, token), b.as(t, token)
	things := registeredPath + "/things"
	condition := func(through holder, texts ...string) func() error {
		return through.get("/apis/apiregistration.k8s.io/v1/apiservices/"+registeredService, http.StatusOK, texts...)
	}
	e2e.Eventually(t, "the first gateway routes", first.get(things, http.StatusOK))
	e2e.Eventually(t, "the second gateway routes", second.get(things, http.StatusOK))
	e2e.Eventually(t, "somebody says so", condition(second, `"reason":"Passed"`))
	a.idle(t)

	// No process can be killed within the test's own: its listener is what goes.
	address := server.Listener.Addr().String()
	server.Close()
	e2e.Eventually(t, "who writes says what it sees", condition(second, `"reason":"FailedDiscoveryCheck"`, "(observed by first)"))
	e2e.Eventually(t, "the second gateway sees it too", second.get(things, http.StatusServiceUnavailable, registeredService))

	a.kill9(t, "gateway")
	killed := time.Now()
	listener, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	again := &http.Server{Handler: server.Config.Handler, TLSConfig: server.TLS}
	defer again.Close()
	go again.ServeTLS(listener, "", "")
	e2e.Within(t, 10*time.Second, "the other writes", condition(second, `"reason":"Passed"`))
	t.Logf("the death of the writer was covered after %v", time.Since(killed))
	must(t, second.get(things, http.StatusOK))
	a.start(t, "gateway")
	e2e.Eventually(t, "the first gateway routes again", first.get(things, http.StatusOK))
	a.idle(t)

	a.member.Close()
	began := time.Now()
	if _, err := second.ask(http.MethodPost, "/apis/rbac.authorization.k8s.io/v1/clusterroles", role("during"), "application/json",
		http.StatusServiceUnavailable, `"kind":"Status"`); err != nil {
		t.Errorf("after %v: %v", time.Since(began), err)
	}
	for _, through := range []holder{first, second} {
		must(t, through.get(things, http.StatusOK))
		must(t, through.get(registeredPath, http.StatusOK, `"name":"things"`))
	}
	a.startEtcd(t)
	for i, through := range []holder{first, second} {
		e2e.Eventually(t, "writes pass again", func() error {
			_, err := through.ask(http.MethodPost, "/apis/rbac.authorization.k8s.io/v1/clusterroles", role(fmt.Sprint("after-", i)), "application/json", http.StatusCreated)
			return err
		})
	}
	again.Close()
	e2e.Eventually(t, "conditions are written again", condition(first, `"reason":"FailedDiscoveryCheck"`))
}
