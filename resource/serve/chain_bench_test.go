package serve

import (
	"context"
	"crypto/tls"
	"net/http"
	"net/url"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/util/keyutil"

	"portico/resource/authn"
	"portico/resource/authz"
)

// BenchmarkWholeChain measures the filters of an ordinary short request: with the token of a
// service account, a role that allows it, and an audit event. Connections and the handler
// are left out.
func BenchmarkWholeChain(b *testing.B) {
	tokens, token := serviceAccountToken(b)
	change, _ := auditing(b, completed, batched)
	reason := `RBAC: allowed by ClusterRoleBinding "bench" of ClusterRole "view" to ServiceAccount "bench/default"`
	s := newTestServer(b, ok, change, func(c *testConfig) {
		c.Authenticator = authn.Union(tokens, authn.Anonymous())
		c.Authorizer = decide(authz.Allow, reason, nil)
		c.Handler = NewRouter(Routes{Resources: http.HandlerFunc(ok)})
	})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); s.chain.Run(ctx) }()
	state := &tls.ConnectionState{Version: tls.VersionTLS13}
	b.ReportAllocs()
	before := processorTime(b)
	defer func() {
		cancel()
		<-ended // everything is written
		b.ReportMetric(float64(processorTime(b)-before)/float64(b.N), "cpu-ns/op")
	}()
	for b.Loop() {
		r := (&http.Request{
			Method: "GET", Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Host: "gateway", RemoteAddr: "127.0.0.1:1234", Body: http.NoBody, TLS: state,
			URL:        &url.URL{Path: "/api/v1/namespaces/default/configmaps/a"},
			RequestURI: "/api/v1/namespaces/default/configmaps/a",
			Header: http.Header{
				"Accept": {"application/json"}, "Accept-Encoding": {"gzip"}, "Authorization": {"Bearer " + token},
				"User-Agent": {"kubectl/v1.37.0 (linux/amd64) kubernetes/abcdef0"},
			},
		}).WithContext(ctx)
		s.chain.ServeHTTP(&discard{header: make(http.Header)}, r)
	}
}

// serviceAccountToken returns an authenticator of service-account tokens, and a token.
func serviceAccountToken(t testing.TB) (authn.Authenticator, string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "sa.key")
	if _, _, err := keyutil.LoadOrGenerateKeyFile(file); err != nil {
		t.Fatal(err)
	}
	const issuer = "https://kubernetes.default.svc"
	signer, err := authn.NewSigner(file, issuer)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	token, err := signer.Sign(context.Background(), authn.TokenClaims{
		Namespace: "default", Name: "bench", UID: "59a7c3d5-8d8b-4f0e-a0ee-2a2f8d6a1b00", Audiences: []string{issuer}, IssuedAt: now, Expires: now.Add(time.Hour),
	})
	if err != nil {
		t.Fatal(err)
	}
	return authn.Bearer(authn.ServiceAccounts(authn.ServiceAccountConfig{
		Issuers: []string{issuer}, Keys: func() []authn.PublicKey { return []authn.PublicKey{signer.PublicKey()} },
	})), token
}

// discard is a response that is not kept.
type discard struct{ header http.Header }

func (n *discard) Header() http.Header         { return n.header }
func (n *discard) Write(b []byte) (int, error) { return len(b), nil }
func (n *discard) WriteHeader(int)             {}

func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
