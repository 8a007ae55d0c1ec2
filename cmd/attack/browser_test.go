package attack

import (
	"fmt"
	"strings"
	"testing"
)

// upgrading are the headers of the GET of a WebSocket.
const upgrading = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"

// Headers that browsers add to what pages send.
const (
	foreign  = "Origin: https://mallory.example\r\nSec-Fetch-Site: cross-site\r\n"
	sameSite = "Origin: https://mallory.localhost\r\nSec-Fetch-Site: same-site\r\n"
	older    = "Origin: https://mallory.example\r\n"
	opaque   = "Origin: null\r\n"
	own      = "Origin: https://localhost\r\nSec-Fetch-Site: same-origin\r\n"
	friendly = "Origin: https://friend.example:8443\r\nSec-Fetch-Site: cross-site\r\n" // --cors-allowed-origins has it
)

// crossSite are requests that a page makes a browser send with the certificate of an administrator. A body is a ConfigMap without a
// Content-Type, which a page may send to any server.
var crossSite = []struct {
	name, method, path, header string
	code                       int
}{
	{"control: a client without Origin", "GET", "/api/v1/namespaces/a/secrets?watch=1", upgrading, 101},
	{"control: a client that names the host as its origin", "GET", "/api/v1/namespaces/a/secrets?watch=1", upgrading + "Origin: http://localhost\r\n", 101},
	{"control: a page of the gateway", "GET", "/api/v1/namespaces/a/secrets?watch=1", upgrading + own, 101},
	{"control: an allowed origin", "GET", "/api/v1/namespaces/a/secrets?watch=1", upgrading + friendly, 101},
	{"control: a write without Origin", "POST", "/api/v1/namespaces/a/configmaps", "", 201},
	{"control: a write of a page of the gateway", "POST", "/api/v1/namespaces/a/configmaps", own, 201},
	{"control: a write of an allowed origin", "POST", "/api/v1/namespaces/a/configmaps", friendly, 201},
	{"control: a read, of which the page sees nothing", "GET", "/api/v1/namespaces/a/secrets", foreign, 200},

	{"a watch", "GET", "/api/v1/namespaces/a/secrets?watch=1", upgrading + foreign, 403},
	{"a watch with a protocol", "GET", "/api/v1/namespaces/a/secrets?watch=1", upgrading + foreign + "Sec-WebSocket-Protocol: binary.k8s.io\r\n", 403},
	{"a watch with a token that counts for nothing", "GET", "/api/v1/namespaces/a/secrets?watch=1", upgrading + foreign + "Sec-WebSocket-Protocol: base64url.bearer.authorization.k8s.io.bWFsbG9yeQ, x\r\n", 403},
	{"a watch of the gateway's own kinds", "GET", "/apis/apiregistration.k8s.io/v1/apiservices?watch=1", upgrading + foreign, 403},
	{"a watch of custom resources", "GET", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions?watch=1", upgrading + older, 403},
	{"a watch by an old path", "GET", "/api/v1/watch/namespaces/a/secrets", upgrading + older, 403},
	{"exec", "GET", "/api/v1/namespaces/a/pods/x/exec?command=id&stdout=1", upgrading + foreign + "Sec-WebSocket-Protocol: v5.channel.k8s.io\r\n", 403},
	{"attach", "GET", "/api/v1/namespaces/a/pods/x/attach", upgrading + foreign + "Sec-WebSocket-Protocol: v5.channel.k8s.io\r\n", 403},
	{"portforward", "GET", "/api/v1/namespaces/a/pods/x/portforward?ports=80", upgrading + older, 403},
	{"a log", "GET", "/api/v1/namespaces/a/pods/x/log?follow=true", upgrading + foreign, 403},
	{"a proxy", "GET", "/api/v1/namespaces/a/pods/x/proxy/", upgrading + foreign, 403},
	{"an upgrade to SPDY", "POST", "/api/v1/namespaces/a/pods/x/exec?command=id", strings.ReplaceAll(upgrading, "websocket", "SPDY/3.1") + foreign, 403},
	{"an upgrade from the same site", "GET", "/api/v1/namespaces/a/secrets?watch=1", upgrading + sameSite, 403},
	{"an upgrade from an older browser", "GET", "/api/v1/namespaces/a/secrets?watch=1", upgrading + older, 403},
	{"an upgrade from a sandbox", "GET", "/api/v1/namespaces/a/secrets?watch=1", upgrading + opaque, 403},
	{"a write", "POST", "/api/v1/namespaces/a/configmaps", foreign, 403},
	{"a write from the same site", "POST", "/api/v1/namespaces/a/configmaps", sameSite, 403},
	{"a write from an older browser", "POST", "/api/v1/namespaces/a/configmaps", older, 403},
	{"a write from a sandbox", "POST", "/api/v1/namespaces/a/configmaps", opaque, 403},
	{"a write to the gateway's own kinds", "POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", foreign, 403},
	{"a write to a proxy", "POST", "/api/v1/namespaces/a/services/x/proxy/", foreign, 403},
	{"a write with a token", "POST", "/api/v1/namespaces/a/configmaps", foreign + "Authorization: Bearer mallory\r\n", 403},
	{"a write with a host like the origin in X-Forwarded-Host", "POST", "/api/v1/namespaces/a/configmaps", foreign + "X-Forwarded-Host: mallory.example\r\n", 403},
	{"a deletion", "DELETE", "/api/v1/namespaces/a/configmaps/x", foreign, 403},
	{"a deletion of all", "DELETE", "/api/v1/namespaces/a/configmaps", older, 403},
	{"a patch", "PATCH", "/api/v1/namespaces/a/configmaps/x", foreign, 403},
}

// A page of another origin neither writes nor opens WebSockets with what a browser adds by itself, over HTTP/1.1 and HTTP/2.
func TestCrossSiteRequests(t *testing.T) {
	t.Parallel()
	for n, tc := range crossSite {
		body := ""
		if tc.method != "GET" {
			body = fmt.Sprintf(`{"metadata":{"name":"cross-site-%d"}}`, n)
		}
		head := fmt.Sprintf("%s %s HTTP/1.1\r\nHost: localhost\r\n%sContent-Length: %d\r\n\r\n", tc.method, tc.path, tc.header, len(body))
		if err := crossSiteAnswer(target.send(t, target.administrator, tc.method, head+body), tc.code); err != nil {
			t.Errorf("%s: %v", tc.name, err)
		}
		if strings.Contains(tc.header, "Upgrade") {
			continue // not over HTTP/2
		}
		header := pseudo(tc.method, tc.path)
		for line := range strings.SplitSeq(strings.TrimSuffix(tc.header, "\r\n"), "\r\n") {
			if name, value, ok := strings.Cut(line, ": "); ok {
				header = append(header, field{strings.ToLower(name), value})
			}
		}
		s := stream{header: header}
		if body != "" {
			s.body = []byte(strings.Replace(body, "cross-site-", "cross-site-h2-", 1))
		}
		if err := crossSiteAnswer(target.sendStream(t, target.administrator, s), tc.code); err != nil {
			t.Errorf("%s, over HTTP/2: %v", tc.name, err)
		}
	}
}

// crossSiteAnswer returns an error unless the answer has the code, and is a Status if it is a 403.
func crossSiteAnswer(a answer, code int) error {
	if err := a.among(code); err != nil {
		return fmt.Errorf("answered %w, want %d", err, code)
	}
	if code == 403 && !strings.Contains(string(a.body), `"kind":"Status"`) {
		return fmt.Errorf("answered %v without a Status", a)
	}
	return nil
}
