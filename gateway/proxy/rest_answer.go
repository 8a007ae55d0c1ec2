package proxy

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"portico/resource"
)

// restRequest is a request to a REST backend, in its context. The Location of its answer
// is resolved with it.
type restRequest struct {
	api *REST
	// front is the host of the client's request.
	front string
	// at is the URL at the server.
	at *url.URL
}

type restRequestKey struct{}

// restRequestOf returns the restRequest of a request; nil if the server is no REST
// backend.
func restRequestOf(r *http.Request) *restRequest {
	asked, _ := r.Context().Value(restRequestKey{}).(*restRequest)
	return asked
}

// locationWriter rewrites the Location of an answer to lead through the gateway.
type locationWriter struct {
	http.ResponseWriter
	asked *restRequest
}

func (l *locationWriter) WriteHeader(code int) {
	h := l.Header()
	if text := h.Get("Location"); text != "" {
		if text, _ = l.asked.location(text); text != "" {
			h.Set("Location", text)
		} else {
			h.Del("Location")
		}
	}
	l.ResponseWriter.WriteHeader(code)
}

// Unwrap lets http.ResponseController reach the server's own writer.
func (l *locationWriter) Unwrap() http.ResponseWriter { return l.ResponseWriter }

// location returns a server's Location for clients, "" if there is none, and whether it
// is within this API. Those on other hosts are unchanged. All others are paths without
// dot segments: a server that echoes what it was sent could lead a client to any other
// API of the gateway.
func (a *restRequest) location(text string) (found string, within bool) {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return "", false
	case u.Host == "" && u.Scheme != "", u.Host != "" && u.Host != a.front && !slices.Contains(a.api.hosts, u.Host):
		return text, false
	}
	u = a.at.ResolveReference(u)
	path := u.EscapedPath()
	rest, ok := below(path, a.api.root)
	if !ok {
		rest, ok = below(path, a.api.prefix)
	}
	if !ok || hasDots(rest) {
		return "", false
	}
	path = a.api.root + rest
	if u.RawQuery != "" {
		path += "?" + u.RawQuery
	}
	if u.Fragment != "" {
		path += "#" + u.EscapedFragment()
	}
	// A path that servers read differently is no target of a redirect.
	return path, rest == "" || rest == "/" || unambiguous(rest[1:]) == nil
}

// hasDots reports whether a client could read a part of an escaped path as a dot
// segment, as browsers do when the dots are escaped.
func hasDots(escaped string) bool {
	text, err := url.PathUnescape(escaped)
	if err != nil {
		return true
	}
	return slices.ContainsFunc(strings.FieldsFunc(text, func(r rune) bool { return r == '/' || r == '\\' }), func(segment string) bool {
		name, _, _ := strings.Cut(segment, ";")
		return name == "." || name == ".."
	})
}

// below returns the rest of a path, which is empty or begins with a slash, and
// whether the path is prefix or below it.
func below(path, prefix string) (rest string, ok bool) {
	rest, ok = strings.CutPrefix(path, prefix)
	return rest, ok && (rest == "" || rest[0] == '/')
}

// redirectsWithin reports whether a REST backend redirects to the same API through the
// gateway, for instance to the result of a job. A client that follows sends a request
// that is authorized like any other, and for the same server. Other redirects are
// refused, as those of any server are.
func redirectsWithin(res *http.Response) bool {
	asked := restRequestOf(res.Request)
	if asked == nil {
		return false
	}
	_, within := asked.location(res.Header.Get("Location"))
	return within
}

// Streams reports whether a request to a REST backend has no deadline, because the
// client accepts a stream of events; Kubernetes API servers have watches for that. It is
// the client's own claim: until the answer is such a stream, the request counts against
// all limits and is audited like any other.
func (p *Proxy) Streams(r *http.Request, act *resource.Action) bool {
	if !act.IsResource || r.Method != http.MethodGet || !takesEvents(r.Header["Accept"]) {
		return false
	}
	rt := p.lookup(act.Group, act.Version)
	return rt != nil && rt.REST != nil
}

func takesEvents(accept []string) bool {
	for _, header := range accept {
		for clause := range strings.SplitSeq(header, ",") {
			media, _, _ := strings.Cut(clause, ";")
			if strings.EqualFold(strings.TrimSpace(media), "text/event-stream") {
				return true
			}
		}
	}
	return false
}
