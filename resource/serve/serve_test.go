package serve

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"portico/resource"
	"portico/resource/authn"
	"portico/resource/serve/filter"
)

func TestMain(m *testing.M) {
	klog.SetSlogLogger(quiet())
	m.Run()
}

// quiet discards logs.
func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

const pathPods = "/api/v1/namespaces/ns/pods"

// authenticate is an Authenticator.
type authenticate func(*http.Request) (*resource.User, bool, error)

func (a authenticate) Authenticate(r *http.Request) (*resource.User, bool, error) { return a(r) }

// byHeader authenticates the user in the header User, or jane, with the groups in the
// header Group.
func byHeader(r *http.Request) (*resource.User, bool, error) {
	return &resource.User{Name: cmp.Or(r.Header.Get("User"), "jane"), Groups: r.Header["Group"]}, true, nil
}

// failing finds no user.
func failing(err error) authenticate {
	return func(*http.Request) (*resource.User, bool, error) { return nil, false, err }
}

// impersonated is a Config.Impersonation: it makes the user in Impersonate-User the user of
// the request, except root.
func impersonated(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := r.Header.Get("Impersonate-User")
		if name == "root" {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		if name != "" {
			as := *resource.ActionFrom(r.Context())
			as.Impersonator = as.User
			as.User = &resource.User{Name: name, Groups: []string{"dev"}, Constraint: &resource.Constraint{Impersonator: as.User, Mode: "user-info"}}
			r = r.WithContext(resource.WithAction(r.Context(), &as))
		}
		next.ServeHTTP(w, r)
	})
}

func ok(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") }

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

// newTestServer makes a server around a handler; change may alter its configuration.
func newTestServer(t testing.TB, h http.HandlerFunc, change ...func(*testConfig)) *testServer {
	t.Helper()
	cfg := testConfig{
		Config: filter.Config{Handler: h, Authenticator: authenticate(byHeader), Logger: quiet()},
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

// start runs the server until stop, or the end of the test.
func (s *testServer) start(t *testing.T) (stop func()) {
	t.Helper()
	if err := s.Listen(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run returned %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// socket returns the path of the server's unix socket.
func (s *testServer) socket() string {
	return strings.TrimPrefix(s.cfg.Listen[0].Address, unixPrefix)
}

// dial connects to the server's unix socket.
func (s *testServer) dial(t *testing.T) net.Conn {
	t.Helper()
	conn, err := net.Dial("unix", s.socket())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// client returns a client of the server's unix socket.
func (s *testServer) client(t *testing.T, h2 bool) *http.Client {
	t.Helper()
	transport := &http.Transport{Protocols: new(http.Protocols), DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", s.socket())
	}}
	transport.Protocols.SetHTTP1(!h2)
	transport.Protocols.SetUnencryptedHTTP2(h2)
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// longRunning returns the number of long-running requests.
func (s *testServer) longRunning() int { return s.chain.Lifecycle().Long.Count() }

// request makes a request; header alternates names and values.
func request(ctx context.Context, method, target string, header ...string) *http.Request {
	r := httptest.NewRequestWithContext(ctx, method, target, nil)
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	return r
}

// clientRequest makes a GET for a client.
func clientRequest(ctx context.Context, url string, header ...string) *http.Request {
	r := request(ctx, "GET", url, header...)
	r.RequestURI = ""
	return r
}

// do sends a request through the filters, without a network.
func do(s *testServer, method, target string, header ...string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	s.chain.ServeHTTP(w, request(context.Background(), method, target, header...))
	return w
}

// inBackground sends a GET through the filters and then its status to the channel.
func inBackground(s *testServer, target string, header ...string) <-chan int {
	done := make(chan int, 1)
	go func() { done <- do(s, "GET", target, header...).Code }()
	return done
}

// get sends a GET over the network and reads the whole response.
func get(t *testing.T, c *http.Client, url string, header ...string) (*http.Response, string) {
	t.Helper()
	response, err := c.Do(clientRequest(t.Context(), url, header...))
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

// whoami answers with the user and the names of the identity headers that reached it.
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

// onNetwork starts a server with two addresses on loopback that authenticates client
// certificates.
func onNetwork(t *testing.T, h http.HandlerFunc) (*testServer, *pki) {
	t.Helper()
	p := newPKI(t)
	s := newTestServer(t, h, func(c *testConfig) {
		c.Server.Listen = []ListenAddress{p.listen(), p.listen()}
		c.Server.Listen[0].ClientCAs = nil
		c.Authenticator = authn.Union(authn.ClientCert(p.listen().ClientCAs), authn.Anonymous())
	})
	s.start(t)
	return s, p
}

// An address without HTTP/2 serves clients that offer it over HTTP/1.1, whether or not it names authorities.
func TestAddressWithoutHTTP2(t *testing.T) {
	t.Parallel()
	p := newPKI(t)
	s := newTestServer(t, ok, func(c *testConfig) {
		c.Server.Listen = []ListenAddress{p.listen(), p.listen(), p.listen()}
		c.Server.Listen[0].DisableHTTP2, c.Server.Listen[1].DisableHTTP2 = true, true
		c.Server.Listen[0].ClientCAs = nil
	})
	s.start(t)
	for i, want := range []string{"http/1.1", "http/1.1", "h2"} {
		config := p.tlsConfig()
		config.NextProtos = []string{"h2", "http/1.1"}
		conn, err := tls.Dial("tcp", s.Addresses()[i].String(), config)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if got := conn.ConnectionState().NegotiatedProtocol; got != want {
			t.Errorf("address %d: %s, want %s", i, got, want)
		}
		if want == "http/1.1" {
			if code := asks(t, conn, "/x", "jane"); code != http.StatusOK {
				t.Errorf("address %d: %d", i, code)
			}
		}
	}
}

// Clients on a network are authenticated by their certificates; identity headers are not
// believed and do not reach the handler. A certificate of an unknown authority completes
// the handshake and is a 401.
func TestListenOnNetwork(t *testing.T) {
	t.Parallel()
	s, p := onNetwork(t, whoami)
	addresses := s.Addresses()
	if len(addresses) != 2 || addresses[0].String() == addresses[1].String() {
		t.Fatalf("got %v", addresses)
	}
	for _, h2 := range []bool{false, true} {
		for want, cert := range map[string][]tls.Certificate{
			"system:anonymous system:unauthenticated": nil, "jane dev,system:authenticated": {p.client},
		} {
			response, body := get(t, p.httpClient(t, h2, cert...), "https://"+addresses[1].String()+"/x",
				"X-Remote-User", "admin", "X-Remote-Group", "system:masters", "X-Remote-Extra-A", "b", "Authorization", "Basic x")
			if body != want || (response.ProtoMajor == 2) != h2 {
				t.Errorf("h2 %v: got %q over %s, want %q", h2, body, response.Proto, want)
			}
		}
	}
	response, body := get(t, p.httpClient(t, true, newPKI(t).client), "https://"+addresses[0].String()+"/x")
	if response.StatusCode != 401 || response.Header.Get("Www-Authenticate") != "" {
		t.Errorf("unknown authority: got %d, %v", response.StatusCode, response.Header)
	}
	wantStatus(t, strings.NewReader(body), 401, metav1.StatusReasonUnauthorized, "Unauthorized")
}

// The HTTP/2 connection of an unauthenticated client ends after a few requests; others
// stay open.
func TestConnectionOfUnknownClientEnds(t *testing.T) {
	t.Parallel()
	s, p := onNetwork(t, func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.RemoteAddr) })
	for _, known := range []bool{false, true} {
		client := p.httpClient(t, true)
		if known {
			client = p.httpClient(t, true, p.client)
		}
		url := "https://" + s.Addresses()[1].String() + "/"
		_, first := get(t, client, url)
		same := true
		// GOAWAY may arrive after the next request has begun.
		for i := 0; i < 50 && same; i++ {
			_, next := get(t, client, url)
			same = next == first
		}
		if same != known {
			t.Errorf("known %v: kept the connection: %v", known, same)
		}
	}
}

// On a unix socket, X-Remote-User of a peer with this process's uid is believed.
func TestListenOnSocket(t *testing.T) {
	t.Parallel()
	s := newTestServer(t, whoami, func(c *testConfig) {
		c.Server.Listen[0].PeerUID = true
		c.Authenticator = authn.Union(authn.PeerUID(), authn.Anonymous("/healthz"))
	})
	s.start(t)
	if info, err := os.Stat(s.socket()); err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("mode of the socket: %v, %v", info, err)
	}
	for _, h2 := range []bool{false, true} {
		client := s.client(t, h2)
		response, body := get(t, client, "http://portico/x", "X-Remote-User", "joe", "X-Remote-Group", "ops")
		if body != "joe ops,system:authenticated" || (response.ProtoMajor == 2) != h2 {
			t.Errorf("h2 %v: got %q over %s", h2, body, response.Proto)
		}
		for path, want := range map[string]int{"/x": 401, "/healthz": 200} {
			if response, _ = get(t, client, "http://portico"+path); response.StatusCode != want {
				t.Errorf("h2 %v: %s without a user: got %d, want %d", h2, path, response.StatusCode, want)
			}
		}
	}
}

// New reports what is missing in the configuration.
func TestNewChecksTheConfiguration(t *testing.T) {
	t.Parallel()
	chain := newTestServer(t, whoami).chain
	for want, change := range map[string]func(*Config){
		"no chain":             func(c *Config) { c.Chain = nil },
		"no address":           func(c *Config) { c.Listen = nil },
		"address is empty":     func(c *Config) { c.Listen[0].Address = "" },
		"needs a cert":         func(c *Config) { c.Listen[0].Address = "127.0.0.1:0" },
		"must be given togeth": func(c *Config) { c.Listen[0].TLS.CertFile = "x" },
	} {
		cfg := Config{Chain: chain, Listen: []ListenAddress{{Address: "unix:///x"}}}
		change(&cfg)
		if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// If one address cannot be bound, none is.
func TestListenBindsAllOrNone(t *testing.T) {
	t.Parallel()
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
