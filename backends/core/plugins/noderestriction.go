package plugins

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"

	"portico/resource"
	"portico/resource/rest"
)

// NodeRestriction is the name of the plugin that restricts what nodes write.
const NodeRestriction = "NodeRestriction"

// nodeRestricted are the resources that NodeRestriction limits. A node without a name may write none at all.
var nodeRestricted = on("pods", "nodes", "persistentvolumeclaims", "serviceaccounts", "leases.coordination.k8s.io", "csinodes.storage.k8s.io",
	"resourceslices.resource.k8s.io", "certificatesigningrequests.certificates.k8s.io", "podcertificaterequests.certificates.k8s.io")

// newNodeRestriction limits what kubelets write, with kube-apiserver's rules: their own node, the
// status of its pods, mirror pods, and what belongs to their node by name. Node authorization
// lets a kubelet write all of these kinds.
func newNodeRestriction(cfg *Config) (rest.Admission, error) {
	n := &nodeRestriction{
		pods: cfg.Resource("", "pods"), nodes: cfg.Resource("", "nodes"), accounts: cfg.Resource("", "serviceaccounts"),
		claims: cfg.Resource("", "persistentvolumeclaims"), volumes: cfg.Resource("", "persistentvolumes"),
		drivers: cfg.Resource("storage.k8s.io", "csidrivers"), authorize: cfg.Authorize,
	}
	return mutates(n.admit), nil
}

type nodeRestriction struct {
	pods, nodes, accounts, claims, volumes, drivers *rest.Resource
	authorize                                       func(ctx context.Context, a *resource.Action) error
}

// nodeOf returns the node of the user of a write; false for users that are no nodes.
func nodeOf(a *rest.Attributes) (string, bool) {
	if a.Action == nil || a.Action.User == nil {
		return "", false
	}
	name, ok := strings.CutPrefix(a.Action.User.Name, "system:node:")
	return name, ok && slices.Contains(a.Action.User.Groups, "system:nodes")
}

func (n *nodeRestriction) admit(ctx context.Context, a *rest.Attributes) error {
	node, ok := nodeOf(a)
	if !ok {
		return nil
	}
	var err error
	switch {
	case node == "":
		err = fmt.Errorf("could not determine node from user %q", a.Action.User.Name)
	case !slices.Contains(nodeRestricted, a.Kind.GroupResource()):
	case a.Kind.Resource == "pods":
		err = n.pod(ctx, node, a)
	case a.Kind.Resource == "nodes":
		err = ownNode(node, a)
	case a.Kind.Resource == "persistentvolumeclaims":
		err = claimStatus(node, a)
	case a.Kind.Resource == "serviceaccounts":
		err = n.token(ctx, node, a)
	case a.Kind.Resource == "leases":
		err = ownLease(node, a)
	case a.Kind.Resource == "csinodes":
		err = csiNode(node, a)
	case a.Kind.Resource == "resourceslices":
		err = slice(node, a)
	case a.Kind.Resource == "certificatesigningrequests":
		err = ownRequest(node, a)
	case a.Kind.Resource == "podcertificaterequests":
		err = n.podCertificate(ctx, node, a)
	}
	if err == nil || apierrors.IsNotFound(err) {
		return err
	}
	return forbidden(a, err)
}

// errObject is for an object of another type than that of its resource.
var errObject = errors.New("unexpected type of object")

// nameOf returns the name of the object of a write.
func nameOf(a *rest.Attributes) string {
	if a.Operation == rest.Create {
		if obj, err := meta.Accessor(a.Object); err == nil {
			return obj.GetName()
		}
	}
	return a.Key.Name
}

func sameName(node string, a *rest.Attributes, what string) error {
	if nameOf(a) != node {
		return fmt.Errorf("can only access %s with the same name as the requesting node", what)
	}
	return nil
}

func ownLease(node string, a *rest.Attributes) error {
	if a.Key.Namespace != corev1.NamespaceNodeLease {
		return fmt.Errorf("can only access leases in the %q system namespace", corev1.NamespaceNodeLease)
	}
	return sameName(node, a, "node lease")
}

func csiNode(node string, a *rest.Attributes) error {
	if err := sameName(node, a, "CSINode"); err != nil || whole(a) {
		return err
	}
	return errors.New("CSIVolumeHealth feature gate is disabled")
}

// slice permits slices of the node to be created and deleted; node authorization knows the others.
func slice(node string, a *rest.Attributes) error {
	obj, verb := a.Object, "create"
	switch a.Operation {
	case rest.Create:
	case rest.Delete:
		obj, verb = a.Old, "delete"
	default:
		return nil
	}
	s, ok := obj.(*resourcev1.ResourceSlice)
	if !ok {
		return errObject
	}
	if s.Spec.NodeName == nil || *s.Spec.NodeName != node {
		return fmt.Errorf("can only %s ResourceSlice with the same NodeName as the requesting node", verb)
	}
	return nil
}

// claimStatus permits changes of capacity, conditions and allocated resources.
func claimStatus(node string, a *rest.Attributes) error {
	if subresourceOf(a) != "status" {
		return errors.New("may only update PVC status")
	}
	old, ok := a.Old.(*corev1.PersistentVolumeClaim)
	now, same := a.Object.(*corev1.PersistentVolumeClaim)
	if !ok || !same {
		return errObject
	}
	bare := func(c *corev1.PersistentVolumeClaim) *corev1.PersistentVolumeClaim {
		c = c.DeepCopy()
		c.ResourceVersion, c.ManagedFields = "", nil
		c.Status.Capacity, c.Status.Conditions, c.Status.AllocatedResources, c.Status.AllocatedResourceStatuses = nil, nil, nil, nil
		return c
	}
	if !equality.Semantic.DeepEqual(bare(old), bare(now)) {
		return fmt.Errorf("node %q is not allowed to update fields other than status.quantity and status.conditions", node)
	}
	return nil
}

// ownNode permits a node to write itself, without what places pods on it: labels of Kubernetes that
// a kubelet does not have, taints, owners.
func ownNode(node string, a *rest.Attributes) error {
	if name := nameOf(a); name != node {
		return fmt.Errorf("node %q is not allowed to modify node %q", node, name)
	}
	if a.Operation == rest.Delete {
		return nil
	}
	now, ok := a.Object.(*corev1.Node)
	if !ok {
		return errObject
	}
	if a.Operation == rest.Create {
		if now.Spec.ConfigSource != nil {
			return fmt.Errorf("node %q is not allowed to create pods with a non-nil configSource", node)
		}
		if labels := forbiddenLabels(now.Labels, nil); len(labels) > 0 {
			return fmt.Errorf("node %q is not allowed to set the following labels: %s", node, strings.Join(labels, ", "))
		}
		return nil
	}
	old, ok := a.Old.(*corev1.Node)
	if !ok {
		return errObject
	}
	switch labels := forbiddenLabels(now.Labels, old.Labels); {
	case now.Spec.ConfigSource != nil && !equality.Semantic.DeepEqual(now.Spec.ConfigSource, old.Spec.ConfigSource):
		return fmt.Errorf("node %q is not allowed to update configSource to a new non-nil configSource", node)
	case !equality.Semantic.DeepEqual(now.Spec.Taints, old.Spec.Taints):
		return fmt.Errorf("node %q is not allowed to modify taints", node)
	case !equality.Semantic.DeepEqual(now.OwnerReferences, old.OwnerReferences):
		return fmt.Errorf("node %q is not allowed to modify ownerReferences", node)
	case len(labels) > 0:
		return fmt.Errorf("is not allowed to modify labels: %s", strings.Join(labels, ", "))
	}
	return nil
}

// kubeletLabels are the labels of Kubernetes that a kubelet sets, beside those below
// kubeletDomains.
var kubeletLabels = []string{
	corev1.LabelHostname, corev1.LabelTopologyZone, corev1.LabelTopologyRegion, corev1.LabelFailureDomainBetaZone, corev1.LabelFailureDomainBetaRegion,
	corev1.LabelInstanceType, corev1.LabelInstanceTypeStable, corev1.LabelOSStable, corev1.LabelArchStable, "beta.kubernetes.io/os", "beta.kubernetes.io/arch",
}

var kubeletDomains = []string{"kubelet.kubernetes.io", "node.kubernetes.io"}

// forbiddenLabels returns the labels that differ and that a node may not write, in order.
func forbiddenLabels(now, old map[string]string) (out []string) {
	for _, pair := range [2][2]map[string]string{{now, old}, {old, now}} {
		for key, value := range pair[0] {
			if other, ok := pair[1][key]; (!ok || other != value) && !nodeMayLabel(key) {
				out = append(out, key)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// nodeMayLabel reports whether a node may write a label of itself.
func nodeMayLabel(key string) bool {
	domain, _, ok := strings.Cut(key, "/")
	if !ok {
		return true
	}
	below := func(parent string) bool { return domain == parent || strings.HasSuffix(domain, "."+parent) }
	switch {
	case below(corev1.LabelNamespaceNodeRestriction):
		return false
	case !below("kubernetes.io") && !below("k8s.io"):
		return true
	}
	return slices.Contains(kubeletLabels, key) || slices.ContainsFunc(kubeletDomains, below)
}

// token permits tokens that are bound to a pod of the node and have an audience that the pod asks for.
func (n *nodeRestriction) token(ctx context.Context, node string, a *rest.Attributes) error {
	if a.Operation != rest.Create || subresourceOf(a) != "token" {
		return nil
	}
	request, ok := a.Object.(*authenticationv1.TokenRequest)
	if !ok {
		return errObject
	}
	ref := request.Spec.BoundObjectRef
	switch {
	case ref == nil || ref.APIVersion != "v1" || ref.Kind != "Pod" || ref.Name == "":
		return errors.New("node requested token not bound to a pod")
	case ref.UID == "":
		return errors.New("node requested token with a pod binding without a uid")
	}
	pod, err := readListed[*corev1.Pod](ctx, n.pods, resource.Key{Namespace: a.Key.Namespace, Name: ref.Name})
	switch {
	case err != nil:
		return err
	case ref.UID != pod.UID:
		return fmt.Errorf("the UID in the bound object reference (%s) does not match the UID in record. The object might have been deleted and then recreated", ref.UID)
	case pod.Spec.NodeName != node:
		return errors.New("node requested token bound to a pod scheduled on a different node")
	}
	return n.audience(ctx, a, request, pod)
}
