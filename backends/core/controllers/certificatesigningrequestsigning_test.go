package controllers

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/keyutil"
	clocktesting "k8s.io/utils/clock/testing"

	"portico/internal/testing/await"
	"portico/resource/authn"
)

// newAuthority makes an authority, below another one unless by is nil, in files.
func newAuthority(t *testing.T, by *x509.Certificate, byKey *ecdsa.PrivateKey, notAfter time.Time) (SigningFiles, *x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key := must[*ecdsa.PrivateKey](t)(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "root"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: notAfter.Add(-10000 * time.Hour), NotAfter: notAfter, KeyUsage: x509.KeyUsageCertSign,
	}
	if by == nil {
		by, byKey = template, key
	} else {
		template.Subject.CommonName = "intermediate"
	}
	der := must[[]byte](t)(x509.CreateCertificate(rand.Reader, template, by, key.Public(), byKey))
	files := SigningFiles{filepath.Join(t.TempDir(), "ca.crt"), filepath.Join(t.TempDir(), "ca.key")}
	for name, data := range map[string][]byte{
		files.CertFile: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), files.KeyFile: must[[]byte](t)(keyutil.MarshalPrivateKeyToPEM(key)),
	} {
		if err := os.WriteFile(name, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return files, must[*x509.Certificate](t)(x509.ParseCertificate(der)), key
}

// request returns a CertificateSigningRequest.
func request(t *testing.T, name, signer, usages string, template x509.CertificateRequest) *signingRequest {
	t.Helper()
	key := must[*ecdsa.PrivateKey](t)(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	der := must[[]byte](t)(x509.CreateCertificateRequest(rand.Reader, &template, key))
	r := &signingRequest{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: certificatesv1.CertificateSigningRequestSpec{
		SignerName: signer, Request: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}),
	}}
	for _, u := range strings.Split(usages, ",") {
		r.Spec.Usages = append(r.Spec.Usages, certificatesv1.KeyUsage(u))
	}
	return r
}

// approve stores a request with a condition of its approval.
func approve(t *testing.T, s *server, r *signingRequest, condition certificatesv1.RequestConditionType) {
	t.Helper()
	client := s.CertificatesV1().CertificateSigningRequests()
	r = must[*signingRequest](t)(client.Create(t.Context(), r, metav1.CreateOptions{}))
	if condition == "" {
		return
	}
	r.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: condition, Status: corev1.ConditionTrue, Reason: "r", Message: "m"}}
	must[*signingRequest](t)(client.UpdateApproval(t.Context(), r.Name, r, metav1.UpdateOptions{}))
}

const (
	clientSigner, kubeletSigner, servingSigning = certificatesv1.KubeAPIServerClientSignerName, certificatesv1.KubeAPIServerClientKubeletSignerName, certificatesv1.KubeletServingSignerName
	clientUsages, servingUsages                 = "digital signature,key encipherment,client auth", "digital signature,key encipherment,server auth"
)

// Each signer signs what kube-controller-manager's would, and says in a condition what is wrong
// with the rest. What is not approved, or has no authority, stays as it is.
func TestSigners(t *testing.T) {
	t.Parallel()
	node := pkix.Name{CommonName: "system:node:n1", Organization: []string{"system:nodes"}}
	hosts := []string{"n1"}
	address := []net.IP{net.IPv4(10, 0, 0, 1)}
	uri := []*url.URL{{Scheme: "spiffe", Host: "a"}}
	subject := func(cn string, o ...string) pkix.Name { return pkix.Name{CommonName: cn, Organization: o} }
	type csr = x509.CertificateRequest
	cases := map[string]struct {
		signer, usages string
		of             csr
		want           string // the message of the failure; "": it is signed; "-": neither
	}{
		"client":                {clientSigner, "client auth", csr{Subject: subject("jane", "dev"), DNSNames: hosts}, ""},
		"client-of-masters":     {clientSigner, "client auth", csr{Subject: subject("jane", "dev", "system:masters")}, "use of kubernetes.io/kube-apiserver-client signer with system:masters group is not allowed"},
		"client-as-process":     {clientSigner, "client auth", csr{Subject: subject("system:portico:core")}, "with the name of one of Portico's processes"},
		"client-for-server":     {clientSigner, servingUsages, csr{Subject: subject("jane")}, "invalid usage for client certificate: server auth"},
		"client-without-usage":  {clientSigner, "digital signature", csr{Subject: subject("jane")}, "missing required usage for client certificate: client auth"},
		"kubelet":               {kubeletSigner, clientUsages, csr{Subject: node}, ""},
		"kubelet-of-no-nodes":   {kubeletSigner, clientUsages, csr{Subject: subject("system:node:n1", "system:nodes", "dev")}, "subject organization is not system:nodes"},
		"kubelet-of-no-node":    {kubeletSigner, clientUsages, csr{Subject: subject("jane", "system:nodes")}, "subject common name does not begin with system:node:"},
		"kubelet-with-host":     {kubeletSigner, clientUsages, csr{Subject: node, DNSNames: hosts}, "DNS subjectAltNames are not allowed"},
		"kubelet-with-email":    {kubeletSigner, clientUsages, csr{Subject: node, EmailAddresses: []string{"a@b.c"}}, "Email subjectAltNames are not allowed"},
		"kubelet-with-address":  {kubeletSigner, clientUsages, csr{Subject: node, IPAddresses: address}, "IP subjectAltNames are not allowed"},
		"kubelet-with-uri":      {kubeletSigner, clientUsages, csr{Subject: node, URIs: uri}, "URI subjectAltNames are not allowed"},
		"kubelet-as-server":     {kubeletSigner, servingUsages, csr{Subject: node}, "usages did not match [client auth digital signature key encipherment]"},
		"serving":               {servingSigning, servingUsages, csr{Subject: node, DNSNames: hosts, IPAddresses: address}, ""},
		"serving-by-ecdsa":      {servingSigning, "server auth,digital signature", csr{Subject: node, IPAddresses: address}, ""},
		"serving-without-hosts": {servingSigning, servingUsages, csr{Subject: node}, "DNS or IP subjectAltName is required"},
		"serving-with-uri":      {servingSigning, servingUsages, csr{Subject: node, DNSNames: hosts, URIs: uri}, "URI subjectAltNames are not allowed"},
		"serving-of-no-nodes":   {servingSigning, servingUsages, csr{Subject: subject("system:node:n1"), DNSNames: hosts}, "subject organization is not system:nodes"},
		"serving-as-client":     {servingSigning, clientUsages, csr{Subject: node, DNSNames: hosts}, "usages did not match [digital signature key encipherment server auth]"},
		"serving-of-no-node":    {servingSigning, servingUsages, csr{Subject: subject("jane", "system:nodes"), DNSNames: hosts}, "subject common name does not begin with system:node:"},
		"of-another-signer":     {"example.com/signer", "client auth", csr{Subject: subject("jane")}, "-"},
	}
	files, root, _ := newAuthority(t, nil, nil, time.Now().Add(10000*time.Hour))
	s := newServer(t)
	client := s.CertificatesV1().CertificateSigningRequests()
	for name, c := range cases {
		approve(t, s, request(t, name, c.signer, c.usages, c.of), certificatesv1.CertificateApproved)
	}
	jane := csr{Subject: subject("jane")}
	approve(t, s, request(t, "pending", clientSigner, "client auth", jane), "")
	approve(t, s, request(t, "denied", clientSigner, "client auth", jane), certificatesv1.CertificateDenied)
	s.run("certificatesigningrequest-signing-controller", Options{Signing: Signing{SigningFiles: files}}, nil)
	for name, c := range cases {
		if c.want == "-" {
			continue
		}
		await.Until(t, name+" has an outcome", func() bool {
			r := must[*signingRequest](t)(client.Get(t.Context(), name, metav1.GetOptions{}))
			if len(r.Status.Certificate) == 0 && !has(r, certificatesv1.CertificateFailed) {
				return false
			}
			last := r.Status.Conditions[len(r.Status.Conditions)-1]
			if c.want != "" && (last.Reason != "SignerValidationFailure" || !strings.Contains(last.Message, c.want)) || c.want == "" && len(r.Status.Certificate) == 0 {
				t.Errorf("%s: %+v", name, last)
			}
			return true
		})
	}
	for _, name := range []string{"pending", "denied", "of-another-signer"} {
		if r := must[*signingRequest](t)(client.Get(t.Context(), name, metav1.GetOptions{})); len(r.Status.Certificate) > 0 || len(r.Status.Conditions) > 1 {
			t.Errorf("%s: %+v", name, r.Status)
		}
	}
	r := must[*signingRequest](t)(client.Get(t.Context(), "client", metav1.GetOptions{}))
	block, rest := pem.Decode(r.Status.Certificate)
	cert := must[*x509.Certificate](t)(x509.ParseCertificate(block.Bytes))
	if err := cert.CheckSignatureFrom(root); err != nil || len(rest) > 0 {
		t.Errorf("signed by %v: %v; then %q", cert.Issuer, err, rest)
	}
	if cert.Subject.String() != "CN=jane,O=dev" || cert.IsCA || !cert.BasicConstraintsValid || !slices.Equal(cert.DNSNames, hosts) ||
		!slices.Equal(cert.ExtKeyUsage, []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}) || cert.KeyUsage != 0 {
		t.Errorf("the certificate is %+v", cert)
	}
}

// The lifetime of a certificate is the one that is asked for, within bounds, and ends with that of
// its authority.
func TestLifetimeOfCertificates(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	files, _, _ := newAuthority(t, nil, nil, now.Add(1000*time.Hour))
	s := &Signing{SigningFiles: files}
	authority := current(must[map[string]*authn.KeyPair](t)(s.authorities())[clientSigner])
	for name, c := range map[string]struct {
		asked   *int32
		longest time.Duration
		want    time.Duration // after now
	}{
		"none":     {nil, 100 * time.Hour, 100*time.Hour - 5*time.Minute},
		"asked":    {new(int32(9 * 3600)), 100 * time.Hour, 9*time.Hour - 5*time.Minute},
		"short":    {new(int32(3600)), 100 * time.Hour, time.Hour},
		"shortest": {new(int32(1)), 100 * time.Hour, 10 * time.Minute},
		"too long": {new(int32(200 * 3600)), 100 * time.Hour, 100*time.Hour - 5*time.Minute},
		"default":  {nil, 0, 1000 * time.Hour},
	} {
		r := request(t, "r", clientSigner, "client auth", x509.CertificateRequest{Subject: pkix.Name{CommonName: "jane"}})
		r.Spec.ExpirationSeconds = c.asked
		parsed := must[*x509.CertificateRequest](t)(parseRequest(r.Spec.Request))
		data := must[[]byte](t)(sign(authority, parsed, r, c.longest, now))
		block, _ := pem.Decode(data)
		cert := must[*x509.Certificate](t)(x509.ParseCertificate(block.Bytes))
		if !cert.NotBefore.Equal(now.Add(-5*time.Minute)) || !cert.NotAfter.Equal(now.Add(c.want)) {
			t.Errorf("%s: from %v to %v", name, cert.NotBefore, cert.NotAfter)
		}
		if _, err := sign(authority, parsed, r, c.longest, now.Add(1000*time.Hour)); err == nil || !strings.Contains(err.Error(), "the signer has expired") {
			t.Errorf("%s: after the end of the authority: %v", name, err)
		}
	}
}

// A certificate of an authority that is not a root comes with that authority.
func TestCertificateOfIntermediateAuthority(t *testing.T) {
	t.Parallel()
	end := time.Now().Add(10000 * time.Hour)
	_, root, key := newAuthority(t, nil, nil, end)
	files, _, _ := newAuthority(t, root, key, end)
	s := &Signing{KubeAPIServerClient: files}
	all := must[map[string]*authn.KeyPair](t)(s.authorities())
	if len(all) != 1 {
		t.Errorf("%d signers have an authority", len(all))
	}
	r := request(t, "r", clientSigner, "client auth", x509.CertificateRequest{Subject: pkix.Name{CommonName: "jane"}})
	data := must[[]byte](t)(sign(current(all[clientSigner]), must[*x509.CertificateRequest](t)(parseRequest(r.Spec.Request)), r, 0, time.Now()))
	leaf, rest := pem.Decode(data)
	above, rest := pem.Decode(rest)
	if above == nil || len(rest) > 0 {
		t.Fatalf("got %s", data)
	}
	options := x509.VerifyOptions{Roots: x509.NewCertPool(), Intermediates: x509.NewCertPool(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	options.Roots.AddCert(root)
	options.Intermediates.AddCert(must[*x509.Certificate](t)(x509.ParseCertificate(above.Bytes)))
	if _, err := must[*x509.Certificate](t)(x509.ParseCertificate(leaf.Bytes)).Verify(options); err != nil {
		t.Error(err)
	}
}

func TestSigningFiles(t *testing.T) {
	t.Parallel()
	files, _, _ := newAuthority(t, nil, nil, time.Now().Add(time.Hour))
	for name, c := range map[string]struct {
		of   Signing
		want string
	}{
		"none":        {Signing{}, ""},
		"all":         {Signing{SigningFiles: files}, ""},
		"one":         {Signing{LegacyUnknown: files}, ""},
		"both":        {Signing{SigningFiles: files, KubeletClient: files}, "at the same time"},
		"no key":      {Signing{KubeletServing: SigningFiles{CertFile: files.CertFile}}, "cannot specify cert without key"},
		"no cert":     {Signing{SigningFiles: SigningFiles{KeyFile: files.KeyFile}}, "cannot specify key without cert"},
		"no file":     {Signing{KubeletServing: SigningFiles{"/none", "/none"}}, "no such file"},
		"no key file": {Signing{KubeletServing: SigningFiles{files.CertFile, files.CertFile}}, "read certificate and key"},
	} {
		err := c.of.Check()
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Requests are deleted some time after their outcome.
func TestOutdatedRequests(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)
	ago := func(d time.Duration) metav1.Time { return metav1.NewTime(now.Add(-d)) }
	const minute = time.Minute
	with := func(t certificatesv1.RequestConditionType, at metav1.Time) []certificatesv1.CertificateSigningRequestCondition {
		return []certificatesv1.CertificateSigningRequestCondition{{Type: t, LastUpdateTime: at}}
	}
	for name, c := range map[string]struct {
		created     metav1.Time
		conditions  []certificatesv1.CertificateSigningRequestCondition
		certificate string
		want        bool
	}{
		"new":                 {ago(24*time.Hour - minute), nil, "", false},
		"pending":             {ago(24*time.Hour + minute), nil, "", true},
		"denied":              {ago(90 * minute), with(certificatesv1.CertificateDenied, ago(61*minute)), "", true},
		"just denied":         {ago(90 * minute), with(certificatesv1.CertificateDenied, ago(59*minute)), "", false},
		"failed":              {ago(90 * minute), with(certificatesv1.CertificateFailed, ago(61*minute)), "", true},
		"issued":              {ago(90 * minute), with(certificatesv1.CertificateApproved, ago(61*minute)), "x", true},
		"just issued":         {ago(90 * minute), with(certificatesv1.CertificateApproved, ago(59*minute)), "x", false},
		"approved":            {ago(25 * time.Hour), with(certificatesv1.CertificateApproved, ago(23*time.Hour)), "", false},
		"approved long since": {ago(25 * time.Hour), with(certificatesv1.CertificateApproved, ago(25*time.Hour)), "", true},
		"without time":        {ago(25 * time.Hour), with(certificatesv1.CertificateApproved, metav1.Time{}), "", false},
	} {
		r := &signingRequest{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: c.created}}
		r.Status.Conditions, r.Status.Certificate = c.conditions, []byte(c.certificate)
		if got := outdated(r, now); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// The cleaners look at all requests at the start, and again from time to time.
func TestCleaners(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	now := clocktesting.NewFakeClock(time.Now())
	approve(t, s, request(t, "a", clientSigner, "client auth", x509.CertificateRequest{}), certificatesv1.CertificateDenied)
	s.run("certificatesigningrequest-cleaner-controller", Options{}, now)
	client := s.CertificatesV1().CertificateSigningRequests()
	await.Until(t, "the controller waits", func() bool { return now.HasWaiters() })
	must[*signingRequest](t)(client.Get(t.Context(), "a", metav1.GetOptions{}))
	await.Until(t, "the request is gone", func() bool {
		now.Step(time.Hour)
		return len(must[*certificatesv1.CertificateSigningRequestList](t)(client.List(t.Context(), metav1.ListOptions{})).Items) == 0
	})
}

// There is one bundle of the certificates of the gateway: it is created and repaired, follows their file,
// and others of the same signer are deleted.
func TestServingTrustBundle(t *testing.T) {
	t.Parallel()
	files, _, _ := newAuthority(t, nil, nil, time.Now().Add(time.Hour))
	data := string(must[[]byte](t)(os.ReadFile(files.CertFile)))
	s := newServer(t)
	client := s.CertificatesV1().ClusterTrustBundles()
	bundle := func(name, signer string) {
		must[*certificatesv1.ClusterTrustBundle](t)(client.Create(t.Context(), &certificatesv1.ClusterTrustBundle{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: certificatesv1.ClusterTrustBundleSpec{SignerName: signer, TrustBundle: data},
		}, metav1.CreateOptions{}))
	}
	bundle("kubernetes.io:kube-apiserver-serving:old", servingSigner)
	bundle("example.com:a:b", "example.com/a")
	s.run("kube-apiserver-serving-clustertrustbundle-publisher-controller", Options{RootCAFile: files.CertFile}, nil)
	published := func() (own *certificatesv1.ClusterTrustBundle, names []string) {
		for _, b := range must[*certificatesv1.ClusterTrustBundleList](t)(client.List(t.Context(), metav1.ListOptions{})).Items {
			names = append(names, b.Name)
			if b.Spec.SignerName == servingSigner {
				own = &b
			}
		}
		return own, names
	}
	const prefix = "kubernetes.io:kube-apiserver-serving:"
	await.Until(t, "one bundle is left", func() bool {
		own, names := published()
		return len(names) == 2 && own != nil && own.Spec.TrustBundle == data && strings.HasPrefix(own.Name, prefix) && len(own.Name) == len(prefix)+24
	})
	own, _ := published()
	if err := client.Delete(t.Context(), own.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	await.Until(t, "the bundle is there again", func() bool { own, _ := published(); return own != nil })
	next, _, _ := newAuthority(t, nil, nil, time.Now().Add(time.Hour))
	data += string(must[[]byte](t)(os.ReadFile(next.CertFile)))
	if err := os.WriteFile(files.CertFile, []byte(data), 0o600); err != nil {
		t.Fatal(err)
	}
	await.Until(t, "the bundle has the next authority", func() bool {
		own, names := published()
		return len(names) == 2 && own != nil && own.Spec.TrustBundle == data
	})
}
