package proxy

import (
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico/apiservice"
	"portico/discovery"
	"portico/resource"
)

// Route is where requests for one group/version go. Immutable.
type Route struct {
	// Name is that of the APIService.
	Name string
	// Local: the gateway answers itself. Otherwise Upstream does; it is nil where the
	// APIService names a Service that cannot be reached, for the reason in Condition.
	Local     bool
	Upstream  *Upstream
	Condition apiservice.Condition
	// Absent: no server serves the group/version, and no server that might is away.
	Absent bool
	// REST, if not nil, is how requests are sent to a server that is no Kubernetes API
	// server.
	REST *REST

	// Backend is the name of the server in metrics and headers, and traffic counts the
	// requests to it; "" and nil without metrics.
	Backend string
	traffic *routeTraffic
}

// RetryAfter is the Retry-After of a gateway that is busy, starting or shutting
// down, in seconds. An API whose server is away has none: client-go would wait and
// repeat the request ten times, and kubectl would hang instead of failing.
const RetryAfter = 1

// Unavailable returns the 503 for a route along which no request can be sent; nil if
// one can.
func (r *Route) Unavailable() *apierrors.StatusError {
	if r.Local || r.Upstream != nil && r.Condition.Available() {
		return nil
	}
	err := resource.Unavailable(fmt.Sprintf("service unavailable: APIService %q is not available: %s: %s",
		r.Name, r.Condition.Reason, r.Condition.Message), 0)
	if r.Absent {
		err.ErrStatus.Details = &metav1.StatusDetails{Causes: []metav1.StatusCause{discovery.NotServed()}}
	}
	return err
}

// Table is a snapshot of all routes.
type Table struct {
	Routes map[schema.GroupVersion]*Route
}

// Lookup returns the route of a group/version; nil if there is none.
func (t *Table) Lookup(group, version string) *Route {
	if t == nil {
		return nil
	}
	return t.Routes[schema.GroupVersion{Group: group, Version: version}]
}
