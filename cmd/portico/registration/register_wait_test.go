package registration

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"portico/apiservice"
	"portico/apiservice/backend"
	"portico/cmd/portico/client"
)

// The advice about an untrusted certificate names the flag that makes it trusted. The errors
// are those of real handshakes.
func TestRegisterAdvice(t *testing.T) {
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	defer server.Close()
	trusted := server.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
	b := &backend.Backend{Status: backend.Status{GroupVersions: []backend.GroupVersionStatus{{Group: "g", Version: "v1"}}}}
	for name, tc := range map[string]struct {
		config       *tls.Config
		caFile, want string
	}{
		"unknown authority": {&tls.Config{RootCAs: x509.NewCertPool()}, "", "repeat this with --ca-file"},
		"wrong --ca-file":   {&tls.Config{RootCAs: x509.NewCertPool()}, "wrong.crt", "wrong.crt does not contain the authority"},
		"another name":      {&tls.Config{RootCAs: trusted, ServerName: "another.internal"}, "", "--server-name"},
		"another IP":        {&tls.Config{RootCAs: trusted, ServerName: "192.0.2.1"}, "", "--server-name"},
	} {
		_, err := tls.Dial("tcp", server.Listener.Addr().String(), tc.config)
		if err == nil {
			t.Fatalf("%s: the handshake succeeds", name)
		}
		r := &registration{name: "x", caFile: tc.caFile}
		if got := r.advice(b, err.Error()); !strings.Contains(got, tc.want) {
			t.Errorf("%s: %v: %s, want %s", name, err, got, tc.want)
		}
	}
	r := &registration{name: "x"}
	if got := r.advice(b, "connection refused"); got != "see: portico backends x" {
		t.Errorf("refused: %s", got)
	}
	if got := r.advice(b, `Registered is False: LeftOut: spec.autoRegister.groups: the server does not serve "typo"`); got != "it serves g/v1; repeat this with groups that it serves, or undo it: portico unregister x" {
		t.Errorf("another group: %s", got)
	}
}

// The command applies one Backend, prints whether it was created or unchanged, and warnings.
func TestRegisterApplies(t *testing.T) {
	stored := ""
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch {
		case r.URL.Path != backendPath("x"):
			t.Errorf("%s %s", r.Method, r.URL)
		case r.Method == http.MethodGet && stored == "":
			w.WriteHeader(http.StatusNotFound)
			io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404,"message":"not found","details":{"name":"x"}}`)
		case r.Method == http.MethodPatch:
			if ct := r.Header.Get("Content-Type"); ct != "application/apply-patch+yaml" || r.URL.Query().Get("fieldManager") != "portico-cli" {
				t.Errorf("%s as %s", r.URL, ct)
			}
			if stored == "" {
				stored = `{"metadata":{"name":"x","uid":"u","generation":1}}`
			}
			w.Header().Add("Warning", `299 - "any client can claim to be any user"`)
			io.WriteString(w, stored)
		default:
			io.WriteString(w, stored)
		}
	}))
	defer front.Close()
	var warnings strings.Builder
	c, err := client.New(&rest.Config{Host: front.URL}, time.Minute, &warnings)
	if err != nil {
		t.Fatal(err)
	}
	r := parsedRegistration(t, "--url=https://h:1 --all-groups")
	for _, want := range []string{"created", "unchanged"} {
		var out strings.Builder
		if err := register(t.Context(), c, r, &out); err != nil || out.String() != "backend x "+want+"\n" {
			t.Errorf("%s: %q, %v", want, out.String(), err)
		}
	}
	if got := strings.Repeat("Warning: any client can claim to be any user\n", 2); warnings.String() != got {
		t.Errorf("warnings %q", warnings.String())
	}
	stored = `{"metadata":{"name":"x","labels":{"` + apiservice.AutomanagedLabel + `":"onstart"}}}`
	if err := register(t.Context(), c, r, io.Discard); err == nil || !strings.Contains(err.Error(), "the gateway starts with a backend of that name") {
		t.Errorf("a backend of the gateway's: %v", err)
	}
}

// A 503 of the gateway is repeated within --wait, and its reason printed once; other errors are not.
func TestRegisterRepeatsUnavailable(t *testing.T) {
	for _, tc := range []struct {
		failure error
		limit   time.Duration
		want    int
	}{
		{apierrors.NewServiceUnavailable("configurations are not known yet"), time.Minute, 3},
		{apierrors.NewServiceUnavailable("configurations are not known yet"), 0, 1},
		{apierrors.NewBadRequest("no"), time.Minute, 1},
	} {
		calls := 0
		var progress strings.Builder
		err := retryUnavailable(t.Context(), tc.limit, &progress, func() error {
			if calls++; calls == 3 {
				return nil
			}
			return tc.failure
		})
		if calls != tc.want || (err == nil) != (tc.want == 3) || strings.Count(progress.String(), "waiting: ") != tc.want/3 {
			t.Errorf("%v within %v: %d calls, %v, %q", tc.failure, tc.limit, calls, err, &progress)
		}
	}
}
