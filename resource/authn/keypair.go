package authn

import (
	"crypto/tls"
	"fmt"
)

// KeyPair is a certificate and its key, in two PEM files that are read again
// when they change, so that neither a server nor a client has to be restarted
// when its certificate is renewed. Safe for concurrent use.
type KeyPair struct{ pair *reloaded[*tls.Certificate] }

// NewKeyPair reads the two files. The certificate's file may hold a chain.
func NewKeyPair(certFile, keyFile string) (*KeyPair, error) {
	load := func() (*tls.Certificate, error) {
		pair, err := tls.LoadX509KeyPair(certFile, keyFile)
		if err != nil {
			return nil, fmt.Errorf("read certificate and key: %w", err)
		}
		return &pair, nil
	}
	pair, err := newReloaded(load, certFile, keyFile)
	if err != nil {
		return nil, err
	}
	return &KeyPair{pair: pair}, nil
}

// GetCertificate is for the tls.Config of a server.
func (k *KeyPair) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	return k.pair.get(), nil
}

// GetClientCertificate is for the tls.Config of a client. It returns the certificate
// whatever CAs the server lists, so that a server with the wrong CA reports an error.
func (k *KeyPair) GetClientCertificate(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	return k.pair.get(), nil
}
