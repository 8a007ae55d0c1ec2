package garbage

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"portico/resource"
)

// Component is the source of the Events, as of kube-controller-manager's.
const Component = "garbage-collector-controller"

// reference is a reference of an object to an owner.
type reference struct {
	of    ID     // the object
	owner string // its uid
}

// reportNamespace records an Event about an object if a reference names an owner that exists in
// another namespace: such an owner counts as absent, and the object is deleted. kube-controller-manager
// records the same Event.
func (c *Collector) reportNamespace(h *resource.Header, o resource.Owner) {
	if c.Events == nil {
		return
	}
	owner := c.Graph.get(ownerID(o))
	if owner == nil || owner.Name != o.Name || owner.Namespace == "" || owner.Namespace == h.Namespace {
		return
	}
	if known, _ := c.reported.ContainsOrAdd(reference{idOf(h), o.UID}, struct{}{}); known {
		return
	}
	about := &corev1.ObjectReference{APIVersion: h.APIVersion, Kind: h.Kind, Namespace: h.Namespace, Name: h.Name, UID: types.UID(h.UID)}
	c.Events.Eventf(about, corev1.EventTypeWarning, "OwnerRefInvalidNamespace", "ownerRef [%s/%s, namespace: %s, name: %s, uid: %s] does not exist in namespace %q",
		o.APIVersion, o.Kind, h.Namespace, o.Name, o.UID, h.Namespace)
}
