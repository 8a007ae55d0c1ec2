package authn

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"fmt"

	"github.com/golang-jwt/jwt/v5"
	"k8s.io/client-go/util/keyutil"
)

// minRSABits is the least size of an RSA key for tokens (RFC 7518, 3.3).
const minRSABits = 2048

// PublicKey verifies tokens.
type PublicKey struct {
	// ID is the key id in tokens: the unpadded base64url SHA-256 digest of the key in PKIX
	// form.
	ID string
	// Algorithm is RS256, ES256, ES384 or ES512, determined by the key.
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

// methodOf returns the only signing method of a key; a token cannot choose another.
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

// PublicKeys are the public keys in PEM files. The files are read again when they change.
// Safe for concurrent use.
type PublicKeys struct{ keys *reloaded[[]PublicKey] }

// NewPublicKeys reads the files. Each has one or more public keys or certificates, or a
// private key; a file without a key is an error.
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
	found, err := keyutil.PublicKeysFromFile(file)
	if err != nil {
		// keyutil does not find the public key of an ECDSA key in PKCS #8 form.
		private, privateErr := keyutil.PrivateKeyFromFile(file)
		signer, ok := private.(crypto.Signer)
		if privateErr != nil || !ok {
			return nil, err
		}
		found = []any{signer.Public()}
	}
	keys := make([]PublicKey, len(found))
	for i := range found {
		if keys[i], err = NewPublicKey(found[i]); err != nil {
			return nil, err
		}
	}
	return keys, nil
}

// Signed reports whether the key verifies the signature of a token, valid or not.
func (k PublicKey) Signed(token string) bool {
	parser := jwt.NewParser(jwt.WithValidMethods([]string{k.Algorithm}), jwt.WithoutClaimsValidation())
	_, err := parser.Parse(token, func(*jwt.Token) (any, error) { return k.Key, nil })
	return err == nil
}
