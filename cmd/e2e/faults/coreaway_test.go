package faults

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"portico/cmd/e2e"
	"portico/cmd/internal/pki"
)

// The CRD server trusts the front proxy only. Without the core server it creates objects in
// namespaces that it knows, and refuses others with 503, because it cannot look them up.
func TestCoreAway(t *testing.T) {
	t.Parallel()
	a := newCluster(t, "core", "crd")
	a.start(t, "crd", "gateway", "core")
	a.reached(t, "/api/v1/namespaces/default")
	a.reached(t, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions")
	a.expectTrustInFrontProxyOnly(t)
	const group = "away.example.com"
	e2e.Define(t, e2e.DynamicClient(t, a.up.Config(t)), group)
	ask := func(method, path, body string, code int, text string) error {
		if got, answer := a.up.Do(t, method, "/apis/"+group+"/v1/namespaces/"+path, body); got != code || !strings.Contains(answer, text) {
			return fmt.Errorf("%s %s: %d %s, want %d and %q", method, path, got, answer, code, text)
		}
		return nil
	}
	create := func(namespace, name string, code int, text string) error {
		body, err := e2e.Widget(group, name).MarshalJSON()
		if err != nil {
			return err
		}
		return ask(http.MethodPost, namespace+"/widgets", string(body), code, text)
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Error(err)
		}
	}
	const missing = `namespaces \"nowhere\" not found`
	must(create("default", "before", http.StatusCreated, ""))
	must(create("nowhere", "x", http.StatusNotFound, missing))

	a.kill9(t, "core")
	must(create("default", "while", http.StatusCreated, ""))
	must(create("nowhere", "x", http.StatusServiceUnavailable, `namespace \"nowhere\" cannot be looked up`))
	// A CRD server that starts now knows no namespace, webhook or policy: it serves reads
	// and refuses writes.
	a.kill9(t, "crd")
	a.start(t, "crd")
	a.reached(t, "/apis/"+group+"/v1/namespaces/default/widgets/while")
	must(create("default", "x", http.StatusServiceUnavailable, `namespace \"default\" cannot be looked up`))
	must(ask(http.MethodDelete, "default/widgets/while", "", http.StatusServiceUnavailable, "webhooks and policies are not known yet"))

	a.start(t, "core")
	e2e.Eventually(t, "creates pass again", func() error { return create("default", "after", http.StatusCreated, "") })
	e2e.Eventually(t, "a missing namespace is 404 again", func() error { return create("nowhere", "x", http.StatusNotFound, missing) })
}

// expectTrustInFrontProxyOnly checks that the CRD server accepts X-Remote headers from the
// front proxy's certificate, and no other client.
func (a *cluster) expectTrustInFrontProxyOnly(t *testing.T) {
	t.Helper()
	list := a.nodes["crd"].url() + "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	for _, tc := range []struct {
		name string
		pair pki.Pair
		code int
	}{
		{"front proxy", a.files.FrontProxy, http.StatusOK},
		{"administrator", a.files.Admin, http.StatusUnauthorized},
		{"no certificate", pki.Pair{}, http.StatusUnauthorized},
	} {
		cfg := rest.AnonymousClientConfig(a.up.Config(t))
		cfg.TLSClientConfig.CertFile, cfg.TLSClientConfig.KeyFile = tc.pair.CertFile, tc.pair.KeyFile
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, list, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("X-Remote-User", "jane")
		req.Header.Set("X-Remote-Group", "system:masters")
		if code, body := e2e.Send(t, e2e.HTTPClient(t, cfg), req); code != tc.code {
			t.Errorf("%s: %d %s, want %d", tc.name, code, body, tc.code)
		}
	}
}
