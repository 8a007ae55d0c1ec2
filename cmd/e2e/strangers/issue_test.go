//go:build strangers

package strangers

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"portico/cmd/e2e/manifests"
)

// certificateObject is what is used here of cert-manager's kinds Certificate and Issuer.
type certificateObject struct {
	Kind     string
	Metadata struct{ Name string }
	Spec     struct {
		SecretName, CommonName string
		IsCA                   bool
		DNSNames, Usages       []string
		IPAddresses            []string
		Subject                struct{ Organizations []string }
		IssuerRef              struct{ Name string }
		CA                     struct{ SecretName string }
	}
}

// issueCertificates returns the Secrets that cert-manager makes for the Certificates of manifests.
func issueCertificates(t *testing.T, text string) manifests.Secrets {
	t.Helper()
	secrets, issuers := manifests.Secrets{}, map[string]string{}
	keys, certificates := map[string]crypto.Signer{}, map[string]*x509.Certificate{}
	var wanted []certificateObject
	for document := range strings.SplitSeq("\n"+text, "\n---") {
		var object certificateObject
		if err := yaml.Unmarshal([]byte(document), &object); err != nil {
			t.Fatal(err)
		}
		switch object.Kind {
		case "Issuer":
			issuers[object.Metadata.Name] = object.Spec.CA.SecretName
		case "Certificate":
			wanted = append(wanted, object)
		}
	}
	for _, c := range wanted {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		template := c.template(t)
		by, ok := issuers[c.Spec.IssuerRef.Name]
		parent, signer := certificates[by], keys[by]
		switch {
		case !ok || by != "" && parent == nil:
			t.Fatalf("Certificate %s has no issuer %s before it", c.Metadata.Name, c.Spec.IssuerRef.Name)
		case by == "": // it signs itself
			parent, signer = template, key
		}
		der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
		if err != nil {
			t.Fatal(err)
		}
		made, err := x509.ParseCertificate(der)
		if err != nil {
			t.Fatal(err)
		}
		private, err := x509.MarshalECPrivateKey(key)
		if err != nil {
			t.Fatal(err)
		}
		if parent == template {
			parent = made
		}
		keys[c.Spec.SecretName], certificates[c.Spec.SecretName] = key, made
		secrets[c.Spec.SecretName] = map[string][]byte{
			"tls.crt": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
			"tls.key": pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: private}),
			"ca.crt":  pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: parent.Raw}),
		}
	}
	return secrets
}

// template returns the certificate that is asked for.
func (c *certificateObject) template(t *testing.T) *x509.Certificate {
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(time.Hour),
		Subject: pkix.Name{CommonName: c.Spec.CommonName, Organization: c.Spec.Subject.Organizations}, DNSNames: c.Spec.DNSNames,
		IsCA: c.Spec.IsCA, BasicConstraintsValid: true,
	}
	for _, address := range c.Spec.IPAddresses {
		template.IPAddresses = append(template.IPAddresses, net.ParseIP(address))
	}
	for _, usage := range c.Spec.Usages {
		switch usage {
		case "server auth":
			template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
			template.IPAddresses = append(template.IPAddresses, net.IPv4(127, 0, 0, 1)) // where tests run the processes
		case "client auth":
			template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageClientAuth)
		case "cert sign":
			template.KeyUsage |= x509.KeyUsageCertSign
		case "crl sign":
			template.KeyUsage |= x509.KeyUsageCRLSign
		case "digital signature":
			template.KeyUsage |= x509.KeyUsageDigitalSignature
		default:
			t.Fatalf("Certificate %s has the usage %q", c.Metadata.Name, usage)
		}
	}
	return template
}
