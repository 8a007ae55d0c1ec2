package authn

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	"portico/resource"
)

// fixed is an authenticator with a fixed result.
type fixed struct {
	user *resource.User
	err  error
}

func (s fixed) Authenticate(*http.Request) (*resource.User, bool, error) {
	return s.user, s.user != nil, s.err
}

// The first authenticator that claims a request decides; an invalid credential is never
// anonymous.
func TestUnion(t *testing.T) {
	bad := errors.New("bad credential")
	jane, joe := fixed{user: &resource.User{Name: "jane", Groups: []string{"a"}}}, fixed{user: &resource.User{Name: "joe"}}
	for _, c := range []struct {
		name   string
		a      Authenticator
		user   string
		groups []string
		err    error
	}{
		{"none", Union(), "", nil, nil},
		{"first wins", Union(fixed{}, jane, joe), "jane", []string{"a", resource.GroupAuthenticated}, nil},
		{"good after bad", Union(fixed{err: bad}, joe), "joe", []string{resource.GroupAuthenticated}, nil},
		{"anonymous", Union(fixed{}, Anonymous()), resource.Anonymous, []string{resource.GroupUnauthenticated}, nil},
		{"bad is never anonymous", Union(fixed{err: bad}, Anonymous()), "", nil, bad},
		{"nor when nested", Union(Union(fixed{err: bad}, fixed{}), Anonymous()), "", nil, bad},
	} {
		user, claimed, err := c.a.Authenticate(httptest.NewRequest("GET", "/", nil))
		if !errors.Is(err, c.err) || claimed != (c.user != "") {
			t.Errorf("%s: claimed %v, err %v", c.name, claimed, err)
		}
		if claimed && (user.Name != c.user || !reflect.DeepEqual(user.Groups, c.groups)) {
			t.Errorf("%s: got %+v", c.name, user)
		}
	}
	if len(jane.user.Groups) != 1 {
		t.Error("Union changed the user of an authenticator")
	}
}

// Anonymous claims paths and the paths below them.
func TestAnonymousPaths(t *testing.T) {
	a := Anonymous("/healthz", "/readyz")
	for path, want := range map[string]bool{"/healthz": true, "/readyz/ping": true, "/readyzzz": false, "/api": false, "/": false} {
		if _, claimed, _ := a.Authenticate(httptest.NewRequest("GET", path, nil)); claimed != want {
			t.Errorf("%s: claimed %v, want %v", path, claimed, want)
		}
	}
}

// A valid certificate is a user; others are errors.
func TestClientCert(t *testing.T) {
	ca, other := newTestCA(t, "ca"), newTestCA(t, "other CA")
	uid := func(values ...string) (names []pkix.AttributeTypeAndValue) {
		for _, v := range values {
			names = append(names, pkix.AttributeTypeAndValue{Type: asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 57683, 2}, Value: v})
		}
		return names
	}
	tomorrow := time.Now().Add(24 * time.Hour)
	for _, c := range []struct {
		name    string
		certs   []*x509.Certificate
		user    string
		uid     string
		refused string // in the error
	}{
		{"none", nil, "", "", ""},
		{"good", []*x509.Certificate{ca.leaf(t, pkix.Name{CommonName: "jane", Organization: []string{"dev"}}, tomorrow)}, "jane", "", ""},
		{"uid", []*x509.Certificate{ca.leaf(t, pkix.Name{CommonName: "jane", Organization: []string{"dev"}, ExtraNames: uid("u-1")}, tomorrow)}, "jane", "u-1", ""},
		{"two uids", []*x509.Certificate{ca.leaf(t, pkix.Name{CommonName: "jane", ExtraNames: uid("a", "b")}, tomorrow)}, "", "", "more than one uid"},
		{"no name", []*x509.Certificate{ca.leaf(t, pkix.Name{Organization: []string{"dev"}}, tomorrow)}, "", "", ""},
		{"other CA", []*x509.Certificate{other.leaf(t, pkix.Name{CommonName: "jane"}, tomorrow)}, "", "", "unknown authority"},
		{"expired", []*x509.Certificate{ca.leaf(t, pkix.Name{CommonName: "jane"}, time.Now().Add(-time.Minute))}, "", "", "expired"},
	} {
		a := ClientCert(ca.pool)
		r := httptest.NewRequest("GET", "/", nil)
		if c.certs != nil {
			r.TLS = connection(c.certs...)
		}
		user, claimed, err := a.Authenticate(r)
		if claimed != (c.user != "") || (err != nil) != (c.refused != "") || err != nil && !strings.Contains(err.Error(), c.refused) {
			t.Errorf("%s: claimed %v, err %v", c.name, claimed, err)
			continue
		}
		if !claimed {
			continue
		}
		want := []string{"dev", resource.GroupAuthenticated}
		if user.Name != c.user || user.UID != c.uid || !reflect.DeepEqual(user.Groups, want) ||
			!strings.HasPrefix(user.Extra["authentication.kubernetes.io/credential-id"][0], "X509SHA256=") {
			t.Errorf("%s: got %+v", c.name, user)
		}
	}
}

// A cached certificate is rejected once its CA changed or it expired.
func TestCachedClientCertIsRejected(t *testing.T) {
	ca := newTestCA(t, "ca")
	pool, tomorrow := ca.pool(), time.Now().Add(24*time.Hour)
	a := ClientCert(func() *x509.CertPool { return pool }).(*clientCert)
	r := httptest.NewRequest("GET", "/", nil)
	r.TLS = connection(ca.leaf(t, pkix.Name{CommonName: "jane"}, tomorrow))
	authenticate := func() bool { _, claimed, _ := a.Authenticate(r); return claimed }
	if first, second := authenticate(), authenticate(); !first || !second {
		t.Fatal("a valid certificate was rejected")
	}
	pool = newTestCA(t, "other").pool()
	if authenticate() {
		t.Error("the certificate of a removed CA was accepted")
	}
	pool = ca.pool()
	if !authenticate() {
		t.Fatal("a valid certificate was rejected")
	}
	a.chains.now = func() time.Time { return tomorrow.Add(time.Second) }
	if authenticate() {
		t.Error("an expired certificate was accepted")
	}
	pool = nil
	if _, claimed, err := a.Authenticate(r); claimed || err != nil {
		t.Errorf("without CAs: claimed %v, err %v", claimed, err)
	}
}

// Identity headers apply with the certificate of a front proxy only.
func TestFrontProxy(t *testing.T) {
	ca, clientCA := newTestCA(t, "front"), newTestCA(t, "client")
	tomorrow := time.Now().Add(24 * time.Hour)
	proxy := ca.leaf(t, pkix.Name{CommonName: "front-proxy-client"}, tomorrow)
	a := Union(
		FrontProxy(FrontProxyConfig{CAs: ca.pool, AllowedNames: []string{"front-proxy-client"}}),
		ClientCert(clientCA.pool),
		Anonymous(),
	)
	for _, c := range []struct {
		name    string
		cert    *x509.Certificate
		remote  string
		user    string
		refused bool
	}{
		{"proxy", proxy, "jane", "jane", false},
		{"proxy without a user", proxy, "", "", true},
		{"another name", ca.leaf(t, pkix.Name{CommonName: "x"}, tomorrow), "jane", "", true},
		{"certificate of a user", clientCA.leaf(t, pkix.Name{CommonName: "front-proxy-client"}, tomorrow), "jane", "front-proxy-client", false},
		{"no certificate", nil, "jane", resource.Anonymous, false},
	} {
		r := httptest.NewRequest("GET", "/", nil)
		if c.cert != nil {
			r.TLS = connection(c.cert)
		}
		if c.remote != "" {
			r.Header.Set(HeaderUser, c.remote)
		}
		user, claimed, err := a.Authenticate(r)
		if (err != nil) != c.refused || claimed && user.Name != c.user || !claimed && c.user != "" {
			t.Errorf("%s: got %+v, %v, %v", c.name, user, claimed, err)
		}
	}
}

// Identity headers apply to peers with the uid only.
func TestPeerUID(t *testing.T) {
	a := &peerUID{1000, DefaultHeaderNames()}
	for _, c := range []struct {
		name   string
		uid    int // 0: unknown
		remote string
		want   string
	}{
		{"own process", 1000, "jane", "jane"},
		{"no user", 1000, "", ""},
		{"another uid", 1001, "jane", ""},
		{"no socket", 0, "jane", ""},
	} {
		r := httptest.NewRequest("GET", "/", nil)
		if c.uid != 0 {
			r = r.WithContext(WithPeerUID(r.Context(), c.uid))
		}
		r.Header.Set(HeaderUser, c.remote)
		user, claimed, err := a.Authenticate(r)
		if err != nil || claimed != (c.want != "") || claimed && user.Name != c.want {
			t.Errorf("%s: got %+v, %v, %v", c.name, user, claimed, err)
		}
	}
}
