package main

import (
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/util/cert"

	"portico/cmd/e2e"
	"portico/internal/testing/await"
)

// reloadsEnv is set in a long run, which replaces the files that the kubeconfig names.
const reloadsEnv = "PORTICO_TEST_WEBHOOK_RELOADS"

// Gateway, core and CRD server show every webhook the client certificate and the token of the kubeconfig of its flag, or of
// --admission-control-config-file. In a long run the files of certificate, key, token and authorities are replaced; without a restart the next
// calls use the new ones, after the times of docs/operations.md.
func TestCredentialsForWebhooks(t *testing.T) {
	t.Parallel()
	hooks := startCredentialed(t)
	kubeconfig, policy, admission := hooks.file("webhooks.kubeconfig"), hooks.file("policy.yaml"), hooks.file("admission.yaml")
	e2e.WriteFile(t, kubeconfig, fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: a
contexts: [{name: a, context: {cluster: a, user: "*"}}]
clusters: [{name: a, cluster: {server: %q, certificate-authority: ca.crt}}]
users: [{name: "*", user: {client-certificate: client.crt, client-key: client.key, tokenFile: token}}]
`, hooks.server.URL))
	e2e.WriteFile(t, policy, "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]\n")
	text := "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins:\n"
	for _, plugin := range []string{"MutatingAdmissionWebhook", "ValidatingAdmissionWebhook"} {
		text += fmt.Sprintf("- {name: %s, configuration: {apiVersion: apiserver.config.k8s.io/v1, kind: WebhookAdmissionConfiguration, kubeConfigFile: %q}}\n", plugin, kubeconfig)
	}
	e2e.WriteFile(t, admission, text)
	up := e2e.Install(t, hooks.file("data"), "--admission-control-config-file="+admission, "--audit-policy-file="+policy, "--audit-webhook-config-file="+kubeconfig, "--audit-webhook-mode=blocking",
		"--authentication-token-webhook-config-file="+kubeconfig, "--authentication-token-webhook-version=v1", "--authentication-token-webhook-cache-ttl=0s",
		"--authorization-mode=RBAC,Webhook", "--authorization-webhook-config-file="+kubeconfig, "--authorization-webhook-version=v1",
		"--authorization-webhook-cache-authorized-ttl=0s", "--authorization-webhook-cache-unauthorized-ttl=0s")
	const group = "hooks.example.com"
	e2e.Define(t, e2e.DynamicClient(t, up.Config(t)), group)
	for _, kind := range []string{"mutating", "validating"} {
		up.Post(t, e2e.Admission+kind+"webhookconfigurations", fmt.Sprintf(`{"metadata":{"name":"credentials"},"webhooks":[{"name":"a.example.com","sideEffects":"None","failurePolicy":"Fail",
			"admissionReviewVersions":["v1"],"rules":[{"apiGroups":["","%s","rbac.authorization.k8s.io"],"apiVersions":["*"],"resources":["configmaps","widgets","clusterroles"],"operations":["CREATE"]}],
			"clientConfig":{"url":"%s/%s","caBundle":%q}}]}`, group, hooks.server.URL, kind, base64.StdEncoding.EncodeToString(hooks.authorities())))
	}
	call := func() error {
		for path, object := range map[string]string{
			"/api/v1/namespaces/default/configmaps":              `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}`,
			"/apis/" + group + "/v1/namespaces/default/widgets":  `{"apiVersion":"` + group + `/v1","kind":"Widget","metadata":{"name":"a"}}`,
			"/apis/rbac.authorization.k8s.io/v1/clusterroles":    `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRole","metadata":{"name":"a"}}`,
			"/apis/authorization.k8s.io/v1/subjectaccessreviews": `{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","spec":{"user":"jane","nonResourceAttributes":{"path":"/x","verb":"get"}}}`,
			"/apis/authentication.k8s.io/v1/tokenreviews":        `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenReview","spec":{"token":"x"}}`,
		} {
			if code, answer := up.Do(t, http.MethodPost, path+"?dryRun=All", object); code != http.StatusCreated {
				return fmt.Errorf("%s: %d %s", path, code, answer)
			}
		}
		return nil
	}
	failed := 0
	show := func(what, want string, limit time.Duration, names ...string) {
		t.Helper()
		began, late := time.Now(), map[string]time.Duration{}
		e2e.Within(t, limit, what, func() error {
			hooks.forget()
			if err := call(); err != nil {
				failed++
				t.Log(err)
				return err
			}
			for _, name := range names {
				if got := hooks.shown(name); !strings.Contains(got, want) {
					return fmt.Errorf("%s: %q, want %q", name, got, want)
				}
				if _, seen := late[name]; !seen {
					late[name] = time.Since(began).Round(time.Second)
				}
			}
			return nil
		})
		t.Log(what, late)
	}
	all := []string{"TokenReview", "SubjectAccessReview", "EventList"}
	for _, plural := range []string{"configmaps", "widgets", "clusterroles"} {
		all = append(all, "/mutating "+plural, "/validating "+plural)
	}
	show("the first credentials are shown", "first Bearer first", await.Patience(), all...)
	if failed > 0 {
		t.Errorf("%d calls failed", failed)
	}
	if os.Getenv(reloadsEnv) == "" {
		return
	}
	hooks.issue("second")
	hooks.write("ca.crt", hooks.authorities())
	show("the second token is shown", "Bearer second", 2*time.Minute, all...)
	// client-go closes connections when it finds another certificate: what is under way fails, once for each process and webhook.
	show("the second certificate is shown", "second Bearer second", 6*time.Minute, all...)
	if failed > len(all) {
		t.Errorf("%d calls failed", failed)
	}
	hooks.second.Store(true)
	hooks.server.CloseClientConnections()
	show("a server of the second authority is trusted", "second Bearer second", 7*time.Minute, all...)
}

// credentialed is a server that is every webhook, and the files of the kubeconfig for it.
type credentialed struct {
	t       *testing.T
	dir     string
	server  *httptest.Server
	pairs   [2]tls.Certificate // of the server
	cas     [2][]byte
	second  atomic.Bool // the second pair is shown
	mu      sync.Mutex
	clients map[string]string // what clients have shown, by what they ask
}

func startCredentialed(t *testing.T) *credentialed {
	t.Helper()
	e2e.NeedsInstallation(t)
	c := &credentialed{t: t, dir: t.TempDir(), clients: map[string]string{}}
	for i := range c.pairs {
		crt, key, err := cert.GenerateSelfSignedCertKey("127.0.0.1", []net.IP{net.IPv4(127, 0, 0, 1)}, nil)
		if err == nil {
			c.cas[i] = crt
			c.pairs[i], err = tls.X509KeyPair(crt, key)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	c.server = httptest.NewUnstartedServer(c)
	c.server.TLS = &tls.Config{ClientAuth: tls.RequestClientCert, GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		pair := c.pairs[0]
		if c.second.Load() {
			pair = c.pairs[1]
		}
		return &tls.Config{ClientAuth: tls.RequestClientCert, Certificates: []tls.Certificate{pair}}, nil
	}}
	c.server.StartTLS()
	t.Cleanup(c.server.Close)
	c.write("ca.crt", c.cas[0])
	c.issue("first")
	return c
}

func (c *credentialed) file(name string) string { return filepath.Join(c.dir, name) }

// authorities are those of both pairs of the server.
func (c *credentialed) authorities() []byte { return slices.Concat(c.cas[0], c.cas[1]) }

// write replaces a file.
func (c *credentialed) write(name string, data []byte) {
	c.t.Helper()
	e2e.WriteFile(c.t, c.file(name+".new"), string(data))
	if err := os.Rename(c.file(name+".new"), c.file(name)); err != nil {
		c.t.Fatal(err)
	}
}

// issue replaces the client certificate, its key and the token.
func (c *credentialed) issue(name string) {
	c.t.Helper()
	crt, key, err := cert.GenerateSelfSignedCertKey(name, nil, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	c.write("client.key", key)
	c.write("client.crt", crt)
	c.write("token", []byte(name))
}

func (c *credentialed) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.clients)
}

func (c *credentialed) shown(name string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.clients[name]
}

// ServeHTTP records what the client shows, and answers: yes to authentication and admission, no opinion to authorization.
func (c *credentialed) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	data, err := io.ReadAll(r.Body)
	var asked struct {
		APIVersion, Kind string
		Request          struct {
			UID      string
			Resource struct{ Resource string }
		}
	}
	if err == nil {
		err = json.Unmarshal(data, &asked)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	name, answer := asked.Kind, map[string]any{"apiVersion": asked.APIVersion, "kind": asked.Kind}
	switch asked.Kind {
	case "TokenReview":
		answer["status"] = map[string]any{"authenticated": true, "user": map[string]any{"username": "jane"}}
	case "SubjectAccessReview":
		answer["status"] = map[string]any{"allowed": false}
	case "AdmissionReview":
		name = r.URL.Path + " " + asked.Request.Resource.Resource
		answer["response"] = map[string]any{"uid": asked.Request.UID, "allowed": true}
	}
	shows := "nothing"
	if peers := r.TLS.PeerCertificates; len(peers) > 0 {
		shows = strings.Join(peers[0].DNSNames, ",")
	}
	c.mu.Lock()
	c.clients[name] = shows + " " + r.Header.Get("Authorization")
	c.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer) // the client reports a failed write
}
