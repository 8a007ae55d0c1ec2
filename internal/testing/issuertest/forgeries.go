package issuertest

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"strings"
	"time"
)

// Forgeries returns tokens that are no user's of a server with both issuers, by what is wrong. accounts is its
// issuer of service-account tokens.
func Forgeries(i, other *Issuer, accounts string) map[string]string {
	public, _ := x509.MarshalPKIXPublicKey(&i.Key.PublicKey) // an RSA key
	symmetric := Unsigned(i.header("alg", "HS256"), i.Payload(nil))
	mac := hmac.New(sha256.New, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public}))
	mac.Write([]byte(symmetric))
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic(err) // there is no other source of randomness
	}
	stranger := &Issuer{URL: i.URL, Key: key, id: KeyID}
	own := Claims{"kty": "RSA", "alg": "RS256", "kid": KeyID, "n": b64(key.N.Bytes()), "e": b64(big.NewInt(int64(key.E)).Bytes())}
	good, now := i.Token(nil), time.Now()
	signature := good[strings.LastIndexByte(good, '.'):]
	return map[string]string{
		"without signature":               Unsigned(i.header("alg", "none"), i.Payload(nil)) + ".",
		"signature cut off":               strings.TrimSuffix(good, signature) + ".",
		"symmetric, by the public key":    symmetric + "." + b64(mac.Sum(nil)),
		"algorithm of another kind":       i.Sign(i.header("alg", "ES256"), i.Payload(nil)),
		"key of another issuer":           other.Sign(i.Header(), i.Payload(nil)),
		"key of a stranger":               stranger.Token(nil),
		"key of a stranger in the header": stranger.Sign(i.header("jwk", own), i.Payload(nil)),
		"address of keys in the header":   stranger.Sign(i.header("jku", other.URL+"/keys"), i.Payload(nil)),
		"unknown critical header":         i.Sign(i.header("crit", []string{"x"}), i.Payload(nil)),
		"other claims, same signature":    Unsigned(i.Header(), i.Payload(Claims{"sub": "root"})) + signature,
		"another issuer":                  i.Token(Claims{"iss": "https://elsewhere.example"}),
		"an issuer with a slash":          i.Token(Claims{"iss": i.URL + "/"}),
		"the other issuer":                i.Token(Claims{"iss": other.URL}),
		"two issuers":                     i.Token(Claims{"iss": []string{i.URL, other.URL}}),
		"no issuer":                       i.Token(Claims{"iss": nil}),
		"another audience":                i.Token(Claims{"aud": "elsewhere"}),
		"no audience":                     i.Token(Claims{"aud": nil}),
		"expired":                         i.Token(Claims{"exp": now.Add(-time.Minute).Unix()}),
		"no end":                          i.Token(Claims{"exp": nil}),
		"not valid yet":                   i.Token(Claims{"nbf": now.Add(time.Hour).Unix()}),
		"no subject":                      i.Token(Claims{"sub": nil}),
		"a subject that is no string":     i.Token(Claims{"sub": []string{"jane"}}),
		"service account":                 i.Token(Claims{"iss": accounts, "sub": "system:serviceaccount:kube-system:default"}),
	}
}

// header returns the header of its tokens with one field replaced.
func (i *Issuer) header(name string, value any) Claims {
	header := i.Header()
	header[name] = value
	return header
}
