package serve

import (
	"context"
	"net/http"
	"strings"

	"portico/resource"
	"portico/resource/serve/metrics"
	"portico/resource/tracing"
)

// trace has requests that are sampled leave a span. It comes after
// authentication, because not everybody's word about sampling counts.
func (s *Server) trace(next http.HandlerFunc) http.HandlerFunc {
	if s.cfg.Tracer == nil {
		return next
	}
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, span := s.beginSpan(r)
		if span == nil {
			next(w, r)
			return
		}
		defer func() {
			cause := recover()
			exchangeFrom(ctx).endSpan(span, r, cause)
			if cause != nil {
				panic(cause)
			}
		}()
		next(w, r.WithContext(ctx))
	}
}

// beginSpan begins the span of a request; nil for one that is not sampled.
func (s *Server) beginSpan(r *http.Request) (context.Context, *tracing.Span) {
	x := exchangeFrom(r.Context())
	ctx, span := s.cfg.Tracer.Begin(r.Context(), tracing.Request{
		Header: r.Header, Start: x.start, Trusted: s.cfg.TrustsTrace == nil || s.cfg.TrustsTrace(x.action.User),
	})
	if span != nil {
		x.traceID = span.TraceID()
	}
	return ctx, span
}

// endSpan says of a span what its request was about, in the names that
// OpenTelemetry has for that; cause is what the handler panicked with.
func (x *exchange) endSpan(span *tracing.Span, r *http.Request, cause any) {
	route := routeOf(x.action)
	if metrics.MethodLabel(r.Method) == r.Method {
		span.Name(strings.TrimSuffix(r.Method+" "+route, " "))
		span.Set("http.request.method", r.Method)
	} else {
		span.Name(strings.TrimSuffix("HTTP "+route, " "))
		span.Set("http.request.method", "_OTHER")
		span.Set("http.request.method_original", r.Method)
	}
	span.Set("http.route", route)
	span.Set("url.path", x.action.Path)
	span.Set("user_agent.original", r.UserAgent())
	span.Set("audit-id", x.auditID[0])
	code := x.final(cause)
	span.SetInt("http.response.status_code", code)
	failed := ""
	if code >= http.StatusInternalServerError {
		failed = http.StatusText(code)
	}
	span.End(failed)
}

// routeOf is the path with what differs from object to object left out, as
// kube-apiserver names its spans; "" for one that is not known. Clients cannot
// make it up, but for the names of groups and resources.
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

// documentRoute is the route of what is no resource: discovery, OpenAPI, health.
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

// TrustedTracers reports whether what the user says about sampling counts at a
// server that everybody can reach: as with kube-apiserver, that of
// administrators and of who watches over the installation.
func TrustedTracers(user *resource.User) bool {
	if user == nil {
		return false
	}
	for _, group := range user.Groups {
		if group == resource.GroupMasters || group == groupMonitoring {
			return true
		}
	}
	return false
}

// groupMonitoring is the group of who watches over the installation.
const groupMonitoring = "system:monitoring"
