package proxy

import (
	"net/http"
	"slices"

	"portico/resource"
	"portico/resource/authn"
)

// A server is trusted with the requests of its own groups and the names of their users, and
// gets nothing by which a client authenticates elsewhere: cookies, tokens, API keys, and what
// a proxy before the gateway says about the client. No list could name all of these, so the
// headers that are sent on are lists.

// httpHeaders are the headers of HTTP itself, of browsers, WebSockets and traces, which every server gets.
// A header of the connection is in a request only if the gateway has decided so.
var (
	httpHeaders = headerSet(httpNames)
	httpNames   = []string{
		"Accept", "Accept-Charset", "Accept-Encoding", "Accept-Language", "Audit-Id", "Cache-Control", "Connection", "Content-Digest",
		"Content-Disposition", "Content-Encoding", "Content-Language", "Content-Length", "Content-Md5", "Content-Range", "Content-Type", "Date",
		"Digest", "Expect", "Idempotency-Key", "If-Match", "If-Modified-Since", "If-None-Match", "If-Range", "If-Unmodified-Since", "Last-Event-Id",
		"Origin", "Pragma", "Prefer", "Range", "Sec-Fetch-Dest", "Sec-Fetch-Mode", "Sec-Fetch-Site", "Sec-Fetch-User", "Sec-Websocket-Extensions",
		"Sec-Websocket-Key", "Sec-Websocket-Protocol", "Sec-Websocket-Version", "Te", "Traceparent", "Tracestate", "Upgrade", "User-Agent",
		"X-Correlation-Id", "X-Portico-Via", "X-Request-Id",
	}
)

// kubernetesHeaders are the headers that Kubernetes API servers get: httpHeaders and others that
// client-go and kubectl send or servers of k8s.io/apiserver read.
var kubernetesHeaders = headerSet(httpNames, "Baggage", "Kubectl-Command", "Kubectl-Session", "X-Stream-Protocol-Version")

// headerSet returns canonical names as a set.
func headerSet(names []string, more ...string) map[string]bool {
	set := make(map[string]bool, len(names))
	for _, name := range slices.Concat(names, more) {
		set[name] = true
	}
	return set
}

// keepKubernetes removes what a Kubernetes API server does not get.
func keepKubernetes(h http.Header) {
	for name := range h {
		if !kubernetesHeaders[name] {
			delete(h, name)
		}
	}
}

// stripForObject removes what a pod, node or service behind the core server does not get.
// It is any server of HTTP, so all headers pass but those by which clients authenticate at
// the gateway and at proxies before it, and what such proxies add about the user.
func stripForObject(h http.Header) {
	for name := range h {
		switch folded := authn.FoldHeaderName(name); {
		case folded == "authorization", folded == "cookie", folded == "cookie2",
			hasAnyPrefix(folded, "proxy-", "impersonate-", "x-forwarded-", "x-auth-request-"):
			delete(h, name)
		}
	}
}

func hasAnyPrefix(folded string, prefixes ...string) bool {
	for _, prefix := range prefixes {
		if authn.HasFoldedPrefix(folded, prefix) {
			return true
		}
	}
	return false
}

// isProxiedObject reports whether an action is a request to a pod, node or service through the
// core server.
func isProxiedObject(act *resource.Action) bool {
	if act == nil || !act.IsResource || act.Group != "" || act.Subresource != "proxy" {
		return false
	}
	return act.Resource == "pods" || act.Resource == "nodes" || act.Resource == "services"
}

// sandbox makes a browser treat an answer as a page of an origin of its own, which may run scripts
// and send forms, but reaches neither the API with the user's credentials nor what pages of the
// gateway store.
const sandbox = "sandbox allow-downloads allow-forms allow-modals allow-popups allow-scripts"

// confine changes the header of an answer of a server that is not the gateway's own, which may
// be a page: browsers would take it for one of the gateway.
func confine(h http.Header) {
	h["Content-Security-Policy"] = append(h["Content-Security-Policy"], sandbox)
	h["X-Content-Type-Options"] = []string{"nosniff"}
}
