package portico

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
	testutil "k8s.io/kubernetes/test/utils"
)

// clients are the files of the client certificates with which the core and the CRD server call the gateway.
type clients struct {
	// caFile has the CA of these certificates, and the CAs of the test.
	caFile, keyFile string
	certFile        map[string]string
}

// clients makes the certificates. The gateway trusts the CAs of testFile, too, and follows its changes.
func (s *Server) clients(testFile string) (*clients, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	ca, err := cert.NewSelfSignedCACert(cert.Config{CommonName: "portico"}, key)
	if err != nil {
		return nil, err
	}
	c := &clients{caFile: filepath.Join(s.dir, "client-ca.crt"), keyFile: filepath.Join(s.dir, "client.key"), certFile: map[string]string{}}
	pem, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(c.keyFile, pem, 0o600); err != nil {
		return nil, err
	}
	for i, name := range []string{"core", "crd"} {
		// The group passes every authorizer of a test.
		template := &x509.Certificate{
			Subject:      pkix.Name{CommonName: "system:portico:" + name, Organization: []string{"system:masters"}},
			SerialNumber: big.NewInt(int64(i + 2)), NotBefore: ca.NotBefore, NotAfter: ca.NotAfter,
			KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		}
		der, err := x509.CreateCertificate(rand.Reader, template, ca, key.Public(), key)
		if err != nil {
			return nil, err
		}
		signed, err := x509.ParseCertificate(der)
		if err != nil {
			return nil, err
		}
		c.certFile[name] = filepath.Join(s.dir, name+".crt")
		if err := os.WriteFile(c.certFile[name], testutil.EncodeCertPEM(signed), 0o600); err != nil {
			return nil, err
		}
	}
	return c, s.follow(testutil.EncodeCertPEM(ca), testFile, c.caFile)
}

// follow keeps in the file to the bytes of first, followed by the content of the file from, until the server stops.
func (s *Server) follow(first []byte, from, to string) error {
	write := func(before []byte) ([]byte, error) {
		now, err := os.ReadFile(from)
		if err != nil || before != nil && bytes.Equal(now, before) {
			return before, err
		}
		if err := os.WriteFile(to+".new", append(bytes.Clone(first), now...), 0o600); err != nil {
			return before, err
		}
		return now, os.Rename(to+".new", to)
	}
	if from == "" {
		return os.WriteFile(to, first, 0o600)
	}
	now, err := write(nil)
	if err != nil {
		return err
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	s.unfollow = func() { close(stop); <-stopped }
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			case <-time.After(100 * time.Millisecond):
				now, _ = write(now) // a file that is being written is read again
			}
		}
	}()
	return nil
}
