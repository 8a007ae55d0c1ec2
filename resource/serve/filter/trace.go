package filter

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"portico/resource"
	"portico/resource/serve/metrics"
	"portico/resource/tracing"
)

// trace records a span for sampled requests. It follows authentication because only some
// users may request sampling.
func (c *Chain) trace(next http.HandlerFunc) http.HandlerFunc {
	if c.cfg.Tracer == nil {
		return next
	}
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, span := c.beginSpan(r)
		if span == nil {
			next(w, r)
			return
		}
		defer func() {
			cause := recover()
			stateOf(ctx).endSpan(span, r, cause)
			if cause != nil {
				panic(cause)
			}
		}()
		next(w, r.WithContext(ctx))
	}
}

// beginSpan begins the span of a request; nil if it is not sampled.
func (c *Chain) beginSpan(r *http.Request) (context.Context, *tracing.Span) {
	rs := stateOf(r.Context())
	ctx, span := c.cfg.Tracer.Begin(r.Context(), tracing.Request{
		Header: r.Header, Start: rs.start, Trusted: c.cfg.TrustsTrace == nil || c.cfg.TrustsTrace(rs.action.User),
	})
	if span != nil {
		rs.traceID = span.TraceID()
	}
	return ctx, span
}

// endSpan sets OpenTelemetry's attributes and ends the span. cause is the value with which
// the handler panicked.
func (rs *requestState) endSpan(span *tracing.Span, r *http.Request, cause any) {
	route := routeOf(rs.action)
	if metrics.MethodLabel(r.Method) == r.Method {
		span.Name(strings.TrimSuffix(r.Method+" "+route, " "))
		span.Set("http.request.method", r.Method)
	} else {
		span.Name(strings.TrimSuffix("HTTP "+route, " "))
		span.Set("http.request.method", "_OTHER")
		span.Set("http.request.method_original", r.Method)
	}
	span.Set("http.route", route)
	span.Set("url.path", rs.action.Path)
	span.Set("user_agent.original", r.UserAgent())
	span.Set("audit-id", rs.auditID[0])
	code := rs.finalCode(cause)
	span.SetInt("http.response.status_code", code)
	failed := ""
	if code >= http.StatusInternalServerError {
		failed = http.StatusText(code)
	}
	span.End(failed)
}

// routeOf returns the path without the names of objects and namespaces, as kube-apiserver
// names its spans; "" for an unknown path. A client can choose no more of it than the names
// of groups and resources.
func routeOf(a *resource.Action) string {
	if !a.IsResource {
		return documentRoute(a.Path)
	}
	var name strings.Builder
	if a.Group == "" {
		name.WriteString("/api/")
	} else {
		name.WriteString("/apis/" + a.Group + "/")
	}
	name.WriteString(a.Version)
	if a.Namespace != "" {
		name.WriteString("/namespaces/{:namespace}")
	}
	name.WriteString("/" + a.Resource)
	if a.Name != "" {
		name.WriteString("/{:name}")
	}
	if a.Subresource != "" {
		name.WriteString("/" + a.Subresource)
	}
	return name.String()
}

// documentRoute returns the route of a path that is not a resource: discovery, OpenAPI,
// health.
func documentRoute(path string) string {
	if label := metrics.PathLabel(path); label != "" {
		return label
	}
	parts := strings.Split(strings.Trim(path, "/"), "/")
	switch {
	case parts[0] == "api" && len(parts) <= 2:
		return "/api" + strings.Repeat("/{:version}", len(parts)-1)
	case parts[0] == "apis" && len(parts) <= 3:
		return "/apis" + [...]string{"", "/{:group}", "/{:group}/{:version}"}[len(parts)-1]
	case strings.HasPrefix(path, "/openapi/v3/"):
		return "/openapi/v3/{:path}"
	case isHealth(path):
		return "/" + parts[0] + "/{:check}"
	}
	return ""
}

// TrustedTracers is a Config.TrustsTrace for servers that every client can reach: as with
// kube-apiserver, administrators and monitoring may request sampling.
func TrustedTracers(user *resource.User) bool {
	return user != nil && (slices.Contains(user.Groups, resource.GroupMasters) || slices.Contains(user.Groups, groupMonitoring))
}

// groupMonitoring is the group of monitoring systems.
const groupMonitoring = "system:monitoring"
