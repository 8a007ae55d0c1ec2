package proxy

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"portico/resource"
)

// plainAsked is a request for a REST server, in its context: what its answer's
// Location is read against.
type plainAsked struct {
	api *Plain
	// front is the host that the client sent it to.
	front string
	// at is where the server is asked.
	at *url.URL
}

type plainAskedKey struct{}

// askedOf is how a REST server is asked; nil: none is.
func askedOf(r *http.Request) *plainAsked {
	asked, _ := r.Context().Value(plainAskedKey{}).(*plainAsked)
	return asked
}

// locating is the writer of an answer whose Location is to lead through the
// gateway.
type locating struct {
	http.ResponseWriter
	asked *plainAsked
}

func (l *locating) WriteHeader(code int) {
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
func (l *locating) Unwrap() http.ResponseWriter { return l.ResponseWriter }

// location returns where a server's Location is for clients, "" if that is
// nowhere, and whether it is in this API. What leads to other hosts is theirs.
// Everything else is a path without dot segments: those of a server that answers
// with what it was sent would lead a client to any other API of the gateway.
func (a *plainAsked) location(text string) (found string, within bool) {
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
	// What is read in different ways is a place, but nobody is sent there.
	return path, rest == "" || rest == "/" || unambiguous(rest[1:]) == nil
}

// hasDots reports whether somebody could take a part of an escaped path for a dot
// segment: browsers, for one, read it so when the dots are escaped.
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

// redirectsWithin reports whether a REST server's redirect leads to the same API
// by way of the gateway. A client that follows it, with its body if the redirect
// says so, sends a request which is authorized like any other, and for the same
// server; REST servers redirect to a job's result, or from one form of a path to
// another. One that leads elsewhere is refused as that of any server is.
func redirectsWithin(res *http.Response) bool {
	asked := askedOf(res.Request)
	if asked == nil {
		return false
	}
	_, within := asked.location(res.Header.Get("Location"))
	return within
}

// Streams reports whether a request that reads of a REST server has no deadline:
// the client says that it takes a stream of events, and so that it waits for as
// long as it likes. Servers of Kubernetes have watches for that. It says so of
// itself, and so it still counts against all limits, and is audited, like any
// other until the answer is such a stream.
func (p *Proxy) Streams(r *http.Request, act *resource.Action) bool {
	if !act.IsResource || r.Method != http.MethodGet || !takesEvents(r.Header["Accept"]) {
		return false
	}
	rt := p.lookup(act.Group, act.Version)
	return rt != nil && rt.Plain != nil
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
