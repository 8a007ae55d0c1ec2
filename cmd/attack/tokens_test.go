package attack

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"maps"
	"math/big"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// claims are the header or the payload of a token, or an object in it.
type claims map[string]any

// with returns a copy with a claim replaced, or removed for nil. The name may be a path
// with a tab as the separator.
func (c claims) with(name string, value any) claims {
	first, rest, nested := strings.Cut(name, "\t")
	out := maps.Clone(c)
	switch {
	case nested:
		inner, _ := out[first].(map[string]any)
		out[first] = map[string]any(claims(inner).with(rest, value))
	case value == nil:
		delete(out, name)
	default:
		out[name] = value
	}
	return out
}

// forge has a valid token and the key of the installation.
type forge struct {
	good            string
	header, payload claims
	key             *ecdsa.PrivateKey
	public          []byte // the file
}

func b64(data []byte) string { return base64.RawURLEncoding.EncodeToString(data) }

// newForge creates a service account and requests a token of it.
func newForge(t *testing.T, namespace, name string) *forge {
	t.Helper()
	i := target
	path := "/api/v1/namespaces/" + namespace + "/serviceaccounts"
	i.must(t, "POST", path, fmt.Sprintf(`{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"name":%q}}`, name))
	f := &forge{good: requestToken(t, path+"/"+name, `{}`)}
	parts := strings.Split(f.good, ".")
	for n, to := range []*claims{&f.header, &f.payload} {
		data, err := base64.RawURLEncoding.DecodeString(parts[n])
		if err == nil {
			err = json.Unmarshal(data, to)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	file, err := os.ReadFile(i.file("service-account.key"))
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(file)
	if f.key, err = x509.ParseECPrivateKey(block.Bytes); err != nil {
		t.Fatal(err)
	}
	if f.public, err = os.ReadFile(i.file("service-account.pub")); err != nil {
		t.Fatal(err)
	}
	return f
}

// requestToken requests a token of a service account.
func requestToken(t *testing.T, account, spec string) string {
	t.Helper()
	var answer struct{ Status struct{ Token string } }
	body := target.must(t, "POST", account+"/token", `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","spec":`+spec+`}`)
	if err := json.Unmarshal([]byte(body), &answer); err != nil {
		t.Fatal(err)
	}
	return answer.Status.Token
}

// encode returns the signed part of a token.
func encode(header, payload claims) string {
	h, _ := json.Marshal(header)
	p, _ := json.Marshal(payload)
	return b64(h) + "." + b64(p)
}

// sign signs the encoded part.
func sign(encoded string, method jwt.SigningMethod, key any) string {
	signature, err := method.Sign(encoded, key)
	if err != nil {
		panic(err) // the keys are of the methods
	}
	return encoded + "." + b64(signature)
}

func es256(encoded string, key *ecdsa.PrivateKey) string {
	return sign(encoded, jwt.SigningMethodES256, key)
}

// signed returns a token with the installation's key.
func (f *forge) signed(header, payload claims) string { return es256(encode(header, payload), f.key) }

// claim returns a token with the installation's key that differs in one claim.
func (f *forge) claim(name string, value any) string {
	return f.signed(f.header, f.payload.with(name, value))
}

// mac signs with a shared secret by HS256.
func (f *forge) mac(header claims, secret []byte) string {
	return sign(encode(header.with("alg", "HS256"), f.payload), jwt.SigningMethodHS256, secret)
}

// tokenCase is a token and the user of its requests; "" is a 401.
type tokenCase struct{ name, token, user string }

// forgeries returns tokens that can be made without the key.
func (f *forge) forgeries(t *testing.T) []tokenCase {
	t.Helper()
	other, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	parts := strings.Split(f.good, ".")
	raw, err := other.PublicKey.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	jwk := claims{"kty": "EC", "crv": "P-256", "x": b64(raw[1:33]), "y": b64(raw[33:])}
	der, _ := x509.MarshalPKIXPublicKey(&f.key.PublicKey)
	signature, _ := base64.RawURLEncoding.DecodeString(parts[2])
	flipped := slices.Clone(signature)
	flipped[10] ^= 1
	// The other root of the curve's order: a valid signature of the same claims.
	s := new(big.Int).SetBytes(signature[32:])
	negated := new(big.Int).Sub(elliptic.P256().Params().N, s).FillBytes(make([]byte, 32))
	altered := encode(f.header, f.payload.with("sub", "system:serviceaccount:kube-system:default"))
	return []tokenCase{
		{"algorithm none", encode(f.header.with("alg", "none"), f.payload) + ".", ""},
		{"algorithm None", encode(f.header.with("alg", "None"), f.payload) + ".", ""},
		{"algorithm NONE with the signature", encode(f.header.with("alg", "NONE"), f.payload) + "." + parts[2], ""},
		{"no algorithm", encode(f.header.with("alg", nil), f.payload) + "." + parts[2], ""},
		{"an empty algorithm", encode(f.header.with("alg", ""), f.payload) + ".", ""},
		{"HS256 with the public key's file", f.mac(f.header, f.public), ""},
		{"HS256 with the public key's file, without the line's end", f.mac(f.header, []byte(strings.TrimSpace(string(f.public)))), ""},
		{"HS256 with the public key's bytes", f.mac(f.header, der), ""},
		{"HS256 with an empty secret", f.mac(f.header, nil), ""},
		{"HS256 without the key's name", f.mac(f.header.with("kid", nil), f.public), ""},
		{"another key", es256(encode(f.header, f.payload), other), ""},
		{"another key without a name", es256(encode(f.header.with("kid", nil), f.payload), other), ""},
		{"a key's name that is a path", es256(encode(f.header.with("kid", "../../../../dev/null"), f.payload), other), ""},
		{"a key's name that is a number", es256(encode(f.header.with("kid", 0), f.payload), other), ""},
		{"a key in the header", es256(encode(f.header.with("kid", nil).with("jwk", jwk), f.payload), other), ""},
		{"a URL of keys in the header", es256(encode(f.header.with("jku", "http://127.0.0.1:1/keys"), f.payload), other), ""},
		{"a certificate in the header", es256(encode(f.header.with("x5c", []string{base64Of(target.stranger.cert.Raw)}), f.payload), other), ""},
		{"no signature", parts[0] + "." + parts[1] + ".", ""},
		{"a signature of zeros", parts[0] + "." + parts[1] + "." + b64(make([]byte, 64)), ""},
		{"a signature cut short", parts[0] + "." + parts[1] + "." + b64(signature[:63]), ""},
		{"a signature with a byte more", parts[0] + "." + parts[1] + "." + b64(append(slices.Clone(signature), 0)), ""},
		{"a signature with another bit", parts[0] + "." + parts[1] + "." + b64(flipped), ""},
		{"the other signature of the same", parts[0] + "." + parts[1] + "." + b64(append(slices.Clone(signature[:32]), negated...)), botUser},
		{"ES384 in the header", encode(f.header.with("alg", "ES384"), f.payload) + "." + parts[2], ""},
		{"RS256 in the header", encode(f.header.with("alg", "RS256"), f.payload) + "." + parts[2], ""},
		{"another subject under the same signature", altered + "." + parts[2], ""},
		{"two parts", parts[0] + "." + parts[1], ""},
		{"four parts", f.good + ".x", ""},
		{"five parts", f.good + ".x.y", ""},
		{"padded", f.good + "==", ""},
		{"no token of any kind", "mallory", ""},
		{"dots", "..", ""},
		{"no JSON", b64([]byte("{")) + "." + parts[1] + "." + parts[2], ""},
	}
}

const botUser = "system:serviceaccount:a:bot"

// signedWrong returns tokens signed with the key that must be refused, or must not be of
// another user.
func (f *forge) signedWrong() []tokenCase {
	now := time.Now().Unix()
	account := "kubernetes.io\tserviceaccount\t"
	return []tokenCase{
		{"expired", f.claim("exp", now-1), ""},
		{"without an end", f.claim("exp", nil), ""},
		{"an end that is text", f.claim("exp", "9999999999"), botUser},
		{"an end that was, as text", f.claim("exp", "1"), ""},
		{"a negative end", f.claim("exp", -1), ""},
		{"an end beyond all numbers", f.claim("exp", json.Number("1e300")), ""},
		{"good in two minutes", f.claim("nbf", now+120), ""},
		{"good in half a minute, as clocks differ", f.claim("nbf", now+30), botUser},
		{"another audience", f.claim("aud", []string{"other"}), ""},
		{"no audience", f.claim("aud", nil), ""},
		{"an empty audience", f.claim("aud", []string{}), ""},
		{"an audience that is an empty text", f.claim("aud", ""), ""},
		{"another issuer", f.claim("iss", "https://mallory.example.com"), ""},
		{"no issuer", f.claim("iss", nil), ""},
		{"the subject of another account", f.claim("sub", "system:serviceaccount:kube-system:default"), ""},
		{"the administrator as subject", f.claim("sub", "portico:admin"), ""},
		{"no subject", f.claim("sub", nil), ""},
		{"another uid", f.claim(account+"uid", "0"), ""},
		{"no uid", f.claim(account+"uid", nil), ""},
		{"an account that there is not", f.signed(f.header, f.payload.with(account+"name", "nobody").with("sub", "system:serviceaccount:a:nobody")), ""},
		{"an account without a name", f.signed(f.header, f.payload.with(account+"name", nil)), ""},
		{"no namespace", f.claim("kubernetes.io\tnamespace", nil), ""},
		{"another namespace", f.signed(f.header, f.payload.with("kubernetes.io\tnamespace", "b").with("sub", "system:serviceaccount:b:bot")), ""},
		{"nothing of Kubernetes", f.claim("kubernetes.io", nil), ""},
		{"bound to a Secret that there is not", f.claim("kubernetes.io\tsecret", claims{"name": "nobody", "uid": "0"}), ""},
		{"bound to a Pod", f.claim("kubernetes.io\tpod", claims{"name": "p", "uid": "0"}), ""},
		{"bound to a Node", f.claim("kubernetes.io\tnode", claims{"name": "p", "uid": "0"}), ""},
		{"without the key's name", f.signed(f.header.with("kid", nil), f.payload), botUser},
		{"an administrator's groups as claims", f.signed(f.header, f.payload.with("groups", []string{masters}).with("kubernetes.io\tgroups", []string{masters})), botUser},
	}
}

// A token is accepted for the service account that it was issued for; forgeries are
// refused.
func TestForgedTokens(t *testing.T) {
	t.Parallel()
	f := newForge(t, "a", "bot")
	client := target.client(nil)
	for _, tc := range slices.Concat([]tokenCase{
		{"control: as it was made", f.good, botUser},
		{"control: signed anew", f.signed(f.header, f.payload), botUser},
		{"control: another id", f.claim("jti", "other"), botUser},
		{"for another audience", requestToken(t, "/api/v1/namespaces/a/serviceaccounts/bot", `{"audiences":["other"]}`), ""},
	}, f.forgeries(t), f.signedWrong()) {
		want, groups := http.StatusUnauthorized, []string(nil)
		if tc.user != "" {
			want, groups = http.StatusCreated, []string{"system:serviceaccounts", "system:serviceaccounts:a", "system:authenticated"}
		}
		code, user, got, err := target.review(client, "Authorization: Bearer "+tc.token)
		if err != nil || code != want || user != tc.user || !slices.Equal(got, groups) {
			t.Errorf("%s: %d as %q of %q, %v; want %d as %q of %q", tc.name, code, user, got, err, want, tc.user, groups)
		}
	}
}

// A token among the protocols of a WebSocket is accepted there only, and only beside
// another protocol, and is not passed on. The server does not switch protocols, which is a
// 503.
func TestWebSocketTokens(t *testing.T) {
	t.Parallel()
	f := newForge(t, "a", "browser")
	s := register(t, "websocket.example.com", http1)
	target.grant(t, "system:serviceaccount:a:browser", "a", things(s.group))
	target.grant(t, "jane-websocket", "a", things(s.group))
	token := "base64url.bearer.authorization.k8s.io." + b64([]byte(f.good))
	wrong := "base64url.bearer.authorization.k8s.io." + b64([]byte(mark))
	const upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\n"
	for _, tc := range []struct {
		name, header, protocols string
		jane                    bool
		code                    int
		user                    string
	}{
		{"control: a token and a protocol", upgrade, token + ", chat", false, 503, "system:serviceaccount:a:browser"},
		{"only a token", upgrade, token, false, 401, ""},
		{"two tokens", upgrade, token + ", " + token + ", chat", false, 401, ""},
		{"a wrong token", upgrade, wrong + ", chat", false, 401, ""},
		{"no base64", upgrade, "base64url.bearer.authorization.k8s.io.!!, chat", false, 401, ""},
		{"no upgrade", "", token + ", chat", false, 403, ""},
		{"upgrade to something else", "Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\n", token + ", chat", false, 403, ""},
		{"beside a certificate", upgrade, token + ", chat", true, 503, "jane-websocket"},
	} {
		certificate := target.user(t, "jane-websocket")
		if !tc.jane {
			certificate = nil
		}
		a := target.send(t, certificate, "GET", fmt.Sprintf("GET %s/x HTTP/1.1\r\nHost: localhost\r\n%sSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: %s\r\n\r\n",
			s.root(), tc.header, tc.protocols))
		if err := a.among(tc.code); err != nil {
			t.Errorf("%s: %v, want %d", tc.name, err, tc.code)
		}
		seen := s.take(t)
		if (len(seen) == 1) != (tc.user != "") || len(seen) > 1 {
			t.Errorf("%s: the server saw %v", tc.name, seen)
			continue
		}
		for _, r := range seen {
			if r.header.Get("X-Remote-User") != tc.user || strings.Contains(r.String(), "base64url.bearer") || r.header.Get("Sec-WebSocket-Protocol") != "chat" {
				t.Errorf("%s: the server saw\n%s", tc.name, r)
			}
		}
	}
}

// The response that refuses a token is complete over HTTP/2, although the connection ends,
// also for a request with a body.
func TestRefusedTokensOverHTTP2(t *testing.T) {
	t.Parallel()
	header := append(pseudo("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews"),
		field{"authorization", "Bearer " + mark}, field{"content-type", "application/json"})
	for range 20 {
		a := target.sendStream(t, nil, stream{header: header, body: []byte(strings.Repeat(" ", 10_000) + "{}")})
		if a.code != http.StatusUnauthorized || !json.Valid(a.body) || strings.Contains(a.ended, "RST_STREAM") {
			t.Fatalf("answered %v", a)
		}
	}
}

// A token is valid for a year at most.
func TestLastingTokens(t *testing.T) {
	t.Parallel()
	f := newForge(t, "a", "lasting")
	token := requestToken(t, "/api/v1/namespaces/a/serviceaccounts/lasting", `{"expirationSeconds":4294967296}`)
	data, err := base64.RawURLEncoding.DecodeString(strings.Split(token, ".")[1])
	var got struct{ Exp, Iat int64 }
	if err == nil {
		err = json.Unmarshal(data, &got)
	}
	if err != nil || got.Exp-got.Iat > 365*24*3600 || got.Exp-got.Iat < 3600 {
		t.Errorf("the token lasts for %d seconds, %v", got.Exp-got.Iat, err)
	}
	if code, user, _, err := target.review(target.client(nil), "Authorization: Bearer "+f.good); err != nil || code != http.StatusCreated {
		t.Errorf("control: %d as %q, %v", code, user, err)
	}
}
