package accesslog

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"portico/resource"
	"portico/resource/serve/filter"
)

// Bounds of strings from the client, in bytes. A record has at most about
// 3 KiB.
const (
	maxURI       = 1024
	maxUserAgent = 256
	maxName      = 256 // of users, objects, ids
)

// record is a line. Empty strings and zero numbers are left out, except for the code, the bytes and
// the time.
type record struct {
	filter.RequestEnd

	user, impersonator                                      string
	method, protocol, uri, remote, userAgent                string
	verb, group, version, res, subresource, namespace, name string
}

// recordOf copies what is logged of a request, which is invalid after Add.
func recordOf(end *filter.RequestEnd) record {
	r, a := end.Request, end.Action
	out := record{
		RequestEnd: *end, user: nameOf(a.User), impersonator: nameOf(a.Impersonator),
		method: r.Method, protocol: r.Proto, uri: r.RequestURI, remote: r.RemoteAddr, userAgent: r.UserAgent(),
		verb: a.Verb, group: a.Group, version: a.Version, res: a.Resource, subresource: a.Subresource, namespace: a.Namespace, name: a.Name,
	}
	out.Request, out.Action = nil, nil
	return out
}

func nameOf(u *resource.User) string {
	if u == nil {
		return ""
	}
	return u.Name
}

// clip returns the first n bytes of s, as a copy: the queue does not retain the rest.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.Clone(s[:n])
}

// bounded returns the record with every string cut to its bound.
func (r record) bounded() record {
	r.uri, r.userAgent = clip(r.uri, maxURI), clip(r.userAgent, maxUserAgent)
	for _, s := range []*string{
		&r.AuditID, &r.user, &r.impersonator, &r.method, &r.verb, &r.group, &r.version, &r.res, &r.subresource,
		&r.namespace, &r.name, &r.Upstream.Err,
	} {
		*s = clip(*s, maxName)
	}
	return r
}

// write writes the record's line to the handler.
func (r *record) write(h slog.Handler) error {
	line := slog.NewRecord(r.Start, slog.LevelInfo, "request", 0)
	add := func(key, value string) {
		if value != "" {
			line.AddAttrs(slog.String(key, value))
		}
	}
	add("auditID", r.AuditID)
	add("traceID", r.TraceID)
	add("user", r.user)
	add("impersonator", r.impersonator)
	add("method", r.method)
	add("uri", resource.RedactURI(r.uri))
	add("protocol", r.protocol)
	add("verb", r.verb)
	add("group", r.group)
	add("version", r.version)
	add("resource", r.res)
	add("subresource", r.subresource)
	add("namespace", r.namespace)
	add("name", r.name)
	line.AddAttrs(slog.Int("code", r.Code), slog.Int64("bytes", r.Bytes), seconds("took", r.Took))
	if r.FirstByte != 0 {
		line.AddAttrs(seconds("firstByte", r.FirstByte))
	}
	add("userAgent", r.userAgent)
	add("remote", r.remote)
	add("apiService", r.Upstream.APIService)
	add("backend", r.Upstream.Backend)
	add("endpoint", r.Upstream.Endpoint)
	if r.Upstream.Attempts != 0 {
		line.AddAttrs(slog.Int("attempts", r.Upstream.Attempts),
			seconds("upstreamFirstByte", r.Upstream.FirstByte), seconds("upstreamTook", r.Upstream.Took))
	}
	add("upstreamError", r.Upstream.Err)
	return h.Handle(context.Background(), line)
}

// seconds is a duration in the unit of the metrics.
func seconds(key string, d time.Duration) slog.Attr { return slog.Float64(key, d.Seconds()) }
