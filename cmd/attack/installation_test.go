package attack

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"

	"portico/cmd/e2e"
	"portico/cmd/internal/pki"
	"portico/cmd/internal/testtools"
	"portico/internal/testing/await"
	"portico/internal/testing/issuertest"
	"portico/internal/testing/tracetest"
)

// installation is the attacked installation.
type installation struct {
	*testtools.Installation
	host string // host:port of the gateway
	// The authorities of the installation, and one that it does not trust, with the name of
	// clients.
	clients, frontProxies, servers, stranger *authority
	// trust has the authority of the gateway's certificate.
	trust *x509.CertPool
	// administrator is the certificate of admin.
	administrator *tls.Certificate
	admin         *http.Client
	// issuers are the issuers of tokens, whose users are login:NAME and other:NAME.
	issuers [2]*issuertest.Issuer
	// traces has the spans of all processes.
	traces *tracetest.Collector
}

// target is the installation under attack, started by TestMain.
var target *installation

func TestMain(m *testing.M) {
	code, err := attackOne(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// Files of the gateway's access log and audit log, in the data folder.
const (
	accessLog = "access.log"
	auditLog  = "audit.log"
)

// auditPolicy records all bodies except those of resources that hold credentials.
const auditPolicy = `{"apiVersion":"audit.k8s.io/v1","kind":"Policy","rules":[
	{"level":"Metadata","resources":[{"group":"","resources":["secrets","serviceaccounts/token"]},{"group":"authentication.k8s.io"}]},
	{"level":"RequestResponse"}]}`

// attackOne runs the tests with an installation of their own; with -short it runs none.
func attackOne(m *testing.M) (code int, err error) {
	flag.Parse()
	if testing.Short() {
		fmt.Println("attacks are left out with -short")
		return 0, nil
	}
	dir, err := os.MkdirTemp("", "portico-attack")
	if err != nil {
		return 1, err
	}
	defer os.RemoveAll(dir)
	issuers, config, err := startIssuers(dir)
	if err != nil {
		return 1, err
	}
	defer issuers[0].Close()
	defer issuers[1].Close()
	policy, tracing := filepath.Join(dir, "audit-policy.json"), filepath.Join(dir, "tracing.yaml")
	if err := os.WriteFile(policy, []byte(auditPolicy), 0o600); err != nil {
		return 1, err
	}
	traces, err := tracetest.Start()
	if err != nil {
		return 1, err
	}
	defer traces.Stop()
	if err := os.WriteFile(tracing, []byte(traces.Config), 0o600); err != nil {
		return 1, err
	}
	if err := writeFirstLists(dir); err != nil {
		return 1, err
	}
	up, err := testtools.Launch(dir, "--client-crl-file="+filepath.Join(dir, revocationLists), "--access-log="+filepath.Join(dir, accessLog),
		"--audit-policy-file="+policy, "--audit-log-path="+filepath.Join(dir, auditLog), "--audit-log-mode=batch", "--tracing-config-file="+tracing, "--v=10",
		`--cors-allowed-origins=^https://friend\.example(:|$)`, "--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction", "--enable-bootstrap-token-auth", "--authentication-config="+config, "--requestheader-username-headers=X-Remote-User,X-Login-User", "--requestheader-uid-headers=X-Remote-Uid,X-Login-Uid",
		"--requestheader-group-headers=X-Remote-Group,X-Login-Group", "--requestheader-extra-headers-prefix=X-Remote-Extra-,X-Login-Extra-")
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, up.Stop()) }()
	if target, err = newInstallation(up); err != nil {
		return 1, err
	}
	target.issuers, target.traces = issuers, traces
	return m.Run(), nil
}

func newInstallation(up *testtools.Installation) (*installation, error) {
	i := &installation{Installation: up, host: strings.TrimPrefix(up.Endpoint, "https://"), trust: x509.NewCertPool()}
	for name, to := range map[string]**authority{"client-ca": &i.clients, "front-proxy-ca": &i.frontProxies, "serving-ca": &i.servers} {
		a, err := readAuthority(i.file(name+".crt"), i.file(name+".key"))
		if err != nil {
			return nil, err
		}
		*to = a
	}
	i.trust.AddCert(i.servers.cert)
	if err := pki.EnsureAuthorities(i.file("stranger")); err != nil {
		return nil, err
	}
	var err error
	if i.stranger, err = readAuthority(i.file("stranger/client-ca.crt"), i.file("stranger/client-ca.key")); err != nil {
		return nil, err
	}
	if i.administrator, err = i.pair("admin"); err != nil {
		return nil, err
	}
	i.admin = i.client(i.administrator)
	for _, namespace := range []string{"a", "b"} {
		if code, body, err := i.ask(i.admin, "POST", "/api/v1/namespaces", `{"metadata":{"name":"`+namespace+`"}}`); err != nil || code != http.StatusCreated {
			return nil, fmt.Errorf("create namespace %s: %d %s %v", namespace, code, body, err)
		}
	}
	return i, nil
}

// namespace creates a namespace.
func (i *installation) namespace(t *testing.T, name string) {
	t.Helper()
	i.must(t, "POST", "/api/v1/namespaces", `{"metadata":{"name":"`+name+`"}}`)
}

// file returns a file of the folder of certificates and keys.
func (i *installation) file(name string) string { return filepath.Join(i.Dir, "pki", name) }

// pair reads a certificate of the installation.
func (i *installation) pair(name string) (*tls.Certificate, error) {
	pair, err := tls.LoadX509KeyPair(i.file(name+".crt"), i.file(name+".key"))
	return &pair, err
}

// client returns a client with a certificate, or without one.
func (i *installation) client(certificate *tls.Certificate) *http.Client {
	return &http.Client{
		Timeout: await.Patience(),
		Transport: &http.Transport{
			TLSClientConfig: i.tls(certificate), ForceAttemptHTTP2: true, DisableCompression: true, IdleConnTimeout: time.Minute,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// tls returns the configuration of a client of the gateway with a certificate, or without
// one.
func (i *installation) tls(certificate *tls.Certificate) *tls.Config {
	config := &tls.Config{RootCAs: i.trust, ServerName: "localhost", MinVersion: tls.VersionTLS12}
	if certificate != nil {
		// Sent also if the server does not accept the authority.
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return certificate, nil }
	}
	return config
}

// ask sends a request and returns the status and the body of the response. Header lines are
// "Name: value", or "" for none; the default Content-Type is JSON. The path is not changed.
func (i *installation) ask(client *http.Client, method, path, body string, header ...string) (code int, answer string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), await.Patience())
	defer cancel()
	var reader io.Reader
	if body != "" {
		reader = strings.NewReader(body)
	}
	r, err := http.NewRequestWithContext(ctx, method, "https://"+i.host, reader)
	if err != nil {
		return 0, "", err
	}
	path, query, _ := strings.Cut(path, "?")
	r.URL = &url.URL{Scheme: "https", Host: i.host, Opaque: path, RawQuery: query}
	r.Header.Set("Content-Type", "application/json")
	for _, line := range header {
		name, value, _ := strings.Cut(line, ": ")
		if name == "Content-Type" {
			r.Header.Del(name)
		}
		if name != "" {
			r.Header[name] = append(r.Header[name], value) // not canonical
		}
	}
	res, err := client.Do(r)
	if err != nil {
		return 0, "", err
	}
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	return res.StatusCode, string(data), err
}

// must sends a request of the administrator that must succeed and returns the response.
func (i *installation) must(t *testing.T, method, path, body string, header ...string) string {
	t.Helper()
	code, answer, err := i.ask(i.admin, method, path, body, header...)
	if err != nil || code >= 300 {
		t.Fatalf("%s %s: %d %s %v", method, path, code, answer, err)
	}
	return answer
}

// user issues the certificate of a user.
func (i *installation) user(t *testing.T, name string, groups ...string) *tls.Certificate {
	t.Helper()
	return i.clients.issue(t, subject{name: name, groups: groups})
}

// policyRule is a rule of a role.
type policyRule = rbacv1.PolicyRule

// grant gives a user rules in a namespace, or everywhere for "", and returns when they
// apply.
func (i *installation) grant(t *testing.T, user, namespace string, rules ...policyRule) {
	t.Helper()
	encoded, err := json.Marshal(rules)
	if err != nil {
		t.Fatal(err)
	}
	path, kind := rbac, "ClusterRole"
	if namespace != "" {
		path, kind = path+"/namespaces/"+namespace, "Role"
	}
	name := fmt.Sprintf("attack-%s-%d", user, time.Now().UnixNano())
	plural := "/" + strings.ToLower(kind)
	i.must(t, "POST", path+plural+"s", rbacObject(kind, name, `"rules":`+string(encoded)))
	i.must(t, "POST", path+plural+"bindings", rbacObject(kind+"Binding", name, fmt.Sprintf(
		`"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":%q,"name":%q},%s`, kind, name, strings.ReplaceAll(toSelf, "SELF", user))))
	for _, rule := range rules {
		eventually(t, "rights of "+user, func() error { return i.may(t, user, namespace, rule) })
	}
}

// may returns an error unless a user may use the first verb of a rule on its first resource or
// URL.
func (i *installation) may(t *testing.T, user, namespace string, rule policyRule) error {
	t.Helper()
	spec := authorizationv1.SubjectAccessReviewSpec{User: user, Groups: []string{"system:authenticated"}}
	if len(rule.NonResourceURLs) > 0 {
		spec.NonResourceAttributes = &authorizationv1.NonResourceAttributes{Verb: rule.Verbs[0], Path: rule.NonResourceURLs[0]}
	} else {
		resource, subresource, _ := strings.Cut(rule.Resources[0], "/")
		spec.ResourceAttributes = &authorizationv1.ResourceAttributes{
			Verb: rule.Verbs[0], Namespace: namespace, Group: rule.APIGroups[0], Resource: resource, Subresource: subresource,
			Name: strings.Join(rule.ResourceNames, ""),
		}
	}
	review, err := json.Marshal(authorizationv1.SubjectAccessReview{Spec: spec})
	if err != nil {
		return err
	}
	if answer := i.must(t, "POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", string(review)); !strings.Contains(answer, `"allowed":true`) {
		return errors.New(answer)
	}
	return nil
}

// eventually polls until ok returns nil.
var eventually = e2e.Eventually

// answers returns an error unless the administrator gets a status and a text.
func (i *installation) answers(path string, code int, text string) error {
	got, body, err := i.ask(i.admin, "GET", path, "")
	if err == nil && (got != code || !strings.Contains(body, text)) {
		err = fmt.Errorf("%d %.500s, want %d and %q", got, body, code, text)
	}
	return err
}

// query adds a parameter to a path.
func query(path, parameter string) string {
	if strings.Contains(path, "?") {
		return path + "&" + parameter
	}
	return path + "?" + parameter
}

// base64Of returns a file's content as in JSON.
func base64Of(data []byte) string { return base64.StdEncoding.EncodeToString(data) }

// compact returns JSON without white space.
func compact(text string) string {
	var out bytes.Buffer
	if err := json.Compact(&out, []byte(text)); err != nil {
		return text
	}
	return out.String()
}
