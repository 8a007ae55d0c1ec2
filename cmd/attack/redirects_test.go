package attack

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
)

// redirector is a webhook that redirects every call to another server, and records what both get.
type redirector struct {
	url  string // of the webhook, by https
	mu   sync.Mutex
	seen []string // paths of the webhook that were called
	led  []string // what arrived where it leads
}

func newRedirector(t *testing.T) *redirector {
	t.Helper()
	r := &redirector{}
	elsewhere := runServer(t, nil, func(_ http.ResponseWriter, req *http.Request) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.led = append(r.led, fmt.Sprint(req.Method, " ", req.RequestURI, " ", req.Header))
	})
	config := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{http1},
		Certificates: []tls.Certificate{*target.stranger.issue(t, subject{name: "webhook", hosts: []string{"127.0.0.1"}})}}
	r.url = runServer(t, config, func(w http.ResponseWriter, req *http.Request) {
		r.mu.Lock()
		r.seen = append(r.seen, req.URL.Path)
		r.mu.Unlock()
		code := http.StatusTemporaryRedirect
		if _, err := fmt.Sscanf(req.URL.Path, "/%d", &code); err != nil {
			t.Errorf("path %s: %v", req.URL.Path, err)
		}
		w.Header().Set("Location", elsewhere+"/internal?x=1")
		w.WriteHeader(code)
	})
	return r
}

// judge checks that a path of the webhook was called, and that nothing arrived where it leads.
func (r *redirector) judge(t *testing.T, path, answer string) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.seen) == 0 || r.seen[0] != path {
		t.Errorf("%s: the webhook was called at %v", path, r.seen)
	}
	if len(r.led) > 0 {
		t.Errorf("%s: the redirect was followed: %v", path, r.led)
	}
	if !strings.Contains(answer, "redirects are not followed") {
		t.Errorf("%s: the answer is %.500s", path, answer)
	}
	r.seen, r.led = nil, nil
}

// Admission and conversion webhooks that redirect have failed: no process sends an object anywhere else than their
// configuration says (CVE-2020-8561).
func TestRedirectsOfWebhooks(t *testing.T) {
	t.Parallel()
	i, r := target, newRedirector(t)
	i.namespace(t, "redirected")
	client := func(code int) string {
		return fmt.Sprintf(`{"url":"%s/%d","caBundle":%q}`, r.url, code, base64Of(i.stranger.pem()))
	}
	for _, code := range []int{301, 302, 303, 307, 308} {
		for _, kind := range []string{"validating", "mutating"} {
			name := fmt.Sprintf("redirected-%s-%d", kind, code)
			path := "/apis/admissionregistration.k8s.io/v1/" + kind + "webhookconfigurations"
			i.must(t, "POST", path, fmt.Sprintf(`{"metadata":{"name":%q},"webhooks":[{"name":"redirected.example.com","clientConfig":%s,"sideEffects":"None","admissionReviewVersions":["v1"],
				"objectSelector":{"matchLabels":{"by":%q}},"rules":[{"apiGroups":[""],"apiVersions":["v1"],"resources":["secrets"],"operations":["CREATE"]}]}]}`, name, client(code), name))
			eventually(t, name+" is asked", func() error {
				got, answer, err := i.ask(i.admin, "POST", "/api/v1/namespaces/redirected/secrets?dryRun=All", fmt.Sprintf(`{"metadata":{"name":"x","labels":{"by":%q}}}`, name))
				if err != nil || got < 400 {
					return fmt.Errorf("%d %s %v", got, answer, err)
				}
				r.judge(t, fmt.Sprintf("/%d", code), answer)
				return nil
			})
			i.must(t, "DELETE", path+"/"+name, "")
		}
	}
	const definitions, group = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", "redirected.example.com"
	version := `{"name":%q,"served":true,"storage":%t,"schema":{"openAPIV3Schema":{"type":"object"}}}`
	i.must(t, "POST", definitions, fmt.Sprintf(`{"metadata":{"name":"things.%[1]s"},"spec":{"group":%[1]q,"scope":"Cluster","names":{"plural":"things","kind":"Thing"},"versions":[%s,%s],
		"conversion":{"strategy":"Webhook","webhook":{"conversionReviewVersions":["v1"],"clientConfig":%s}}}}`, group, fmt.Sprintf(version, "v1", true), fmt.Sprintf(version, "v2", false), client(307)))
	t.Cleanup(func() { i.must(t, "DELETE", definitions+"/things."+group, "") })
	eventually(t, "things are served", func() error {
		code, answer, err := i.ask(i.admin, "POST", "/apis/"+group+"/v1/things", fmt.Sprintf(`{"apiVersion":"%s/v1","kind":"Thing","metadata":{"name":"x"}}`, group))
		if err == nil && code != http.StatusCreated && code != http.StatusConflict {
			err = fmt.Errorf("%d %s", code, answer)
		}
		return err
	})
	code, answer, err := i.ask(i.admin, "GET", "/apis/"+group+"/v2/things/x", "")
	if err != nil || code < 500 {
		t.Errorf("a conversion: %d %s %v", code, answer, err)
	}
	r.judge(t, "/307", answer)
}
