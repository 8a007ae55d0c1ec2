package authn

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"os"

	"github.com/golang-jwt/jwt/v5"
)

// minRSABits is the shortest RSA key that may sign or verify a token (RFC 7518,
// 3.3).
const minRSABits = 2048

// PublicKey verifies tokens.
type PublicKey struct {
	// ID is what tokens name the key by: the unpadded base64url SHA-256 digest
	// of its PKIX form.
	ID string
	// Algorithm is RS256, ES256, ES384 or ES512, as the key has it.
	Algorithm string
	// Key is an *rsa.PublicKey or an *ecdsa.PublicKey.
	Key crypto.PublicKey
}

// NewPublicKey describes an RSA key of at least 2048 bits or an ECDSA key on
// P-256, P-384 or P-521; any other key is an error.
func NewPublicKey(key crypto.PublicKey) (PublicKey, error) {
	method, err := methodOf(key)
	if err != nil {
		return PublicKey{}, err
	}
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		return PublicKey{}, fmt.Errorf("encode public key: %w", err)
	}
	sum := sha256.Sum256(der)
	return PublicKey{ID: base64.RawURLEncoding.EncodeToString(sum[:]), Algorithm: method.Alg(), Key: key}, nil
}

// methodOf returns the one way to sign that belongs to a key: a token does not
// get to choose it.
func methodOf(key crypto.PublicKey) (jwt.SigningMethod, error) {
	switch k := key.(type) {
	case *rsa.PublicKey:
		if k.N.BitLen() < minRSABits {
			return nil, fmt.Errorf("an RSA key of %d bits is too short, %d are needed", k.N.BitLen(), minRSABits)
		}
		return jwt.SigningMethodRS256, nil
	case *ecdsa.PublicKey:
		switch k.Curve {
		case elliptic.P256():
			return jwt.SigningMethodES256, nil
		case elliptic.P384():
			return jwt.SigningMethodES384, nil
		case elliptic.P521():
			return jwt.SigningMethodES512, nil
		}
	}
	return nil, fmt.Errorf("a key of type %T cannot sign tokens, only RSA and ECDSA on P-256, P-384 or P-521 can", key)
}

// PublicKeys are the keys of some PEM files, read again when these change. Safe
// for concurrent use.
type PublicKeys struct{ keys *reloaded[[]PublicKey] }

// NewPublicKeys reads the files: public keys, certificates or private keys, any
// number in each. It is an error if one has none.
func NewPublicKeys(files ...string) (*PublicKeys, error) {
	load := func() ([]PublicKey, error) {
		var keys []PublicKey
		for _, file := range files {
			more, err := readPublicKeys(file)
			if err != nil {
				return nil, fmt.Errorf("read token verification keys of %s: %w", file, err)
			}
			keys = append(keys, more...)
		}
		return keys, nil
	}
	keys, err := newReloaded(load, files...)
	if err != nil {
		return nil, err
	}
	return &PublicKeys{keys: keys}, nil
}

// Keys returns the keys, in the order of the files. The slice is shared.
func (p *PublicKeys) Keys() []PublicKey { return p.keys.get() }

func readPublicKeys(file string) ([]PublicKey, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var keys []PublicKey
	for {
		var block *pem.Block
		if block, data = pem.Decode(data); block == nil {
			break
		}
		raw, err := publicKeyIn(block)
		if err != nil {
			return nil, err
		}
		if raw == nil {
			continue
		}
		key, err := NewPublicKey(raw)
		if err != nil {
			return nil, err
		}
		keys = append(keys, key)
	}
	if len(keys) == 0 {
		return nil, errors.New("no PEM key in it")
	}
	return keys, nil
}

// publicKeyIn returns the public key in a PEM block, nil for a block that is
// about something else (EC PARAMETERS).
func publicKeyIn(block *pem.Block) (crypto.PublicKey, error) {
	switch block.Type {
	case "PUBLIC KEY":
		return x509.ParsePKIXPublicKey(block.Bytes)
	case "RSA PUBLIC KEY":
		return x509.ParsePKCS1PublicKey(block.Bytes)
	case "CERTIFICATE":
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		return cert.PublicKey, nil
	}
	private, err := privateKeyIn(block)
	if private == nil || err != nil {
		return nil, err
	}
	return private.Public(), nil
}

// privateKeyIn returns the private key in a PEM block, nil for a block that is
// about something else.
func privateKeyIn(block *pem.Block) (crypto.Signer, error) {
	switch block.Type {
	case "EC PRIVATE KEY":
		return x509.ParseECPrivateKey(block.Bytes)
	case "RSA PRIVATE KEY":
		return x509.ParsePKCS1PrivateKey(block.Bytes)
	case "PRIVATE KEY":
		key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
		if err != nil {
			return nil, err
		}
		if signer, ok := key.(crypto.Signer); ok {
			return signer, nil
		}
		return nil, fmt.Errorf("a key of type %T cannot sign", key)
	}
	return nil, nil
}
