package servers

import (
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"portico/cmd/e2e"
	"strings"
	"sync/atomic"
	"testing"
)

// beforeSample stands where the sample is registered and sends requests on to
// it, which has a port of its own then. What rewrite answers, it does not.
func beforeSample(t *testing.T, s *e2e.SampleServer, rewrite func(w http.ResponseWriter, r *http.Request) bool) {
	t.Helper()
	listener, err := net.Listen("tcp", net.JoinHostPort(s.Host, s.Port))
	if err != nil {
		t.Fatal(err)
	}
	s.Port = e2e.FreePort(t, s.Host)
	// It speaks for the gateway, which the sample believes only by its
	// certificate.
	pair, err := tls.LoadX509KeyPair(filepath.Join(s.Up.Dir, "pki", "front-proxy-client.crt"), filepath.Join(s.Up.Dir, "pki", "front-proxy-client.key"))
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "https", Host: net.JoinHostPort(s.Host, s.Port)})
	proxy.Transport = &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{pair}}}
	front := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !rewrite(w, r) {
			proxy.ServeHTTP(w, r)
		}
	}))
	front.Listener.Close()
	front.Listener = listener
	front.StartTLS()
	t.Cleanup(front.Close)
}

// A server that has OpenAPI v2 only, as many do: kubectl explains its kinds all
// the same, and a document that breaks is named and disturbs nobody.
func TestServerOfOpenAPIV2(t *testing.T) {
	t.Parallel()
	up := e2e.Install(t, t.TempDir())
	s := e2e.RegisterSample(t, up, func(_, text string) string { return text })
	var broken atomic.Bool
	beforeSample(t, s, func(w http.ResponseWriter, r *http.Request) bool {
		switch {
		case strings.HasPrefix(r.URL.Path, "/openapi/v3"):
			http.NotFound(w, r)
		case r.URL.Path == "/openapi/v2" && broken.Load():
			w.Write([]byte("<html>"))
		default:
			return false
		}
		return true
	})
	s.Start(t)
	s.Serves(t)
	s.Available(t, "True")
	shows := func(want string, args ...string) {
		t.Helper()
		e2e.Eventually(t, strings.Join(args, " ")+" shows "+want, func() error {
			out, err := up.Kubectl(t, args...)
			if err == nil && !strings.Contains(out, want) {
				err = errors.New(out)
			}
			return err
		})
	}
	const key = "/openapi/v3/apis/wardle.example.com/v1alpha1"
	shows(key+"?hash=", "get", "--raw", "/openapi/v3")
	shows("referenceType", "explain", "flunders.spec")
	if out := up.MustKubectl(t, "get", "--raw", key); !strings.HasPrefix(out, `{"openapi":"3`) || !strings.Contains(out, `"kind":"Flunder"`) || strings.Contains(out, "#/definitions/") {
		t.Errorf("the document is %.300s", out)
	}
	shows("v1alpha1.Flunder", "get", "--raw", "/openapi/v2")

	broken.Store(true)
	shows(`portico_gateway_openapi_broken{backend="v1alpha1.wardle.example.com",group_version=""} 1`, "get", "--raw", "/metrics")
	shows("referenceType", "explain", "flunders.spec")
	shows("data", "explain", "configmaps")
	broken.Store(false)
	e2e.Eventually(t, "the metric names it no more", func() error {
		out, err := up.Kubectl(t, "get", "--raw", "/metrics")
		if err == nil && strings.Contains(out, "portico_gateway_openapi_broken{") {
			err = errors.New("it is named still")
		}
		return err
	})
}
