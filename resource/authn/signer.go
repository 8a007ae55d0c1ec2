package authn

import (
	"context"
	"crypto"
	"errors"
	"fmt"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/google/uuid"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/client-go/util/keyutil"
)

// Signer issues service-account tokens. Its key is read again when the file changes. Safe for
// concurrent use.
type Signer struct {
	issuer string
	key    *reloaded[signingKey]
}

// signingKey is a private key with what verifies its signatures.
type signingKey struct {
	crypto.Signer
	public PublicKey
}

// NewSigner reads the private key in a PEM file: RSA (RS256) or ECDSA (ES256, ES384 or
// ES512, by its curve). issuer is the iss of every token.
func NewSigner(keyFile, issuer string) (*Signer, error) {
	if issuer == "" {
		return nil, errors.New("make token signer: the issuer is empty")
	}
	key, err := newReloaded(func() (signingKey, error) {
		key, err := readSigningKey(keyFile)
		if err != nil {
			return key, fmt.Errorf("read token signing key %s: %w", keyFile, err)
		}
		return key, nil
	}, keyFile)
	if err != nil {
		return nil, err
	}
	return &Signer{issuer: issuer, key: key}, nil
}

func readSigningKey(file string) (key signingKey, err error) {
	private, err := keyutil.PrivateKeyFromFile(file)
	if err != nil {
		return key, err
	}
	var ok bool
	if key.Signer, ok = private.(crypto.Signer); !ok {
		return key, fmt.Errorf("a key of type %T cannot sign", private)
	}
	key.public, err = NewPublicKey(key.Public())
	return key, err
}

// PublicKey returns the key that verifies the tokens that s signs now.
func (s *Signer) PublicKey() PublicKey { return s.key.get().public }

// TokenClaims are the contents of a token.
type TokenClaims struct {
	// Namespace, Name and UID of the service account. Required.
	Namespace, Name, UID string
	// Audiences of the token. Required.
	Audiences []string
	// IssuedAt and Expires are rounded to seconds. Required.
	IssuedAt, Expires time.Time
	// ID identifies the token (jti) in audit events; "" is a new UUID.
	ID string
	// Bound is an object; its deletion invalidates the token. nil: none.
	Bound *BoundObject
	// Node is the node of the pod that the token is for; nil: none.
	Node *BoundObject
	// WarnAfter is the time at which clients should have replaced the token; zero: none.
	WarnAfter time.Time
}

// BoundObject is a Pod or Secret in the service account's namespace, or a Node.
type BoundObject struct{ Kind, Name, UID string }

// Sign makes a token.
func (s *Signer) Sign(_ context.Context, c TokenClaims) (string, error) {
	if c.Namespace == "" || c.Name == "" || c.UID == "" || len(c.Audiences) == 0 || !c.Expires.After(c.IssuedAt) {
		return "", errors.New("sign token: service account, audiences and a lifetime are required")
	}
	id := c.ID
	if id == "" {
		id = uuid.NewString()
	}
	claims := tokenClaims{
		RegisteredClaims: jwt.RegisteredClaims{
			Issuer:    s.issuer,
			Subject:   serviceaccount.MakeUsername(c.Namespace, c.Name),
			Audience:  c.Audiences,
			IssuedAt:  jwt.NewNumericDate(c.IssuedAt),
			NotBefore: jwt.NewNumericDate(c.IssuedAt),
			ExpiresAt: jwt.NewNumericDate(c.Expires),
			ID:        id,
		},
		Private: privateClaims{Namespace: c.Namespace, ServiceAccount: claimRef{Name: c.Name, UID: c.UID}},
	}
	if err := claims.Private.bind(c.Bound); err != nil {
		return "", fmt.Errorf("sign token: %w", err)
	}
	if c.Node != nil {
		claims.Private.Node = &claimRef{Name: c.Node.Name, UID: c.Node.UID}
	}
	if !c.WarnAfter.IsZero() {
		claims.Private.WarnAfter = jwt.NewNumericDate(c.WarnAfter)
	}
	return s.sign(claims)
}

func (s *Signer) sign(claims tokenClaims) (string, error) {
	key := s.key.get()
	token := jwt.NewWithClaims(jwt.GetSigningMethod(key.public.Algorithm), claims)
	token.Header["kid"] = key.public.ID
	signed, err := token.SignedString(key.Signer)
	if err != nil {
		return "", fmt.Errorf("sign token: %w", err)
	}
	return signed, nil
}

func (p *privateClaims) bind(o *BoundObject) error {
	if o == nil {
		return nil
	}
	ref := &claimRef{Name: o.Name, UID: o.UID}
	switch o.Kind {
	case "Pod":
		p.Pod = ref
	case "Secret":
		p.Secret = ref
	case "Node":
		p.Node = ref
	default:
		return fmt.Errorf("a token cannot be bound to a %q", o.Kind)
	}
	return nil
}
