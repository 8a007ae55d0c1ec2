package accesslog

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"portico/resource"
)

// Bounds of what a client can make long, in bytes. With them a record is at most
// about 3 KiB.
const (
	maxURI       = 1024
	maxUserAgent = 256
	maxName      = 256 // of users, objects, ids
)

// CodeClientGone is the code of a request whose client went away before there
// was an answer, as other logs have it too. Nobody was sent it.
const CodeClientGone = 499

// Record is one request that is over. Strings that are empty and numbers that
// are 0 leave no trace in the line, but for the code, the bytes and the time
// taken.
type Record struct {
	// Start is when the request's header had been read.
	Start time.Time
	// AuditID and TraceID are under what else the request is found.
	AuditID, TraceID string
	// User made the request, or is as whom Impersonator made it.
	User, Impersonator string
	// Method, Protocol and URI are of the request line; Remote is the peer's
	// address.
	Method, Protocol, URI, Remote, UserAgent string
	// Verb and what it is about; the latter of resources only.
	Verb, Group, Version, Resource, Subresource, Namespace, Name string
	// Code is the status, or CodeClientGone, Bytes the length of the body.
	Code  int
	Bytes int64
	// FirstByte and Took count from Start to the header of the response and to
	// its end.
	FirstByte, Took time.Duration
	// Upstream is what came of the request behind this server; its zero value:
	// this server answered itself.
	Upstream Upstream
}

// Upstream is what a request met behind the server that logs it.
type Upstream struct {
	// APIService and Backend are by what the request was routed; Endpoint is
	// the one whose answer was sent on, or that was tried last.
	APIService, Backend, Endpoint string
	// Attempts is how often the request was sent.
	Attempts int
	// FirstByte and Took count from when the request was sent on to the header
	// and the end of the answer, attempts that failed included.
	FirstByte, Took time.Duration
	// Err is why there was no answer to send on.
	Err string
}

// clip cuts what is longer than n bytes. What is cut is copied, so that the
// queue does not hold the whole.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.Clone(s[:n])
}

// bounded returns the record with everything cut to its bound.
func (r Record) bounded() Record {
	r.URI, r.UserAgent = clip(r.URI, maxURI), clip(r.UserAgent, maxUserAgent)
	for _, s := range []*string{
		&r.AuditID, &r.User, &r.Impersonator, &r.Method, &r.Verb, &r.Group, &r.Version, &r.Resource, &r.Subresource,
		&r.Namespace, &r.Name, &r.Upstream.Err,
	} {
		*s = clip(*s, maxName)
	}
	return r
}

// write has the handler write the record's line.
func (r *Record) write(h slog.Handler) error {
	line := slog.NewRecord(r.Start, slog.LevelInfo, "request", 0)
	add := func(key, value string) {
		if value != "" {
			line.AddAttrs(slog.String(key, value))
		}
	}
	add("auditID", r.AuditID)
	add("traceID", r.TraceID)
	add("user", r.User)
	add("impersonator", r.Impersonator)
	add("method", r.Method)
	add("uri", resource.RedactURI(r.URI))
	add("protocol", r.Protocol)
	add("verb", r.Verb)
	add("group", r.Group)
	add("version", r.Version)
	add("resource", r.Resource)
	add("subresource", r.Subresource)
	add("namespace", r.Namespace)
	add("name", r.Name)
	line.AddAttrs(slog.Int("code", r.Code), slog.Int64("bytes", r.Bytes), seconds("took", r.Took))
	if r.FirstByte != 0 {
		line.AddAttrs(seconds("firstByte", r.FirstByte))
	}
	add("userAgent", r.UserAgent)
	add("remote", r.Remote)
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

// seconds is a time as the metrics have it.
func seconds(key string, d time.Duration) slog.Attr { return slog.Float64(key, d.Seconds()) }
