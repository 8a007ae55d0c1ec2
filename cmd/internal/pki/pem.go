package pki

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
)

const (
	pemCertificate = "CERTIFICATE"
	pemPrivateKey  = "EC PRIVATE KEY"
	pemPublicKey   = "PUBLIC KEY"
)

// pair is a certificate and its key.
type pair struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// readPair reads a certificate file and its key file. The error wraps
// fs.ErrNotExist when either is missing.
func readPair(certFile, keyFile string) (*pair, error) {
	cert, err := readCertificate(certFile)
	if err != nil {
		return nil, err
	}
	key, err := readKey(keyFile)
	if err != nil {
		return nil, err
	}
	if !key.PublicKey.Equal(cert.PublicKey) {
		return nil, fmt.Errorf("read %s: the key does not belong to %s", keyFile, certFile)
	}
	return &pair{cert: cert, key: key}, nil
}

func readCertificate(path string) (*x509.Certificate, error) {
	block, err := readBlock(path, pemCertificate)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(block)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return cert, nil
}

// Read returns the certificates of a PEM file, at least one; other blocks, keys
// among them, are passed over.
func Read(path string) ([]*x509.Certificate, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	certs, err := decodeCertificates(data)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return certs, nil
}

func decodeCertificates(data []byte) (certs []*x509.Certificate, err error) {
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != pemCertificate {
			continue
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		certs = append(certs, cert)
	}
	if len(certs) == 0 {
		return nil, errors.New("it holds no PEM block of type " + pemCertificate)
	}
	return certs, nil
}

func readKey(path string) (*ecdsa.PrivateKey, error) {
	block, err := readBlock(path, pemPrivateKey)
	if err != nil {
		return nil, err
	}
	key, err := x509.ParseECPrivateKey(block)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return key, nil
}

func readBlock(path, kind string) ([]byte, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(data)
	if block == nil || block.Type != kind {
		return nil, fmt.Errorf("read %s: %w", path, errors.New("it holds no PEM block of type "+kind))
	}
	return block.Bytes, nil
}

// write stores the pair. The key goes first: a certificate without its key
// would be an error at the next start, a key without its certificate is made
// good.
func (p *pair) write(certFile, keyFile string) error {
	if err := writeKey(keyFile, p.key); err != nil {
		return err
	}
	return writeFile(certFile, encodeBlock(pemCertificate, p.cert.Raw))
}

func writeKey(path string, key *ecdsa.PrivateKey) error {
	data, err := encodeKey(key)
	if err != nil {
		return err
	}
	return writeFile(path, data)
}

func encodeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode key: %w", err)
	}
	return encodeBlock(pemPrivateKey, der), nil
}

func encodeBlock(kind string, der []byte) []byte {
	var b bytes.Buffer
	// A bytes.Buffer does not fail.
	_ = pem.Encode(&b, &pem.Block{Type: kind, Bytes: der})
	return b.Bytes()
}

func newKey() (*ecdsa.PrivateKey, error) {
	return ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
}
