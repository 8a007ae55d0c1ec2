// Package issuertest is an issuer of OpenID Connect tokens for tests: a listener with its
// discovery document and keys, and tokens that are valid or forged in one place.
//
// Runs in: tests.
package issuertest

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"maps"
	"math/big"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"time"
)

// KeyID is the id of the first key of every Issuer: issuers do not agree on ids.
const KeyID = "key"

// Audience is the audience of tokens.
const Audience = "portico"

// Claims are the header or the payload of a token.
type Claims map[string]any

// Issuer is an issuer. Safe for concurrent use.
type Issuer struct {
	// URL is the issuer, without a path.
	URL string
	// CA is the PEM text of its authority.
	CA string
	// Key signs its tokens.
	Key *rsa.PrivateKey
	// Away makes it answer 503.
	Away atomic.Bool
	// Requests counts the requests for its documents.
	Requests atomic.Int64
	server   *httptest.Server
	id       string                 // of Key
	served   atomic.Pointer[Claims] // the public part of the key that it serves
}

// Start returns an issuer that listens until Close.
func Start() (*Issuer, error) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return nil, err
	}
	i := &Issuer{Key: key, id: KeyID}
	i.served.Store(i.public())
	i.server = httptest.NewTLSServer(i)
	i.URL = i.server.URL
	i.CA = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: i.server.Certificate().Raw}))
	return i, nil
}

// Close ends the listener.
func (i *Issuer) Close() { i.server.Close() }

// Rotate makes the issuer serve a new key instead of the one before, and returns an issuer of the same
// URL that signs with it and has no listener.
func (i *Issuer) Rotate() (*Issuer, error) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return nil, err
	}
	next := &Issuer{URL: i.URL, CA: i.CA, Key: key, id: rand.Text()}
	i.served.Store(next.public())
	return next, nil
}

// public returns the public part of its key.
func (i *Issuer) public() *Claims {
	return &Claims{
		"kty": "RSA", "use": "sig", "alg": "RS256", "kid": i.id,
		"n": b64(i.Key.N.Bytes()), "e": b64(big.NewInt(int64(i.Key.E)).Bytes()),
	}
}

// ServeHTTP serves the documents, below any path.
func (i *Issuer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	i.Requests.Add(1)
	if i.Away.Load() {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	document := Claims{"issuer": i.URL, "jwks_uri": i.URL + "/keys"}
	if r.URL.Path == "/keys" {
		document = Claims{"keys": []*Claims{i.served.Load()}}
	}
	_ = json.NewEncoder(w).Encode(document) // the client is gone
}

// Header returns the header of its tokens.
func (i *Issuer) Header() Claims { return Claims{"alg": "RS256", "typ": "JWT", "kid": i.id} }

// Payload returns the claims of a valid token of user jane with others replaced, or removed for nil.
func (i *Issuer) Payload(others Claims) Claims {
	now := time.Now()
	payload := Claims{"iss": i.URL, "aud": Audience, "sub": "jane", "iat": now.Unix(), "exp": now.Add(time.Hour).Unix()}
	maps.Copy(payload, others)
	maps.DeleteFunc(payload, func(_ string, value any) bool { return value == nil })
	return payload
}

// Token returns a signed token with the claims of Payload.
func (i *Issuer) Token(others Claims) string { return i.Sign(i.Header(), i.Payload(others)) }

// Sign returns a token with a signature by the issuer's key, whatever its header says.
func (i *Issuer) Sign(header, payload Claims) string {
	text := Unsigned(header, payload)
	digest := sha256.Sum256([]byte(text))
	signature, err := rsa.SignPKCS1v15(nil, i.Key, crypto.SHA256, digest[:])
	if err != nil {
		panic(err) // the key is good
	}
	return text + "." + b64(signature)
}

// Unsigned returns the first two parts of a token.
func Unsigned(header, payload Claims) string { return part(header) + "." + part(payload) }

func part(c Claims) string {
	data, err := json.Marshal(c)
	if err != nil {
		panic(err) // claims are those of a test
	}
	return b64(data)
}

func b64(data []byte) string { return base64.RawURLEncoding.EncodeToString(data) }
