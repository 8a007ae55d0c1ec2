package attack

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"

	"portico/internal/testing/await"
)

const signingRequests = "/apis/certificates.k8s.io/v1/certificatesigningrequests"

// request asks for a certificate as the user of client, and returns it with its key; nil with the
// message of a failure. With approve the administrator approves it first.
func (i *installation) request(t *testing.T, client *http.Client, signer string, usages []string, of x509.CertificateRequest, approve bool) (*tls.Certificate, string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &of, key)
	if err != nil {
		t.Fatal(err)
	}
	name := fmt.Sprintf("r%d", time.Now().UnixNano())
	asked, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"name": name},
		"spec": map[string]any{"signerName": signer, "usages": usages, "request": base64.StdEncoding.EncodeToString(
			pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}))},
	})
	if err != nil {
		t.Fatal(err)
	}
	if code, answer, err := i.ask(client, "POST", signingRequests, string(asked)); err != nil || code != http.StatusCreated {
		return nil, fmt.Sprint(code, answer, err)
	}
	if approve {
		i.must(t, "PATCH", signingRequests+"/"+name+"/approval", `{"status":{"conditions":[{"type":"Approved","status":"True","reason":"r","message":"m"}]}}`, merge)
	}
	for deadline := time.Now().Add(await.Patience()); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		var r certificatesv1.CertificateSigningRequest
		if err := json.Unmarshal([]byte(i.must(t, "GET", signingRequests+"/"+name, "")), &r); err != nil {
			t.Fatal(err)
		}
		out := &tls.Certificate{PrivateKey: key}
		for block, rest := pem.Decode(r.Status.Certificate); block != nil; block, rest = pem.Decode(rest) {
			out.Certificate = append(out.Certificate, block.Bytes)
		}
		if len(out.Certificate) > 0 {
			return out, ""
		}
		for _, c := range r.Status.Conditions {
			if c.Type == certificatesv1.CertificateFailed {
				return nil, c.Message
			}
		}
	}
	return nil, "no outcome"
}

// A certificate that is requested from the API counts for its user, and as nothing else: not as
// a front proxy, a server, an authority or one of Portico's processes.
func TestRequestedCertificates(t *testing.T) {
	t.Parallel()
	i := target
	const client, kubelet, serving = "kubernetes.io/kube-apiserver-client", "kubernetes.io/kube-apiserver-client-kubelet", "kubernetes.io/kubelet-serving"
	clientUsages, servingUsages := []string{"client auth", "digital signature"}, []string{"server auth", "digital signature"}
	names := []string{"X-Remote-User: mallory", "X-Remote-Group: system:masters"}
	of := func(name string, groups ...string) x509.CertificateRequest {
		return x509.CertificateRequest{Subject: pkix.Name{CommonName: name, Organization: groups}}
	}
	node, server := of("system:node:n1", "system:nodes"), of("system:node:n1", "system:nodes")
	server.DNSNames = []string{"localhost"}
	i.grant(t, "bootstrap", "", policyRule{APIGroups: []string{"certificates.k8s.io"}, Resources: []string{"certificatesigningrequests", "certificatesigningrequests/nodeclient"}, Verbs: []string{"create"}})
	bootstrap := i.client(i.user(t, "bootstrap"))
	for _, tc := range []struct {
		name, signer string
		by           *http.Client // nil: the administrator, with the right to approve
		usages       []string
		of           x509.CertificateRequest
		header       []string
		refused      string // what the request fails with
		code         int
		user         string
		groups       []string
	}{
		{"a user", client, nil, clientUsages, of("jane", "g"), nil, "", 201, "jane", []string{"g"}},
		{"a user, with another user", client, nil, clientUsages, of("jane"), names, "", 201, "jane", nil},
		{"the front proxy's name, with a user", client, nil, clientUsages, of("front-proxy-client"), names, "", 201, "front-proxy-client", nil},
		{"an administrator", client, nil, clientUsages, of("jane", masters), nil, "with system:masters group is not allowed", 0, "", nil},
		{"the core server", client, nil, clientUsages, of("system:portico:core"), nil, "one of Portico's processes", 0, "", nil},
		{"a server", client, nil, servingUsages, of("jane"), nil, "invalid usage for client certificate: server auth", 0, "", nil},
		{"a kubelet, without approval by hand", kubelet, bootstrap, clientUsages, node, nil, "", 201, "system:node:n1", []string{"system:nodes"}},
		{"a server of a kubelet, as a user", serving, nil, servingUsages, server, nil, "", 401, "", nil},
		{"a server of a kubelet, as a front proxy", serving, nil, servingUsages, server, names, "", 401, "", nil},
	} {
		by := tc.by
		if by == nil {
			by = i.admin
		}
		got, refused := i.request(t, by, tc.signer, tc.usages, tc.of, tc.by == nil)
		if (got == nil) != (tc.refused != "") || !strings.Contains(refused, tc.refused) {
			t.Errorf("%s: refused %q, want %q", tc.name, refused, tc.refused)
		}
		if got == nil {
			continue
		}
		code, user, groups, err := i.review(i.client(got), tc.header...)
		want := slices.Clone(tc.groups)
		if tc.code == http.StatusCreated {
			want = append(want, "system:authenticated")
		}
		if err != nil || code != tc.code || user != tc.user || !slices.Equal(groups, want) {
			t.Errorf("%s: %d as %q of %q, %v, want %d as %q of %q", tc.name, code, user, groups, err, tc.code, tc.user, want)
		}
		if _, err := i.verify(t, got, "serving-ca", x509.ExtKeyUsageServerAuth); err == nil {
			t.Errorf("%s: clients of the gateway trust it as a server", tc.name)
		}
		if _, err := i.verify(t, got, "front-proxy-ca", x509.ExtKeyUsageClientAuth); err == nil {
			t.Errorf("%s: it is one of the front proxies' authority", tc.name)
		}
		if len(got.Certificate) > 1 {
			got.Certificate = got.Certificate[:1]
			if code, user, _, err := i.review(i.client(got)); err != nil || code != http.StatusUnauthorized {
				t.Errorf("%s, without the chain: %d as %q, %v", tc.name, code, user, err)
			}
		}
	}
}

// The authority of requested certificates signs users alone, even in the hands of an attacker.
func TestAuthorityOfRequestedCertificates(t *testing.T) {
	t.Parallel()
	i := target
	signing, err := readAuthority(i.file("signing-ca.crt"), i.file("signing-ca.key"))
	if err != nil {
		t.Fatal(err)
	}
	chain := func(c *tls.Certificate, above ...*x509.Certificate) *tls.Certificate {
		for _, a := range above {
			c.Certificate = append(c.Certificate, a.Raw)
		}
		return c
	}
	user := chain(signing.issue(t, subject{name: "jane"}), signing.cert)
	if code, name, _, err := i.review(i.client(user)); err != nil || code != http.StatusCreated || name != "jane" {
		t.Errorf("control: a user: %d as %q, %v", code, name, err)
	}
	below := signing.issue(t, subject{name: "below", ca: true})
	belowCert, err := x509.ParseCertificate(below.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	sub := &authority{cert: belowCert, key: ecdsaKey(below)}
	if code, name, _, err := i.review(i.client(chain(sub.issue(t, subject{name: "mallory"}), belowCert, signing.cert))); err != nil || code != http.StatusUnauthorized {
		t.Errorf("an authority below: %d as %q, %v", code, name, err)
	}
	server := chain(signing.issue(t, subject{name: "gateway", hosts: []string{"127.0.0.1"}}), signing.cert)
	for _, root := range []string{"client-ca", "serving-ca", "front-proxy-ca"} {
		if _, err := i.verify(t, server, root, x509.ExtKeyUsageServerAuth); err == nil {
			t.Errorf("a server is valid by %s", root)
		}
	}
}

// verify verifies a certificate with its chain by an authority of the installation.
func (i *installation) verify(t *testing.T, c *tls.Certificate, root string, usage x509.ExtKeyUsage) ([][]*x509.Certificate, error) {
	t.Helper()
	by, err := readAuthority(i.file(root+".crt"), i.file(root+".key"))
	if err != nil {
		t.Fatal(err)
	}
	options := x509.VerifyOptions{Roots: x509.NewCertPool(), Intermediates: x509.NewCertPool(), KeyUsages: []x509.ExtKeyUsage{usage}}
	options.Roots.AddCert(by.cert)
	var leaf *x509.Certificate
	for n, der := range c.Certificate {
		cert, err := x509.ParseCertificate(der)
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			leaf = cert
		} else {
			options.Intermediates.AddCert(cert)
		}
	}
	return leaf.Verify(options)
}
