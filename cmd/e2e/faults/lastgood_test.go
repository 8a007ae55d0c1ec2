package faults

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	apidiscovery "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"portico/cmd/e2e"
	"portico/cmd/internal/testtools"
	"portico/gateway/lastgood"
	"portico/resource/etcd"
)

// issuerOfTokens is the issuer of service-account tokens, as up sets it.
const issuerOfTokens = "https://kubernetes.default.svc.cluster.local"

// The API that startRegistered registers, by an APIService and a Service with endpoints.
const (
	registeredGroup   = "lasting.example.com"
	registeredService = "v1.lasting.example.com"
	registeredPath    = "/apis/" + registeredGroup + "/v1"
)

// things serves GROUP/v1 with the resource things; a list names the user of the request.
func things(group string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch r.URL.Path {
		case "/apis":
			fmt.Fprintf(w, `{"kind":"APIGroupList","apiVersion":"v1","groups":[{"name":%q,"versions":[{"groupVersion":"%[1]s/v1","version":"v1"}]}]}`, group)
		case "/apis/" + group + "/v1":
			fmt.Fprintf(w, `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"%s/v1","resources":[{"name":"things","singularName":"thing","namespaced":false,"kind":"Thing","verbs":["get","list"]}]}`, group)
		case "/apis/" + group + "/v1/things":
			fmt.Fprintf(w, `{"kind":"ThingList","apiVersion":"%s/v1","metadata":{},"items":[],"user":%q}`, group, r.Header.Get("X-Remote-User"))
		default:
			http.Error(w, "{}", http.StatusNotFound)
		}
	}
}

func startRegistered(t *testing.T) *httptest.Server {
	t.Helper()
	// An EndpointSlice may not name a loopback address.
	listener, err := net.Listen("tcp", net.JoinHostPort(e2e.RoutableAddress(t), "0"))
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(things(registeredGroup))
	s.Listener.Close()
	s.Listener = listener
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

// register creates the Service, its endpoints, the APIService and a service account that may
// read everything, and returns a token of the account.
func register(t *testing.T, a *cluster, s *httptest.Server) (token string) {
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

// newLasting returns an installation with service accounts and a gateway with a state
// directory and a short grace.
func newLasting(t *testing.T) *cluster {
	t.Helper()
	a := newCluster(t, "core", "crd")
	a.extra = map[string][]string{
		"core": {"--service-account-issuer=" + issuerOfTokens, "--service-account-signing-key-file=" + a.files.ServiceAccountKeyFile},
		"gateway": {
			"--service-account-issuer=" + issuerOfTokens, "--service-account-key-file=" + a.files.ServiceAccountPublicKeyFile,
			"--state-dir=" + filepath.Join(a.up.Dir, "gateway-state"), "--discovery-grace=2s", "--instance-id=first",
		},
	}
	return a
}

// holder is a client of a gateway with a token, or with cfg's certificate without one.
type holder struct {
	*http.Client
	endpoint, token string
}

func (a *cluster) as(t *testing.T, token string) holder {
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

// ask sends a request and returns an error unless the response has the code and the texts.
func (c holder) ask(method, path, body, accept string, code int, texts ...string) (answer string, err error) {
	header := []string{"Accept: " + accept}
	if c.token != "" {
		header = append(header, "Authorization: Bearer "+c.token)
	}
	resp, answer, err := e2e.Ask(context.Background(), c.Client, method, c.endpoint+path, body, header...)
	if err == nil && resp.StatusCode != code {
		err = errors.New(resp.Status)
	}
	if err != nil {
		return "", fmt.Errorf("%s %s: %w, want %d: %.500s", method, path, err, code, answer)
	}
	for _, text := range texts {
		if !strings.Contains(answer, text) {
			return "", fmt.Errorf("%s %s lacks %q: %.500s", method, path, text, answer)
		}
	}
	return answer, nil
}

func (c holder) get(path string, code int, texts ...string) func() error {
	return func() error {
		_, err := c.ask(http.MethodGet, path, "", "application/json", code, texts...)
		return err
	}
}

// groups returns the freshness and the resources of each group/version of /api and /apis.
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

// same returns a check that every group/version is as before; those of are have the freshness
// away.
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
			return fmt.Errorf("%d group/versions, want %d", len(now), len(before))
		}
		return nil
	}
}

// open returns a client of the cluster's etcd.
func (a *cluster) open(t *testing.T) *etcd.Client {
	t.Helper()
	c, err := etcd.Open(etcd.Config{Endpoints: []string{a.etcd.Endpoint()}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// lastGood waits until the gateway's last-good documents in etcd pass a check.
func (a *cluster) lastGood(t *testing.T, what string, check func(map[string]etcd.Document) error) {
	t.Helper()
	documents := a.open(t).Documents("gateway")
	e2e.Eventually(t, what, func() error {
		docs, err := documents.Read(t.Context())
		if err != nil {
			return err
		}
		return check(docs)
	})
}

// documents waits until etcd and the local copy have every last-good document.
func (a *cluster) documents(t *testing.T) {
	t.Helper()
	a.lastGood(t, "last-good is kept", func(docs map[string]etcd.Document) error {
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
		// The documents of a server's group/versions come one by one.
		var core struct{ Versions []lastgood.Version }
		if err := lastgood.Unpack(docs["backend/core"].Data, &core); err != nil {
			return err
		}
		for _, v := range core.Versions {
			if !slices.ContainsFunc(v.Legacy, func(r metav1.APIResource) bool { return r.StorageVersionHash != "" }) {
				return fmt.Errorf("the document of %s %s is missing", v.Group, v.Version)
			}
		}
		return nil
	})
}

// must reports the error of a check.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}

// A gateway that starts while the servers behind it are away serves the discovery documents
// and accepts the tokens that the gateway before it did, also while etcd is away.
func TestLastGood(t *testing.T) {
	t.Parallel()
	a := newLasting(t)
	a.start(t, "core", "crd", "gateway")
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

	a.kill9(t, "gateway", "core", "crd")
	a.start(t, "gateway")
	a.reached(t, "/readyz")
	a.withoutServers(t, reader, before, things)

	a.etcd.Kill()
	a.kill9(t, "gateway")
	a.start(t, "gateway")
	e2e.Eventually(t, "the registered server is reached without etcd", things)
	a.withoutEtcd(t, reader, before, things)

	a.etcd.Start(t)
	a.reached(t, "/readyz")
	e2e.Eventually(t, "writes pass again", func() error {
		_, err := reader.ask(http.MethodPost, "/apis/rbac.authorization.k8s.io/v1/clusterroles", role("after"), "application/json", http.StatusCreated)
		return err
	})
	a.start(t, "core", "crd")
	e2e.Eventually(t, "discovery is as before", reader.same(before, "Current"))
	e2e.Eventually(t, "the core server is reached again", reader.get("/api/v1/namespaces/default", http.StatusOK))
	must(t, things())
	must(t, reader.get("/apis/rbac.authorization.k8s.io/v1/clusterroles/after", http.StatusOK)())
}

// withoutServers checks the responses of a gateway while its configured servers are away.
func (a *cluster) withoutServers(t *testing.T, reader holder, before map[string]string, things func() error) {
	t.Helper()
	must(t, things())
	must(t, a.as(t, reader.token+"x").get("/version", http.StatusUnauthorized)())
	must(t, reader.get("/api/v1", http.StatusOK, `"name":"configmaps"`, "storageVersionHash")())
	must(t, reader.get("/apis/apiextensions.k8s.io/v1", http.StatusOK, `"name":"customresourcedefinitions"`)())
	e2e.Eventually(t, "requests name the APIService that is away", reader.get("/api/v1/namespaces/default", http.StatusServiceUnavailable, `"kind":"Status"`, `APIService \"v1.\" is not available`))
	must(t, reader.get("/openapi/v3", http.StatusOK, `"api/v1":`, `"apis/coordination.k8s.io/v1":`, `"apis/apiextensions.k8s.io/v1":`)())
	must(t, reader.get("/openapi/v3/apis/coordination.k8s.io/v1", http.StatusServiceUnavailable, `"kind":"Status"`, "the server of the OpenAPI document apis/coordination.k8s.io/v1 is unavailable")())
	// Those of the core and the CRD server, of Services, service accounts and admission.
	e2e.Eventually(t, "a metric counts the last-good documents", a.as(t, "").get("/metrics", http.StatusOK, "portico_gateway_last_good_documents 10\n"))
	var away []string
	for name := range before {
		group, _, _ := strings.Cut(name, "/")
		if isOfBackend(group) {
			away = append(away, name)
		}
	}
	e2e.Eventually(t, "what is away is stale after the grace", reader.same(before, "Stale", away...))
}

// isOfBackend reports whether a group is served by the core or the CRD server.
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

// withoutEtcd checks that requests are proxied and discovery is served, and that writes are
// refused with a Status.
func (a *cluster) withoutEtcd(t *testing.T, reader holder, before map[string]string, things func() error) {
	t.Helper()
	must(t, things())
	now, err := reader.groups()
	if err != nil || len(now) != len(before) {
		t.Errorf("%d group/versions, want %d (%v)", len(now), len(before), err)
	}
	must(t, reader.get(registeredPath, http.StatusOK, `"name":"things"`)())
	began := time.Now()
	if _, err := reader.ask(http.MethodPost, "/apis/rbac.authorization.k8s.io/v1/clusterroles", role("during"), "application/json",
		http.StatusServiceUnavailable, `"kind":"Status"`); err != nil {
		t.Errorf("after %v: %v", time.Since(began), err)
	}
	must(t, things())
}

// second returns another gateway on the same etcd, with its own state directory, address and
// name.
func (a *cluster) second(t *testing.T) *cluster {
	t.Helper()
	b := *a
	b.up = &e2e.Installation{Installation: &testtools.Installation{Dir: a.up.Dir}}
	b.nodes = maps.Clone(a.nodes)
	b.add(t, "gateway")
	b.nodes["gateway"].cluster = &b
	b.connect(t, filepath.Join(a.up.Dir, "kubeconfig-second"))
	flags := slices.Clone(a.extra["gateway"])
	b.extra = map[string][]string{"gateway": append(flags, "--state-dir="+filepath.Join(a.up.Dir, "gateway-state-2"), "--instance-id=second")}
	return &b
}
