package apiservice

import (
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apireg "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

// Condition is the condition Available of an APIService without its times. Equal conditions
// need no write.
type Condition struct {
	Status  apireg.ConditionStatus
	Reason  string
	Message string
}

// Available reports whether requests may be sent.
func (c Condition) Available() bool { return c.Status == apireg.ConditionTrue }

// The conditions of docs/wire.md 8.2 have upstream's reasons and messages
// (k8s.io/kube-aggregator pkg/controllers/status).

// Local is the condition of an APIService without a Service.
func Local() Condition {
	return Condition{apireg.ConditionTrue, "Local", "Local APIServices are always available"}
}

// Passed is the condition after a passed check.
func Passed() Condition { return Condition{apireg.ConditionTrue, "Passed", "all checks passed"} }

// Truncated adds to a good condition that the discovery of the group/version is incomplete.
// Requests are not affected.
func (c Condition) Truncated() Condition {
	c.Message += "; DiscoveryTruncated: a part of its discovery exceeds the limits on the discovery of one server, and is left out"
	return c
}

// Kept adds to the condition of a user's APIService that the gateway does not delete it although
// its server answers 404.
func (c Condition) Kept() Condition {
	c.Message += "; the server does not serve it, and the APIService stays until it is deleted: a user keeps it (kubectl delete apiservice)"
	return c
}

// ServiceNotFound is the condition if the Service does not exist.
func ServiceNotFound(s *apireg.ServiceReference) Condition {
	return Condition{apireg.ConditionFalse, "ServiceNotFound",
		fmt.Sprintf("service/%s in %q is not present", s.Name, s.Namespace)}
}

// BackendNotFound is the condition if the Backend does not exist. The reason is that of
// ServiceNotFound, since upstream has none.
func BackendNotFound(name string) Condition {
	return Condition{apireg.ConditionFalse, "ServiceNotFound", fmt.Sprintf("Backend %q is not present", name)}
}

// ServiceAccessError is the condition while Services cannot be read.
func ServiceAccessError(s *apireg.ServiceReference, err error) Condition {
	return Condition{apireg.ConditionUnknown, "ServiceAccessError",
		fmt.Sprintf("service/%s in %q cannot be checked due to: %v", s.Name, s.Namespace, err)}
}

// ServicePortError is the condition if the Service does not have the port.
func ServicePortError(s *apireg.ServiceReference) Condition {
	return Condition{apireg.ConditionFalse, "ServicePortError",
		fmt.Sprintf("service/%s in %q is not listening on port %d", s.Name, s.Namespace, Port(s))}
}

// EndpointsNotFound is the condition if the Service has no EndpointSlice.
func EndpointsNotFound(s *apireg.ServiceReference) Condition {
	return Condition{apireg.ConditionFalse, "EndpointsNotFound",
		fmt.Sprintf("cannot find endpointslices for service/%s in %q", s.Name, s.Namespace)}
}

// MissingEndpoints is the condition if no ready address has a port of that name.
func MissingEndpoints(s *apireg.ServiceReference, portName string) Condition {
	return Condition{apireg.ConditionFalse, "MissingEndpoints",
		fmt.Sprintf("endpointslices for service/%s in %q have no addresses with port name %q", s.Name, s.Namespace, portName)}
}

// AllDrained is the condition if every endpoint of the Backend has the weight 0. The
// reason is that of MissingEndpoints, since upstream has none.
func AllDrained() Condition {
	return Condition{apireg.ConditionFalse, "MissingEndpoints", "every endpoint of the server has the weight 0, so that none gets requests"}
}

// FailedDiscoveryCheck is the condition while the server does not answer its discovery
// path.
func FailedDiscoveryCheck(url string, err error) Condition {
	return Condition{apireg.ConditionFalse, "FailedDiscoveryCheck",
		fmt.Sprintf("failing or missing response from %s: %v", url, err)}
}

// observed opens the part of a message that names the observer.
const observed = " (observed by "

// ObservedBy adds the gateway that observed a condition to its message, for conditions
// that end with an error: other messages stay those of upstream.
func (c Condition) ObservedBy(observer string) Condition {
	if observer == "" || c.Reason != "FailedDiscoveryCheck" && c.Reason != "ServiceAccessError" {
		return c
	}
	c.Message = c.unobserved().Message + observed + observer + ")"
	return c
}

// Agrees reports whether two conditions are equal apart from their observers.
func (c Condition) Agrees(other Condition) bool { return c.unobserved() == other.unobserved() }

func (c Condition) unobserved() Condition {
	c.Message = Unobserved(c.Message)
	return c
}

// Unobserved returns a message without the name of its observer.
func Unobserved(message string) string {
	if at := strings.LastIndex(message, observed); at >= 0 && strings.HasSuffix(message, ")") {
		return message[:at]
	}
	return message
}

// Port returns the port of a service reference, defaulted to 443.
func Port(s *apireg.ServiceReference) int32 {
	if s.Port == nil {
		return 443
	}
	return *s.Port
}

// Current returns the condition Available of the object; ok is false if it has none.
func Current(a *apireg.APIService) (c Condition, ok bool) {
	for _, have := range a.Status.Conditions {
		if have.Type == apireg.Available {
			return Condition{have.Status, have.Reason, have.Message}, true
		}
	}
	return Condition{}, false
}

// Set sets the condition Available of the object and reports whether it changed.
// lastTransitionTime changes with the status only.
func Set(a *apireg.APIService, c Condition, now time.Time) (changed bool) {
	for i := range a.Status.Conditions {
		have := &a.Status.Conditions[i]
		if have.Type != apireg.Available {
			continue
		}
		if (Condition{have.Status, have.Reason, have.Message}) == c {
			return false
		}
		if have.Status != c.Status {
			have.LastTransitionTime = metav1.NewTime(now.Truncate(time.Second))
		}
		have.Status, have.Reason, have.Message = c.Status, c.Reason, c.Message
		return true
	}
	a.Status.Conditions = append(a.Status.Conditions, apireg.APIServiceCondition{
		Type: apireg.Available, Status: c.Status, Reason: c.Reason, Message: c.Message,
		LastTransitionTime: metav1.NewTime(now.Truncate(time.Second)),
	})
	return true
}
