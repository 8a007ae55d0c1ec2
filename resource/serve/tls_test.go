package serve

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"portico/resource/authn"
)

// pairFor makes a certificate with a common name and further names, for some names of SNI.
func pairFor(t *testing.T, common string, dns []string, names ...string) NamedCertificate {
	t.Helper()
	dir := t.TempDir()
	writePair(t, dir, common, dns)
	return NamedCertificate{CertFile: filepath.Join(dir, "tls.crt"), KeyFile: filepath.Join(dir, "tls.key"), Names: names}
}

// writePair writes tls.crt and tls.key.
func writePair(t *testing.T, dir, common string, dns []string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: common}, DNSNames: dns, NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{"tls.crt": {Type: "CERTIFICATE", Bytes: der}, "tls.key": {Type: "PRIVATE KEY", Bytes: keyDER}} {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// The certificate is chosen by the name that a client asks for, in kube-apiserver's order.
func TestCertificateByName(t *testing.T) {
	t.Parallel()
	fallback := pairFor(t, "fallback", []string{"fallback.example.com"})
	for _, c := range []struct {
		about string
		sni   []NamedCertificate
		asked string
		want  string // common name
	}{
		{"none", nil, "a.example.com", "fallback"},
		{"unknown name", []NamedCertificate{pairFor(t, "one", nil, "a.example.com")}, "b.example.com", "fallback"},
		{"exact", []NamedCertificate{pairFor(t, "one", nil, "a.example.com")}, "a.example.com", "one"},
		{"case", []NamedCertificate{pairFor(t, "one", nil, "A.example.com")}, "a.EXAMPLE.com", "one"},
		{"wildcard", []NamedCertificate{pairFor(t, "one", nil, "*.example.com")}, "a.example.com", "one"},
		{"wildcard is one label", []NamedCertificate{pairFor(t, "one", nil, "*.example.com")}, "a.b.example.com", "fallback"},
		{"exact before wildcard", []NamedCertificate{pairFor(t, "one", nil, "*.example.com"), pairFor(t, "two", nil, "a.example.com")}, "a.example.com", "two"},
		{"names of the certificate", []NamedCertificate{pairFor(t, "one", []string{"a.example.com"})}, "a.example.com", "one"},
		{"common name", []NamedCertificate{pairFor(t, "a.example.com", nil)}, "a.example.com", "a.example.com"},
		{"given before own", []NamedCertificate{pairFor(t, "one", []string{"a.example.com"}), pairFor(t, "two", nil, "a.example.com")}, "a.example.com", "two"},
		{"own exact before given wildcard", []NamedCertificate{pairFor(t, "one", nil, "*.example.com"), pairFor(t, "two", []string{"a.example.com"})}, "a.example.com", "two"},
		{"given names replace own", []NamedCertificate{pairFor(t, "one", []string{"a.example.com"}, "b.other.com"), pairFor(t, "two", []string{"a.example.com"})}, "a.example.com", "two"},
		{"earlier first", []NamedCertificate{pairFor(t, "one", nil, "a.example.com"), pairFor(t, "two", nil, "a.example.com")}, "a.example.com", "one"},
		{"without a name", []NamedCertificate{pairFor(t, "one", nil, "a.example.com")}, "", "fallback"},
		{"address", []NamedCertificate{pairFor(t, "one", nil, "127.0.0.1")}, "", "one"},
		{"address that is a name of the certificate", []NamedCertificate{pairFor(t, "127.0.0.1", nil)}, "", "fallback"},
		{"name of the fallback", []NamedCertificate{pairFor(t, "one", nil, "a.example.com")}, "fallback.example.com", "fallback"},
	} {
		t.Run(c.about, func(t *testing.T) {
			t.Parallel()
			config := TLS{CertFile: fallback.CertFile, KeyFile: fallback.KeyFile, SNI: c.sni}
			if got := handshake(t, config, &tls.Config{ServerName: c.asked}); got.PeerCertificates[0].Subject.CommonName != c.want {
				t.Errorf("got %s, want %s", got.PeerCertificates[0].Subject.CommonName, c.want)
			}
		})
	}
}

// handshake connects to a server with the configuration, and returns the state of the client.
func handshake(t *testing.T, server TLS, client *tls.Config) tls.ConnectionState {
	t.Helper()
	state, err := tryHandshake(t, server, client)
	if err != nil {
		t.Fatal(err)
	}
	return state
}

func tryHandshake(t *testing.T, server TLS, client *tls.Config) (tls.ConnectionState, error) {
	t.Helper()
	config, err := server.config(nil)
	if err != nil {
		t.Fatal(err)
	}
	return connect(t, config, client)
}

func connect(t *testing.T, config, client *tls.Config) (tls.ConnectionState, error) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		if conn, err := l.Accept(); err == nil {
			_ = tls.Server(conn, config).Handshake() // a client that fails is what tests want
			_ = conn.Close()
		}
	}()
	raw, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	client.InsecureSkipVerify = true // the names are what is tested
	conn := tls.Client(raw, client)
	err = conn.Handshake()
	return conn.ConnectionState(), err
}

// Versions and cipher suites are those of the configuration; a client of TLS 1.1 is refused without one.
func TestVersionsAndCipherSuites(t *testing.T) {
	t.Parallel()
	pair := pairFor(t, "server", nil)
	files := TLS{CertFile: pair.CertFile, KeyFile: pair.KeyFile}
	with := func(change func(*TLS)) TLS {
		c := files
		change(&c)
		return c
	}
	const gcm, chacha = tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256
	only := func(version uint16) *tls.Config { return &tls.Config{MinVersion: version, MaxVersion: version} }
	for about, c := range map[string]struct {
		server TLS
		client *tls.Config
		ok     bool
	}{
		"1.1 by default":           {files, only(tls.VersionTLS11), false},
		"1.2 by default":           {files, only(tls.VersionTLS12), true},
		"1.1 if it is allowed":     {with(func(c *TLS) { c.MinVersion = tls.VersionTLS11 }), only(tls.VersionTLS11), true},
		"1.2 if it is not allowed": {with(func(c *TLS) { c.MinVersion = tls.VersionTLS13 }), only(tls.VersionTLS12), false},
		"1.3":                      {with(func(c *TLS) { c.MinVersion = tls.VersionTLS13 }), only(tls.VersionTLS13), true},
		"another suite": {with(func(c *TLS) { c.CipherSuites = []uint16{gcm} }),
			&tls.Config{MaxVersion: tls.VersionTLS12, CipherSuites: []uint16{chacha}}, false},
		"the suite": {with(func(c *TLS) { c.CipherSuites = []uint16{chacha} }),
			&tls.Config{MaxVersion: tls.VersionTLS12, CipherSuites: []uint16{chacha}}, true},
		"another curve": {with(func(c *TLS) { c.CurvePreferences = []tls.CurveID{tls.CurveP384} }),
			&tls.Config{CurvePreferences: []tls.CurveID{tls.X25519}}, false},
	} {
		t.Run(about, func(t *testing.T) {
			t.Parallel()
			if _, err := tryHandshake(t, c.server, c.client); (err == nil) != c.ok {
				t.Errorf("got %v, want success: %v", err, c.ok)
			}
		})
	}
}

// A renewed certificate of SNI is shown without a restart.
func TestNamedCertificateIsReadAgain(t *testing.T) {
	t.Parallel()
	fallback, named := pairFor(t, "fallback", nil), pairFor(t, "before", nil, "a.example.com")
	config, err := (&TLS{CertFile: fallback.CertFile, KeyFile: fallback.KeyFile, SNI: []NamedCertificate{named}}).config(nil)
	if err != nil {
		t.Fatal(err)
	}
	writePair(t, filepath.Dir(named.CertFile), "after the renewal", nil)
	authn.Reload()
	state, err := connect(t, config, &tls.Config{ServerName: "a.example.com"})
	if err != nil || state.PeerCertificates[0].Subject.CommonName != "after the renewal" {
		t.Errorf("got %v, %v", state.PeerCertificates, err)
	}
}

// Insecure cipher suites are warned of, each by its name; the expiry of every certificate is known.
func TestWarningsOfTLS(t *testing.T) {
	t.Parallel()
	var text bytes.Buffer
	named := pairFor(t, "one", nil)
	config := TLS{
		CertFile: "serving.crt", SNI: []NamedCertificate{named},
		CipherSuites: []uint16{tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, tls.TLS_RSA_WITH_AES_128_CBC_SHA},
	}
	config.warn(slog.New(slog.NewTextHandler(&text, nil)))
	if got := text.String(); !strings.Contains(got, "Use of insecure cipher 'TLS_RSA_WITH_AES_128_CBC_SHA' detected.") || strings.Count(got, "\n") != 1 {
		t.Errorf("got %s", got)
	}
	want := []authn.CertificateFile{{Usage: "serving", Path: "serving.crt"}, {Usage: "serving-sni", Path: named.CertFile}}
	if got := config.files(); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
