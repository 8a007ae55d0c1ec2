package node

import (
	"fmt"
	"slices"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"

	"portico/resource"
)

// rule decides about an action of a node: it is allowed; or it is allowed if an object concerns the
// node; or it is not allowed, for a reason.
type rule func(node string, act *resource.Action) (allowed bool, related *object, reason string)

// rules are those of the resources whose objects belong to nodes, with kube-apiserver's reasons.
var rules = map[schema.GroupResource]rule{
	corev1.Resource("secrets"):                        reads(secrets),
	corev1.Resource("configmaps"):                     reads(configMaps),
	corev1.Resource("persistentvolumeclaims"):         claim,
	corev1.Resource("persistentvolumes"):              gets(volumes),
	corev1.Resource("serviceaccounts"):                serviceAccount,
	corev1.Resource("nodes"):                          nodeItself,
	corev1.Resource("pods"):                           pod,
	resourcev1.Resource("resourceclaims"):             gets(resourceClaims),
	resourcev1.Resource("resourceslices"):             slice,
	storagev1.Resource("volumeattachments"):           gets(attachments),
	storagev1.Resource("csinodes"):                    csiNode,
	coordinationv1.Resource("leases"):                 lease,
	certificatesv1.Resource("podcertificaterequests"): certificateRequest,
}

// is reports whether an action has one of the verbs, which are separated by spaces.
func is(act *resource.Action, verbs string) bool {
	return slices.Contains(strings.Fields(verbs), act.Verb)
}

// of is the result that an object of a kind has to concern the node.
func of(k kind, act *resource.Action) (bool, *object, string) {
	o := &object{kind: k, namespace: act.Namespace, name: act.Name}
	return false, o, ""
}

func no(format string, args ...any) (bool, *object, string) {
	return false, nil, fmt.Sprintf(format, args...)
}

func yes() (bool, *object, string) { return true, nil, "" }

// selects reports whether a selector of an action requires a field to be the node.
func selects(act *resource.Action, field, node string) bool {
	selector, err := fields.ParseSelector(act.FieldSelector)
	return err == nil && slices.ContainsFunc(selector.Requirements(), func(r fields.Requirement) bool {
		return r.Field == field && r.Operator == selection.Equals && r.Value == node
	})
}

// reads permits to read single objects of a namespace.
func reads(k kind) rule {
	return func(_ string, act *resource.Action) (bool, *object, string) {
		switch {
		case !is(act, "get list watch"):
			return no("can only read resources of this type")
		case act.Subresource != "":
			return no("cannot read subresource")
		case act.Namespace == "":
			return no("can only read namespaced object of this type")
		}
		return of(k, act)
	}
}

// gets permits to get single objects.
func gets(k kind) rule {
	return func(_ string, act *resource.Action) (bool, *object, string) {
		switch {
		case act.Verb != "get":
			return no("can only get individual resources of this type")
		case act.Subresource != "":
			return no("cannot get subresource")
		}
		return of(k, act)
	}
}

func claim(node string, act *resource.Action) (bool, *object, string) {
	switch {
	case act.Subresource != "status":
		return gets(claims)(node, act)
	case !is(act, "update patch"):
		return no("can only get/update/patch this type")
	}
	return of(claims, act)
}

func serviceAccount(node string, act *resource.Action) (bool, *object, string) {
	switch {
	case act.Verb == "get" && act.Subresource == "":
		return reads(serviceAccounts)(node, act)
	case act.Verb != "create" || act.Name == "":
		return no("can only create tokens for individual service accounts")
	case act.Subresource != "token":
		return no("can only create token subresource of serviceaccount")
	}
	return of(serviceAccounts, act)
}

func lease(node string, act *resource.Action) (bool, *object, string) {
	switch {
	case !is(act, "get create update patch delete"):
		return no("can only get, create, update, patch, or delete a node lease")
	case act.Namespace != corev1.NamespaceNodeLease:
		return no("can only access leases in the %q system namespace", corev1.NamespaceNodeLease)
	case act.Verb != "create" && act.Name != node: // NodeRestriction checks the name at creation
		return no("can only access node lease with the same name as the requesting node")
	}
	return yes()
}

func csiNode(node string, act *resource.Action) (bool, *object, string) {
	switch {
	case act.Subresource == "status":
		return no("CSINode status access requires CSIVolumeHealth feature") // off by default, and not there
	case act.Subresource != "":
		return no("cannot authorize CSINode subresources")
	case !is(act, "get create update patch delete"):
		return no("can only get, create, update, patch, or delete a CSINode")
	case act.Verb != "create" && act.Name != node: // NodeRestriction checks the name at creation
		return no("can only access CSINode with the same name as the requesting node")
	}
	return yes()
}

func slice(node string, act *resource.Action) (bool, *object, string) {
	switch {
	case act.Subresource != "":
		return no("cannot authorize ResourceSlice subresources")
	case act.Verb == "create": // NodeRestriction checks the node
		return yes()
	case is(act, "get update patch delete"):
		return of(resourceSlices, act)
	case !is(act, "watch list deletecollection"):
		return no("only the following verbs are allowed for a ResourceSlice: get, watch, list, create, update, patch, delete, deletecollection")
	case !selects(act, resourcev1.ResourceSliceSelectorNodeName, node):
		return no("can only list/watch/deletecollection resourceslices with nodeName field selector")
	}
	return yes()
}

func certificateRequest(node string, act *resource.Action) (bool, *object, string) {
	switch {
	case act.Subresource != "":
		return no("nodes may not access the status subresource of PodCertificateRequests")
	case act.Verb == "create": // NodeRestriction checks node, pod and account
		return yes()
	case act.Verb == "get":
		return of(certificates, act)
	case !is(act, "list watch"):
		return no("nodes may not %s podcertificaterequests", act.Verb)
	case !selects(act, "spec.nodeName", node):
		return no("can only list/watch podcertificaterequests with nodeName field selector")
	}
	return yes()
}

// nodeItself permits to write all nodes, which NodeRestriction limits to the node itself.
func nodeItself(node string, act *resource.Action) (bool, *object, string) {
	switch {
	case act.Subresource == "" && is(act, "create update patch"), act.Subresource == "status" && is(act, "update patch"):
		return yes()
	case act.Subresource != "" || !is(act, "get list watch"):
		return no("")
	case act.Name == "":
		return no("node '%s' cannot read all nodes, only its own Node object", node)
	case act.Name != node:
		return no("node '%s' cannot read '%s', only its own Node object", node, act.Name)
	}
	return yes()
}

// pod permits to write pods, which NodeRestriction limits to mirror pods and to those of the node.
func pod(node string, act *resource.Action) (bool, *object, string) {
	switch act.Subresource {
	case "":
		switch {
		case is(act, "create delete"), is(act, "list watch") && selects(act, "spec.nodeName", node):
			return yes()
		case act.Verb == "get", is(act, "list watch") && act.Name != "":
			return of(pods, act)
		case is(act, "list watch"):
			return no("can only list/watch pods with spec.nodeName field selector")
		}
	case "status":
		if is(act, "update patch") {
			return yes()
		}
	case "eviction":
		if act.Verb == "create" {
			return yes()
		}
	}
	return no("")
}
