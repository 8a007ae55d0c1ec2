package conversion

import (
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"portico/cmd/e2e"
	"portico/cmd/internal/pki"
)

// A webhook is called by its Service: at the endpoint of the EndpointSlice, with the port and the
// path of the clientConfig, and under the name of the Service, which alone its certificate has.
// It may move. The endpoint is not a loopback address, which an EndpointSlice may not name.
func TestService(t *testing.T) {
	t.Parallel()
	up, address := e2e.SharedInstallation(t), e2e.RoutableAddress(t)
	files, err := pki.Ensure(pki.Config{Dir: filepath.Join(t.TempDir(), "pki"), Hosts: []string{"converter.default.svc"}})
	if err != nil {
		t.Fatal(err)
	}
	ca, err := os.ReadFile(files.ServingCAFile)
	if err != nil {
		t.Fatal(err)
	}
	start := func() *webhook {
		certificate, err := tls.LoadX509KeyPair(files.Serving.CertFile, files.Serving.KeyFile)
		if err != nil {
			t.Fatal(err)
		}
		listener, err := net.Listen("tcp", net.JoinHostPort(address, "0"))
		if err != nil {
			t.Fatal(err)
		}
		hook := newWebhook(t)
		hook.Listener.Close()
		hook.Listener, hook.TLS = listener, &tls.Config{Certificates: []tls.Certificate{certificate}}
		converts := hook.Config.Handler
		hook.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/convert/hosts" || r.Host != "converter.default.svc:8443" {
				http.Error(w, "called as "+r.Host+r.URL.Path, http.StatusNotFound)
				return
			}
			converts.ServeHTTP(w, r)
		})
		hook.StartTLS()
		return hook
	}
	first := start()
	up.Post(t, "/api/v1/namespaces/default/services", `{"metadata":{"name":"converter"},"spec":{"ports":[{"name":"other","port":443},{"name":"webhook","port":8443}]}}`)
	leadTo(t, up, first)
	s := defineFor(t, up, "service.example.com", fmt.Sprintf("{service: {namespace: default, name: converter, path: /convert/hosts, port: 8443}, caBundle: %s}",
		base64.StdEncoding.EncodeToString(ca)))
	at := host{"a.example.org", 80, 1}
	s.must(t, http.MethodPost, s.path("v1", ""), s.body("v1", "a", at))
	s.expect(t, "by the Service", "a", at)

	second := start()
	leadTo(t, up, second)
	first.Close()
	calls := first.calls.Load()
	e2e.Within(t, e2e.Noticed, "the endpoint has moved", func() error {
		resp, body, err := e2e.Ask(t.Context(), s.client, http.MethodPatch, up.Endpoint+s.path("v1", "a"), `{"spec":{"port":81}}`, "Content-Type: application/merge-patch+json")
		if err == nil && resp.StatusCode != http.StatusOK {
			err = fmt.Errorf("%s %s", resp.Status, body)
		}
		return err
	})
	at.port = 81
	s.expect(t, "by the Service that has moved", "a", at)
	if second.calls.Load() == 0 || first.calls.Load() != calls {
		t.Errorf("after the move %d calls of the first endpoint and %d of the second", first.calls.Load()-calls, second.calls.Load())
	}
	s.must(t, http.MethodDelete, "/api/v1/namespaces/default/services/converter", "")
	e2e.Within(t, e2e.Noticed, "there is no Service", func() error {
		_, answer := up.Do(t, http.MethodPost, s.path("v1", ""), s.body("v1", "b", at))
		if !strings.Contains(answer, `services \"converter\" not found`) {
			return fmt.Errorf("%s", answer)
		}
		return nil
	})
	s.must(t, http.MethodDelete, definitions+"/hosts."+s.group, "")
}

// leadTo applies the EndpointSlice of the Service converter with the address of a webhook.
func leadTo(t *testing.T, up *e2e.Installation, hook *webhook) {
	t.Helper()
	address, port, err := net.SplitHostPort(hook.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	family := "IPv4"
	if strings.Contains(address, ":") {
		family = "IPv6"
	}
	code, answer := up.Do(t, http.MethodPatch, "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/converter?fieldManager=test", fmt.Sprintf(
		`{"apiVersion":"discovery.k8s.io/v1","kind":"EndpointSlice","metadata":{"name":"converter","labels":{"kubernetes.io/service-name":"converter"}},
		"addressType":%q,"ports":[{"name":"webhook","port":%s}],"endpoints":[{"addresses":[%q]}]}`, family, port, address), "Content-Type: application/apply-patch+yaml")
	if code >= 300 {
		t.Fatal(answer)
	}
}
