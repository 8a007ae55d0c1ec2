package authn

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// The paths of the issuer's documents (docs/wire.md 1.8).
const (
	PathOpenIDConfiguration = "/.well-known/openid-configuration"
	PathKeySet              = "/openid/v1/jwks"
)

// issuerMaxAge is the lifetime of the issuer's documents in caches, in seconds.
const issuerMaxAge = 3600

// IssuerDiscovery serves the OpenID documents for verifying service-account tokens:
// [PathOpenIDConfiguration] and [PathKeySet]. keys is called for every request, and keySetURI is
// where clients find the keys; "" is [PathKeySet] of the issuer. If the issuer is not an https URL
// without query and fragment, both paths return 404 and the reason is logged once.
func IssuerDiscovery(issuer, keySetURI string, keys func() []PublicKey) http.Handler {
	if err := checkIssuer(issuer); err != nil {
		slog.Warn("no discovery documents for this service account issuer", "issuer", issuer, "err", err)
		return http.NotFoundHandler()
	}
	if keySetURI == "" {
		keySetURI = strings.TrimSuffix(issuer, "/") + PathKeySet
	}
	mux := http.NewServeMux()
	mux.HandleFunc(PathOpenIDConfiguration, func(w http.ResponseWriter, _ *http.Request) {
		writeIssuerDocument(w, "application/json", openIDConfiguration(issuer, keySetURI, keys()))
	})
	mux.HandleFunc(PathKeySet, func(w http.ResponseWriter, _ *http.Request) {
		writeIssuerDocument(w, "application/jwk-set+json", keySet(keys()))
	})
	return mux
}

func checkIssuer(issuer string) error {
	u, err := url.Parse(issuer)
	switch {
	case err != nil:
		return err
	case u.Scheme != "https" || u.Host == "":
		return errors.New("the issuer is not an https URL")
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return errors.New("the issuer has a query or a fragment")
	}
	return nil
}

func writeIssuerDocument(w http.ResponseWriter, contentType string, document any) {
	body, _ := json.Marshal(document) // never fails for strings
	h := w.Header()
	h.Set("Content-Type", contentType)
	h.Set("Cache-Control", fmt.Sprintf("public, max-age=%d", issuerMaxAge))
	h.Set("Content-Length", strconv.Itoa(len(body)))
	_, _ = w.Write(body) // the client may be gone
}

type openIDDocument struct {
	Issuer        string   `json:"issuer"`
	KeySetURI     string   `json:"jwks_uri"`
	ResponseTypes []string `json:"response_types_supported"`
	SubjectTypes  []string `json:"subject_types_supported"`
	Algorithms    []string `json:"id_token_signing_alg_values_supported"`
}

func openIDConfiguration(issuer, keySetURI string, keys []PublicKey) openIDDocument {
	algorithms := []string{}
	for _, key := range keys {
		algorithms = append(algorithms, key.Algorithm)
	}
	slices.Sort(algorithms)
	return openIDDocument{
		Issuer:        issuer,
		KeySetURI:     keySetURI,
		ResponseTypes: []string{"id_token"},
		SubjectTypes:  []string{"public"},
		Algorithms:    slices.Compact(algorithms),
	}
}

// webKey is a JSON Web Key (RFC 7517; members of RFC 7518, 6.2 and 6.3).
type webKey struct {
	Use       string `json:"use"`
	Type      string `json:"kty"`
	ID        string `json:"kid"`
	Algorithm string `json:"alg"`
	Curve     string `json:"crv,omitempty"`
	X         string `json:"x,omitempty"`
	Y         string `json:"y,omitempty"`
	Modulus   string `json:"n,omitempty"`
	Exponent  string `json:"e,omitempty"`
}

func keySet(keys []PublicKey) any {
	set := make([]webKey, 0, len(keys))
	for _, key := range keys {
		jwk := webKey{Use: "sig", ID: key.ID, Algorithm: key.Algorithm}
		if err := jwk.fill(key.Key); err != nil {
			continue // NewPublicKey makes no such key
		}
		set = append(set, jwk)
	}
	return struct {
		Keys []webKey `json:"keys"`
	}{set}
}

// fill sets the members that depend on the type of the key.
func (k *webKey) fill(key crypto.PublicKey) error {
	encode := base64.RawURLEncoding.EncodeToString
	switch key := key.(type) {
	case *rsa.PublicKey:
		k.Type = "RSA"
		k.Modulus, k.Exponent = encode(key.N.Bytes()), encode(big.NewInt(int64(key.E)).Bytes())
	case *ecdsa.PublicKey:
		point, err := key.Bytes() // 4, X, Y: each coordinate at its full length
		if err != nil {
			return err
		}
		half := len(point) / 2
		k.Type, k.Curve = "EC", key.Params().Name
		k.X, k.Y = encode(point[1:1+half]), encode(point[1+half:])
	default:
		return fmt.Errorf("a key of type %T has no JSON form", key)
	}
	return nil
}
