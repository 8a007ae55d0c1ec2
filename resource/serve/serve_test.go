package serve

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico/resource"
	"portico/resource/authn"
	"portico/resource/serve/filter"
)

// asJane authenticates every request as jane.
type asJane struct{ groups []string }

func (j asJane) Authenticate(*http.Request) (*resource.User, bool, error) {
	return &resource.User{Name: "jane", Groups: j.groups}, true, nil
}

// quiet discards logs.
func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// testConfig configures a chain and the server around it.
type testConfig struct {
	filter.Config
	Server Config
}

// testServer is a server and its chain.
type testServer struct {
	*Server
	chain *filter.Chain
}

// Handler returns the chain, for requests without a network.
func (s *testServer) Handler() http.Handler { return s.chain }

// longRunning returns the number of long-running requests.
func (s *testServer) longRunning() int {
	return s.chain.Lifecycle().Long.Count()
}

// newTestServer makes a server around a handler; change may alter its configuration.
func newTestServer(t testing.TB, h http.HandlerFunc, change ...func(*testConfig)) *testServer {
	t.Helper()
	cfg := testConfig{
		Config: filter.Config{Handler: h, Authenticator: asJane{}, Logger: quiet()},
		Server: Config{Listen: []ListenAddress{{Address: "unix://" + filepath.Join(t.TempDir(), "s.sock")}}},
	}
	for _, f := range change {
		f(&cfg)
	}
	chain, err := filter.New(cfg.Config)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Server.Chain, cfg.Server.Logger = chain, cfg.Logger
	s, err := New(cfg.Server)
	if err != nil {
		t.Fatal(err)
	}
	return &testServer{s, chain}
}

// do sends a request through the filters, without a network.
func do(s *testServer, method, target string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, target, nil)
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, r)
	return w
}

// wantStatus checks that a body is a Status.
func wantStatus(t *testing.T, body io.Reader, code int32, reason metav1.StatusReason, message string) {
	t.Helper()
	var status metav1.Status
	data, err := io.ReadAll(body)
	if err == nil {
		err = json.Unmarshal(data, &status)
	}
	if err != nil || status.Kind != "Status" || status.Code != code || status.Reason != reason || status.Message != message {
		t.Errorf("got %s (%v)\nwant a Status %d %s %q", data, err, code, reason, message)
	}
}

// run starts the server and stops it when the test ends.
func run(t *testing.T, s *testServer) {
	t.Helper()
	if err := s.Listen(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("run: %v", err)
		}
	})
}

// socketClient returns a client of a unix socket.
func socketClient(t *testing.T, path string, h2 bool) *http.Client {
	t.Helper()
	transport := &http.Transport{Protocols: new(http.Protocols), DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}}
	transport.Protocols.SetHTTP1(!h2)
	transport.Protocols.SetUnencryptedHTTP2(h2)
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

func get(t *testing.T, c *http.Client, url string, header ...string) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), "GET", url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	response, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response, string(body)
}

// whoami answers with the user and what reached the handler of its identity.
func whoami(w http.ResponseWriter, r *http.Request) {
	user := resource.ActionFrom(r.Context()).User
	var leaked []string
	for name := range r.Header {
		if strings.HasPrefix(name, "X-Remote") || name == "Authorization" {
			leaked = append(leaked, name)
		}
	}
	_, _ = io.WriteString(w, user.Name+" "+strings.Join(user.Groups, ",")+strings.Join(leaked, ","))
}

func TestListenOnNetwork(t *testing.T) {
	p := newPKI(t)
	s := newTestServer(t, whoami, func(c *testConfig) {
		c.Server.Listen = []ListenAddress{p.listen(), p.listen()}
		c.Authenticator = authn.Union(authn.ClientCert(func() *x509.CertPool { return p.pool }), authn.Anonymous())
	})
	run(t, s)
	addresses := s.Addresses()
	if len(addresses) != 2 || addresses[0].String() == addresses[1].String() {
		t.Fatalf("got %v", addresses)
	}
	for _, h2 := range []bool{false, true} {
		for _, cert := range []bool{false, true} {
			want := "system:anonymous system:unauthenticated"
			if cert {
				want = "jane dev,system:authenticated"
			}
			response, body := get(t, p.httpClient(t, h2, cert), "https://"+addresses[1].String()+"/x",
				"X-Remote-User", "admin", "X-Remote-Group", "system:masters", "X-Remote-Extra-A", "b", "Authorization", "Basic x")
			if body != want || (response.ProtoMajor == 2) != h2 {
				t.Errorf("h2 %v, cert %v: got %q over %s", h2, cert, body, response.Proto)
			}
		}
	}
}

// A certificate of an unknown authority completes the handshake and is a 401.
func TestCertificateOfUnknownAuthority(t *testing.T) {
	p, other := newPKI(t), newPKI(t)
	address := p.listen()
	address.ClientCAs = nil
	s := newTestServer(t, whoami, func(c *testConfig) {
		c.Server.Listen = []ListenAddress{address}
		c.Authenticator = authn.Union(authn.ClientCert(func() *x509.CertPool { return p.pool }), authn.Anonymous())
	})
	run(t, s)
	p.client = other.client
	response, body := get(t, p.httpClient(t, true, true), "https://"+s.Addresses()[0].String()+"/x")
	if response.StatusCode != 401 || response.Header.Get("Www-Authenticate") != "" {
		t.Errorf("got %d, %v", response.StatusCode, response.Header)
	}
	wantStatus(t, strings.NewReader(body), 401, metav1.StatusReasonUnauthorized, "Unauthorized")
}

// Strangers may not go on and on over one HTTP/2 connection; others may.
func TestConnectionOfUnknownClientEnds(t *testing.T) {
	p := newPKI(t)
	remote := func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.RemoteAddr) }
	s := newTestServer(t, remote, func(c *testConfig) {
		c.Server.Listen = []ListenAddress{p.listen()}
		c.Authenticator = authn.Union(authn.ClientCert(func() *x509.CertPool { return p.pool }), authn.Anonymous())
	})
	run(t, s)
	for _, known := range []bool{false, true} {
		client := p.httpClient(t, true, known)
		url := "https://" + s.Addresses()[0].String() + "/"
		_, first := get(t, client, url)
		same := true
		// The connection's end may arrive after the next request has begun.
		for i := 0; i < 50 && same; i++ {
			_, next := get(t, client, url)
			same = next == first
		}
		if same != known {
			t.Errorf("known %v: kept the connection: %v", known, same)
		}
	}
}

func TestListenOnSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.sock")
	s := newTestServer(t, whoami, func(c *testConfig) {
		c.Server.Listen = []ListenAddress{{Address: "unix://" + path, PeerUID: true}}
		c.Authenticator = authn.Union(authn.PeerUID(), authn.Anonymous("/healthz"))
	})
	run(t, s)
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("mode %v, %v", info.Mode(), err)
	}
	for _, h2 := range []bool{false, true} {
		client := socketClient(t, path, h2)
		response, body := get(t, client, "http://portico/x", "X-Remote-User", "joe", "X-Remote-Group", "ops")
		if body != "joe ops,system:authenticated" || (response.ProtoMajor == 2) != h2 {
			t.Errorf("h2 %v: got %q over %s", h2, body, response.Proto)
		}
		if response, _ = get(t, client, "http://portico/x"); response.StatusCode != 401 {
			t.Errorf("h2 %v: nobody got %d", h2, response.StatusCode)
		}
		if response, _ = get(t, client, "http://portico/healthz"); response.StatusCode != 200 {
			t.Errorf("h2 %v: probe got %d", h2, response.StatusCode)
		}
	}
}

func TestNewChecksTheConfiguration(t *testing.T) {
	chain := newTestServer(t, whoami).chain
	for want, change := range map[string]func(*Config){
		"no chain":             func(c *Config) { c.Chain = nil },
		"no address":           func(c *Config) { c.Listen = nil },
		"address is empty":     func(c *Config) { c.Listen[0].Address = "" },
		"needs a cert":         func(c *Config) { c.Listen[0].Address = "127.0.0.1:0" },
		"must be given togeth": func(c *Config) { c.Listen[0].CertFile = "x" },
	} {
		cfg := Config{Chain: chain, Listen: []ListenAddress{{Address: "unix:///x"}}}
		change(&cfg)
		if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func TestListenBindsAllOrNone(t *testing.T) {
	dir := t.TempDir()
	s := newTestServer(t, whoami, func(c *testConfig) {
		c.Server.Listen = []ListenAddress{{Address: "unix://" + dir + "/a"}, {Address: "unix://" + dir + "/missing/b"}}
	})
	if err := s.Listen(); err == nil || s.Addresses() != nil {
		t.Fatalf("got %v, %v", err, s.Addresses())
	}
	if _, err := os.Stat(dir + "/a"); err == nil {
		t.Error("the first socket is still there")
	}
}
