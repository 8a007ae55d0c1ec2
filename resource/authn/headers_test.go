package authn

import (
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"strings"
	"testing"

	"portico/resource"
)

// SetFrontProxyHeaders replaces all identity headers, and the user can be read back.
func TestFrontProxyHeaders(t *testing.T) {
	h := http.Header{"X-Remote-User": {"spoofed"}, "X-Remote-Extra-Spoofed": {"x"}, "Accept": {"*/*"}}
	u := &resource.User{
		Name: "jane", UID: "u-1", Groups: []string{"a", "b"},
		Extra: map[string][]string{"example.com/key": {"1", "2"}, "100%": {"3"}},
	}
	SetFrontProxyHeaders(h, u)
	want := http.Header{
		"Accept": {"*/*"}, "X-Remote-User": {"jane"}, "X-Remote-Uid": {"u-1"}, "X-Remote-Group": {"a", "b"},
		"X-Remote-Extra-Example.com%2fkey": {"1", "2"}, "X-Remote-Extra-100%25": {"3"},
	}
	if !reflect.DeepEqual(h, want) {
		t.Errorf("got  %v\nwant %v", h, want)
	}
	if got := DefaultHeaderNames().user(h); !reflect.DeepEqual(got, u) {
		t.Errorf("read back %+v", got)
	}
}

// A constraint travels in headers of its own, which no user's headers are taken for. A part of it
// is refused, and gateways do not read it.
func TestConstraintHeaders(t *testing.T) {
	by := &resource.User{Name: "imp", UID: "7", Groups: []string{"a", "b"}, Extra: map[string][]string{"example.com/key": {"1", "2"}}}
	u := &resource.User{Name: "boss", Groups: []string{"g"}, Constraint: &resource.Constraint{Impersonator: by, Mode: "user-info"}}
	request := func(edit func(h http.Header)) *http.Request {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		SetFrontProxyHeaders(r.Header, u)
		AddConstraint(r.Header, u)
		edit(r.Header)
		return r.WithContext(WithPeerUID(r.Context(), os.Geteuid()))
	}
	servers, err := FrontProxyOnly("", nil)
	if err != nil {
		t.Fatal(err)
	}
	got, ok, err := servers.Authenticate(request(func(http.Header) {}))
	if err != nil || !ok || !reflect.DeepEqual(got, u) {
		t.Errorf("a server read %+v, %v", got, err)
	}
	for _, name := range []string{"X-Remote-Impersonation-Mode", "X-Remote-Impersonator"} {
		if got, ok, err := servers.Authenticate(request(func(h http.Header) { h.Del(name) })); ok || err == nil {
			t.Errorf("without %s: got %+v, %v", name, got, err)
		}
	}
	if got, _, _ := PeerUID().Authenticate(request(func(http.Header) {})); got == nil || got.Constraint != nil || got.Extra != nil {
		t.Errorf("another process read %+v", got)
	}
	r := request(func(http.Header) {})
	StripCredentials(r.Header)
	if len(r.Header) > 0 {
		t.Errorf("%v remains", r.Header)
	}
}

// Names of identity headers have no case.
func TestHeadersFold(t *testing.T) {
	h := http.Header{"x-remote-extra-A": {"1"}, "X-Remote-User": {"", ""}, "X-Proxy-User": {" jane "}}
	u := HeaderNames{User: []string{"X-Remote-User", "X-Proxy-User"}, ExtraPrefix: []string{"X-Remote-Extra-"}}.user(h)
	if u == nil || u.Name != "jane" || !reflect.DeepEqual(u.Extra, map[string][]string{"a": {"1"}}) {
		t.Errorf("got %+v", u)
	}
}

// StripCredentials removes credentials in all spellings.
func TestStripCredentials(t *testing.T) {
	h := http.Header{
		"Authorization": {"Bearer x"}, "X-Remote-User": {"a"}, "x-remote-group": {"a"}, "X_Remote_User": {"a"}, "X-REMOTE-Extra-B": {"c"},
		"X-Remotely": {"kept"}, "X-Rem": {"kept"},
		"Sec-Websocket-Protocol": {"base64url.bearer.authorization.k8s.io.eA, v5.channel.k8s.io", "other"},
	}
	StripCredentials(h)
	want := http.Header{"X-Remotely": {"kept"}, "X-Rem": {"kept"}, "Sec-Websocket-Protocol": {"v5.channel.k8s.io, other"}}
	if !reflect.DeepEqual(h, want) {
		t.Errorf("got %v", h)
	}
}

// FuzzExtraKey checks that every key, in lower case, can be read back from its header name.
func FuzzExtraKey(f *testing.F) {
	for _, seed := range []string{"", "a", "example.com/x", "100%", "%2f", "ä", "a b", "\x00\n:", "authentication.kubernetes.io/pod-name"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, key string) {
		name := extraHeader(HeaderExtraPrefix, key)
		if canonical := http.CanonicalHeaderKey(name); canonical != name {
			t.Fatalf("%q: %q is not canonical", key, name)
		}
		encoded := strings.TrimPrefix(name, HeaderExtraPrefix)
		for i := range len(encoded) {
			if !isTokenByte(encoded[i]) {
				t.Fatalf("%q: %q is not a header name", key, encoded)
			}
		}
		// Only ASCII letters that travel as they are lose their case.
		want := strings.Map(func(r rune) rune {
			if 'A' <= r && r <= 'Z' {
				return r + 'a' - 'A'
			}
			return r
		}, key)
		if got := decodeExtraKey(encoded); got != want && strings.ToValidUTF8(key, "") == key {
			t.Fatalf("%q came back as %q", key, got)
		}
	})
}
