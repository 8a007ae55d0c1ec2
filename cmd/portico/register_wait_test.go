package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"portico/apiservice/backend"
)

// A certificate that is not trusted is told with the flag that makes it so. The
// texts are those of real handshakes.
func TestRegisterAdvice(t *testing.T) {
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	defer server.Close()
	trusted := server.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
	for name, tc := range map[string]struct {
		config *tls.Config
		want   string
	}{
		"nobody vouches": {&tls.Config{RootCAs: x509.NewCertPool()}, "--ca-file"},
		"another name":   {&tls.Config{RootCAs: trusted, ServerName: "another.internal"}, "--server-name"},
		"another IP":     {&tls.Config{RootCAs: trusted, ServerName: "192.0.2.1"}, "--server-name"},
	} {
		_, err := tls.Dial("tcp", server.Listener.Addr().String(), tc.config)
		if err == nil {
			t.Fatalf("%s: it is trusted", name)
		}
		if got := advice("x", err.Error()); !strings.Contains(got, tc.want) {
			t.Errorf("%s: %v: %s, want %s", name, err, got, tc.want)
		}
	}
	if got := advice("x", "connection refused"); got != "see: portico backends x" {
		t.Errorf("nobody there: %s", got)
	}
}

// What was asked for by name has to be served. A Backend that is available, and an
// APIService that was just made, are no proof of that.
func TestRegisterWaitsForWhatWasAskedFor(t *testing.T) {
	const available = `{"type":"Available","status":"True"},{"type":"Registered","status":"True"}`
	serving := func(discovered string, groupVersions ...string) string {
		return `{"metadata":{"name":"x"},"spec":{"autoRegister":{"groups":["g"]}},"status":{"conditions":[` + available +
			`,{"type":"Discovered","status":"` + discovered + `","message":"cannot be read"}],"groupVersions":[` + strings.Join(groupVersions, ",") + `]}}`
	}
	const v1, v2 = `{"group":"g.x","version":"v1","freshness":"Current"}`, `{"group":"g.x","version":"v2","freshness":"Current"}`
	many := slices.Repeat([]string{v1}, backend.MaxStatusGroups)
	for _, tc := range []struct{ name, flags, backend, want string }{
		{"a group", "--group=g.x", serving("True", v1), ""},
		{"a group that is not served", "--group=typo.x", serving("True", v1, v2), `the server does not serve group "typo.x"; it serves g.x/v1, g.x/v2`},
		{"one of two groups", "--group=g.x,typo.x", serving("True", v1), `the server does not serve group "typo.x"; it serves g.x/v1`},
		{"every group", "--all-groups", serving("True"), ""},
		{"a version", "--group=g.x --version=v2", serving("True", v1, v2), ""},
		{"a version that is not served", "--group=g.x --version=v2", serving("True", v1), "the server does not serve g.x/v2; it serves g.x/v1"},
		{"nothing is served", "--group=g.x", serving("True"), `the server does not serve group "g.x"; it serves nothing`},
		{"not read yet", "--group=g.x", serving("Unknown"), "what the server serves has not been read yet"},
		{"cannot be read", "--group=g.x", serving("False"), "what the server serves cannot be read: cannot be read"},
		{"known from before", "--group=g.x", serving("Unknown", v1), ""},
		{"more than a status has", "--group=typo.x", serving("True", many...), ""},
		{"one less", "--group=typo.x", serving("True", many[1:]...), `the server does not serve group "typo.x"; it serves ` + strings.Repeat("g.x/v1, ", maxServedNames-1) + "g.x/v1 and 245 more"},
	} {
		objects := map[string]string{
			backendPath("x"): tc.backend,
			// What an APIService says before the gateway asks for it.
			apiServicesPath + "/v2.g.x": `{"metadata":{"name":"v2.g.x"},"status":{"conditions":[{"type":"Available","status":"True","reason":"Local"}]}}`,
		}
		front := httptest.NewServer(&stores{objects: objects})
		c := &gatewayClient{host: front.URL, timeout: time.Minute, transport: http.DefaultTransport}
		w := registerWait{gateway: c, want: parsedRegistration(t, "--url=https://h:1 "+tc.flags)}
		_, missing, err := w.look(t.Context())
		front.Close()
		if err != nil || missing != tc.want {
			t.Errorf("%s: %q (%v), want %q", tc.name, missing, err, tc.want)
		}
		if strings.HasPrefix(missing, notServed) && !strings.Contains(advice("x", missing), "portico unregister x") {
			t.Errorf("%s: %s", tc.name, advice("x", missing))
		}
	}
}

// Reasons that take turns are not said with every turn.
func TestReasonsAreSaidSeldom(t *testing.T) {
	said, began := reasons{}, time.Now()
	got := ""
	for i := range 50 { // ten seconds
		for _, reason := range []string{"a", "b"} {
			if said.worth(reason, began.Add(time.Duration(i)*lookEvery)) {
				got += fmt.Sprint(reason, i, " ")
			}
		}
	}
	if got += fmt.Sprint(said.worth("c", began)); got != "a0 b0 a25 b25 true" {
		t.Errorf("said %q", got)
	}
	if said.worth("d", began.Add(time.Hour)); len(said) != 1 {
		t.Errorf("%d reasons of long ago are kept", len(said)-1)
	}
}
