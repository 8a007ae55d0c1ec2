package client

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"portico/apiservice/explain"
	"portico/cmd/internal/pki"
)

// backends is where Backends are served.
const backends = "/apis/gateway.portico.dev/v1alpha1/backends"

// clientOf returns a client of a test server, without credentials.
func clientOf(t *testing.T, url string, timeout time.Duration, warnings io.Writer) *Client {
	t.Helper()
	c, err := New(&rest.Config{Host: url}, timeout, warnings)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// says answers every request with a failure.
type says struct {
	reason metav1.StatusReason
	code   int
}

func (s says) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(s.code)
	_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","message":"` + string(s.reason) + `","reason":"` + string(s.reason) + `"}`))
}

// The error of a forbidden request names the right that it needs.
func TestForbidden(t *testing.T) {
	front := httptest.NewServer(says{metav1.StatusReasonForbidden, http.StatusForbidden})
	defer front.Close()
	c := clientOf(t, front.URL, time.Minute, io.Discard)
	for _, tc := range []struct{ method, path, want string }{
		{"GET", explain.Path, "the command asks the gateway for /debug/route; an administrator can allow it: kubectl create clusterrole NAME --verb=get --non-resource-url=/debug/route,"},
		{"GET", backends, "create clusterrole NAME --verb=list --resource=backends.gateway.portico.dev,"},
		{"GET", backends + "/x", "create clusterrole NAME --verb=get --resource=backends.gateway.portico.dev,"},
		{"GET", "/apis/apiregistration.k8s.io/v1/apiservices", "--verb=list --resource=apiservices.apiregistration.k8s.io,"},
		{"POST", backends, "needs the rights of cluster-admin"},
	} {
		if err := c.Send(t.Context(), tc.method, tc.path, nil, nil, nil); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s %s: %v, want %q", tc.method, tc.path, err, tc.want)
		}
	}
}

// The error of an unauthorized request names the user and the file of its credentials, and an
// expired certificate.
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
		c, err := (&Flags{kubeconfig: file, timeout: time.Minute}).Open(io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		err = c.Send(t.Context(), "GET", backends, nil, nil, nil)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), " of "+file) || strings.Contains(err.Error(), " expired at ") != (validFor < 0) {
			t.Errorf("%v: %v, want %q", validFor, err, want)
		}
	}
}

// The error of a gateway that accepts connections and does not respond names it and the time-out.
func TestSilentGateway(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	endless := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write([]byte("{"))
		_ = http.NewResponseController(w).Flush() // the client sees a failure
		<-r.Context().Done()
	}))
	defer endless.Close()
	for name, host := range map[string]string{"no response": "http://" + listener.Addr().String(), "half a response": endless.URL} {
		err := clientOf(t, host, 200*time.Millisecond, io.Discard).Send(t.Context(), "GET", backends, nil, nil, nil)
		if want := host + " has not answered a request for " + backends + " within 200ms"; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
	}
}
