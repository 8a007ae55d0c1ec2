package gateway

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"portico/resource"
)

// plainAsked is a request for a REST server, in its context: where the answer
// goes. front is the host that the client sent it to.
type plainAsked struct {
	api   *plainAPI
	front string
}

type plainAskedKey struct{}

// locating is the writer of an answer whose Location is to lead through the
// gateway.
type locating struct {
	http.ResponseWriter
	api *plainAPI
	// front is the host that the client sent its request to.
	front string
}

func (l *locating) WriteHeader(code int) {
	h := l.Header()
	if text := h.Get("Location"); text != "" {
		if text = l.api.location(text, l.front); text != "" {
			h.Set("Location", text)
		} else {
			h.Del("Location")
		}
	}
	l.ResponseWriter.WriteHeader(code)
}

// Unwrap lets http.ResponseController reach the server's own writer.
func (l *locating) Unwrap() http.ResponseWriter { return l.ResponseWriter }

// location returns where a server's Location is for clients; "" if that is
// nowhere in this API. What leads to other hosts is theirs, and what is relative
// is right as it is.
func (p *plainAPI) location(text, front string) string {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return ""
	case u.Host == "" && !strings.HasPrefix(u.Path, "/"):
		return text
	case u.Host != "" && u.Host != front && !slices.Contains(p.hosts, u.Host):
		return text
	}
	path := u.EscapedPath()
	if rest, ok := strings.CutPrefix(path, p.root); !ok || rest != "" && rest[0] != '/' {
		rest, ok := strings.CutPrefix(path, p.prefix)
		if !ok || rest != "" && rest[0] != '/' {
			return ""
		}
		path = p.root + rest
	}
	if u.RawQuery != "" {
		path += "?" + u.RawQuery
	}
	if u.Fragment != "" {
		path += "#" + u.EscapedFragment()
	}
	return path
}

// redirectsWithin reports whether a REST server's redirect leads to the same API
// by way of the gateway. A client that follows it sends a request which is
// authorized like any other, so it gains nothing that it could not have asked for;
// REST servers redirect to a job's result, or from one form of a path to another.
// One that leads elsewhere is refused as that of any server is.
func redirectsWithin(res *http.Response) bool {
	asked, ok := res.Request.Context().Value(plainAskedKey{}).(*plainAsked)
	if !ok {
		return false
	}
	text := asked.api.location(res.Header.Get("Location"), asked.front)
	if rest, ok := strings.CutPrefix(text, asked.api.root); ok {
		return rest == "" || strings.ContainsRune("/?#", rune(rest[0]))
	}
	u, err := url.Parse(text)
	// A backslash is a slash to browsers.
	return err == nil && text != "" && u.Scheme == "" && u.Host == "" && !strings.ContainsAny(text, "\\") && text[0] != '/'
}

// streams reports whether a request that reads of a REST server has no deadline:
// the client says that it takes a stream of events, and so that it waits for as
// long as it likes. Servers of Kubernetes have watches for that.
func (g *Gateway) streams(r *http.Request, act *resource.Action) bool {
	if !act.IsResource || r.Method != http.MethodGet || !takesEvents(r.Header["Accept"]) {
		return false
	}
	rt := g.sync.table.Load().lookup(act.Group, act.Version)
	return rt != nil && rt.plain != nil
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
