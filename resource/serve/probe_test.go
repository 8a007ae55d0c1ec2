package serve

import (
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"portico/resource/authn"
)

// probed starts a server with an address for probes that authenticates no client.
func probed(t *testing.T) (health *Health, url string) {
	t.Helper()
	health = NewHealth()
	s := newTestServer(t, ok, func(c *testConfig) {
		c.Server.Health, c.Server.Probe = health, "127.0.0.1:0"
		c.Authenticator = authn.Union()
	})
	s.start(t)
	return health, "http://" + s.listeners[1].Addr().String()
}

// The address for probes serves health and metrics to clients without credentials, and
// nothing else.
func TestProbeListener(t *testing.T) {
	t.Parallel()
	health, url := probed(t)
	health.AddReady("broken", func(*http.Request) error { return errors.New("etcd is away") })
	for path, want := range map[string]struct {
		code int
		text string
	}{
		"/livez":         {200, "ok"},
		"/livez?verbose": {200, "[+]ping ok\nlivez check passed\n"},
		"/readyz":        {500, "[+]ping ok\n[-]broken failed: reason withheld\n[+]shutdown ok\nreadyz check failed\n"},
		"/readyz/ping":   {200, "ok"},
		"/readyz/broken": {500, "internal server error: etcd is away\n"},
		"/healthz/none":  {404, "404 page not found\n"},
		"/healthz":       {500, "[+]ping ok\n[-]broken failed: reason withheld\nhealthz check failed\n"},
		"/":              {404, "404 page not found\n"},
		"/version":       {404, "404 page not found\n"},
		"/debug/pprof/":  {404, "404 page not found\n"},
		pathPods:         {404, "404 page not found\n"},
	} {
		if response, body := get(t, http.DefaultClient, url+path); response.StatusCode != want.code || body != want.text {
			t.Errorf("%s: got %d %q, want %d %q", path, response.StatusCode, body, want.code, want.text)
		}
	}
	if response, body := get(t, http.DefaultClient, url+"/metrics"); response.StatusCode != 200 || !strings.Contains(body, "apiserver_current_inflight_requests") {
		t.Errorf("/metrics: got %d %.200q", response.StatusCode, body)
	}
	if response, body := get(t, http.DefaultClient, url+"/metrics/slis"); response.StatusCode != 200 || !strings.Contains(body, `kubernetes_healthcheck{name="broken",type="readyz"} 0`) {
		t.Errorf("/metrics/slis: got %d %.200q", response.StatusCode, body)
	}
	response, err := http.Post(url+"/readyz", "text/plain", strings.NewReader("x"))
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	if response.StatusCode != 405 {
		t.Errorf("POST: got %d", response.StatusCode)
	}
}

// Connections beyond the bound wait, and a client that sends nothing is cut off.
func TestProbeListenerIsBounded(t *testing.T) {
	t.Parallel()
	_, url := probed(t)
	address := strings.TrimPrefix(url, "http://")
	began := time.Now()
	var silent []net.Conn
	for range probeConnections {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		silent = append(silent, conn)
	}
	if response, body := get(t, http.DefaultClient, url+"/livez"); response.StatusCode != 200 || body != "ok" {
		t.Errorf("got %d %q", response.StatusCode, body)
	}
	if waited := time.Since(began); waited < probeReadTimeout/2 {
		t.Errorf("a connection beyond the bound was served after %v", waited)
	}
	for _, conn := range silent {
		if _, err := conn.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("a silent connection: %v", err)
		}
	}
}

// A bad address and one in use are one line that names the flag.
func TestProbeListenErrors(t *testing.T) {
	t.Parallel()
	used, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer used.Close()
	s := newTestServer(t, ok, func(c *testConfig) { c.Server.Probe = used.Addr().String() })
	want := "--probe-listen=" + used.Addr().String() + ": bind: address already in use; choose another address"
	if err := s.Listen(); err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	cfg := s.cfg
	cfg.Probe = "8080"
	if _, err := New(cfg); err == nil || err.Error() != "--probe-listen=8080: must have the form host:port" {
		t.Errorf("got %v", err)
	}
}

// A server that cannot answer yet lets connections wait, except those for probes; after a time
// it answers all the same.
func TestConnectionsWaitForAnswers(t *testing.T) {
	t.Parallel()
	for name, answering := range map[string]bool{"answers soon": true, "never": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			asked := make(chan struct{}, 1)
			var answers atomic.Bool
			s := newTestServer(t, func(w http.ResponseWriter, _ *http.Request) {
				if answers.Load() == answering {
					ok(w, nil)
				}
			}, func(c *testConfig) {
				c.Server.Probe = "127.0.0.1:0"
				c.Server.Answers = func() bool {
					select {
					case asked <- struct{}{}:
					default:
					}
					return answers.Load()
				}
			})
			s.start(t)
			<-asked
			probe := "http://" + s.listeners[1].Addr().String() + "/livez"
			if response, _ := get(t, http.DefaultClient, probe); response.StatusCode != 200 {
				t.Errorf("probe: got %d", response.StatusCode)
			}
			began := time.Now()
			go func() {
				<-asked
				<-asked
				answers.Store(answering)
			}()
			if _, body := get(t, s.client(t, false), "http://portico/x"); body != "ok" {
				t.Errorf("got %q", body)
			}
			if waited := time.Since(began); (waited < holdTimeout/2) != answering {
				t.Errorf("waited %v", waited)
			}
		})
	}
}
