package gateway

import (
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico/apiservice"
	"portico/resource"
)

// route is where requests for one group/version go. Immutable.
type route struct {
	// name is that of the APIService.
	name string
	// local: the gateway answers itself. Else upstream does; it is nil where
	// the APIService names a service that cannot be reached, and condition
	// says why.
	local     bool
	upstream  *proxied
	condition apiservice.Condition
	// plain, if not nil: the server is one of REST, with paths of its own.
	plain *plainAPI

	// backend is the name that upstream is shown under, and traffic counts the
	// requests to it; "" and nil: nobody looks.
	backend string
	traffic *routeTraffic
}

// retryUnavailable is the Retry-After of an unavailable group, in seconds: a
// suspect server is checked twice in that time.
const retryUnavailable = 1

// unavailable returns the error for a route that leads nowhere now; nil if
// requests may be sent.
func (r *route) unavailable() *apierrors.StatusError {
	if r.local || r.upstream != nil && r.condition.Available() {
		return nil
	}
	return resource.Unavailable(fmt.Sprintf("service unavailable: APIService %q is not available: %s: %s",
		r.name, r.condition.Reason, r.condition.Message), retryUnavailable)
}

// table is a snapshot of all routes.
type table struct {
	routes map[schema.GroupVersion]*route
}

// lookup returns the route of a group/version; nil if nobody serves it.
func (t *table) lookup(group, version string) *route {
	if t == nil {
		return nil
	}
	return t.routes[schema.GroupVersion{Group: group, Version: version}]
}
