package main

import (
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico/apiservice/explain"
	"portico/cmd/internal/pki"
)

// says answers every request with a failure.
type says struct {
	reason metav1.StatusReason
	code   int
}

func (s says) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	w.WriteHeader(s.code)
	_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","message":"` + string(s.reason) + `","reason":"` + string(s.reason) + `"}`))
}

// Who is refused is told which right it takes, also to a path that nobody typed.
func TestForbidden(t *testing.T) {
	front := httptest.NewServer(says{metav1.StatusReasonForbidden, http.StatusForbidden})
	defer front.Close()
	c := &gatewayClient{host: front.URL, timeout: time.Minute, transport: http.DefaultTransport}
	for _, tc := range []struct{ method, path, want string }{
		{"GET", explain.Path, "the command asks the gateway for /debug/route; an administrator can allow it: kubectl create clusterrole NAME --verb=get --non-resource-url=/debug/route,"},
		{"GET", backendsPath, "create clusterrole NAME --verb=list --resource=backends.gateway.portico.dev,"},
		{"GET", backendPath("x"), "create clusterrole NAME --verb=get --resource=backends.gateway.portico.dev,"},
		{"GET", apiServicesPath, "--verb=list --resource=apiservices.apiregistration.k8s.io,"},
		{"POST", backendsPath, "needs the rights of cluster-admin"},
	} {
		if err := c.send(t.Context(), tc.method, tc.path, nil, nil); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s %s: %v, want %q", tc.method, tc.path, err, tc.want)
		}
	}
}

// Who is not known is told which user of which file that was, and that the
// certificate has expired if it has.
func TestUnauthorized(t *testing.T) {
	front := httptest.NewServer(says{metav1.StatusReasonUnauthorized, http.StatusUnauthorized})
	defer front.Close()
	ca := filepath.Join(t.TempDir(), "ca")
	if err := pki.EnsureAuthorities(ca); err != nil {
		t.Fatal(err)
	}
	for want, validFor := range map[string]time.Duration{
		"the client certificate of user \"jane@portico-": -time.Hour, "does not know user \"jane@portico-": time.Hour,
	} {
		file := filepath.Join(t.TempDir(), "kubeconfig")
		if _, err := pki.IssueKubeconfig(ca, file, front.URL, pki.Request{User: "jane", ValidFor: validFor}); err != nil {
			t.Fatal(err)
		}
		c, err := (&clientFlags{kubeconfig: file, timeout: time.Minute}).open()
		if err != nil {
			t.Fatal(err)
		}
		err = c.send(t.Context(), "GET", backendsPath, nil, nil)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), " of "+file) || strings.Contains(err.Error(), " expired at ") != (validFor < 0) {
			t.Errorf("%v: %v, want %q", validFor, err, want)
		}
	}
}

// A gateway that takes connections and no more is named, and so is the time it had.
func TestSilentGateway(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	endless := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write([]byte("{"))
		_ = http.NewResponseController(w).Flush() // a failure shows in what is read
		<-r.Context().Done()
	}))
	defer endless.Close()
	for name, tc := range map[string]struct {
		host      string
		transport *http.Transport
		timeout   time.Duration
		want      string
	}{
		"no answer":       {"http://" + listener.Addr().String(), &http.Transport{}, 50 * time.Millisecond, "no answer within 50ms"},
		"no whole answer": {endless.URL, &http.Transport{}, 500 * time.Millisecond, "no whole answer within 500ms"},
		"no handshake":    {"https://" + listener.Addr().String(), &http.Transport{TLSHandshakeTimeout: 50 * time.Millisecond}, 0, "accepts connections there and does not answer"},
	} {
		c := &gatewayClient{host: tc.host, timeout: tc.timeout, transport: tc.transport}
		err := c.send(t.Context(), "GET", backendsPath, nil, nil)
		if err == nil || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), tc.host) {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
		tc.transport.CloseIdleConnections()
	}
}
