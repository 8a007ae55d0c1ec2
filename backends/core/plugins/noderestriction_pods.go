package plugins

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	csitranslation "k8s.io/csi-translation-lib"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"portico/resource"
	"portico/resource/podrefs"
	"portico/resource/rest"
)

// pod permits a node to create mirror pods, and to delete and evict its pods and write their status.
func (n *nodeRestriction) pod(ctx context.Context, node string, a *rest.Attributes) error {
	switch sub := subresourceOf(a); {
	case sub == "" && a.Operation == rest.Create:
		return n.mirrorPod(ctx, node, a)
	case sub == "" && a.Operation == rest.Delete:
		if pod, ok := a.Old.(*corev1.Pod); !ok || pod.Spec.NodeName != node {
			return fmt.Errorf("node %q can only delete pods with spec.nodeName set to itself", node)
		}
		return nil
	case sub == "status" && a.Operation == rest.Update:
		return podStatus(node, a)
	case sub == "eviction" && a.Operation == rest.Create:
		pod, err := readListed[*corev1.Pod](ctx, n.pods, a.Key)
		if err == nil && pod.Spec.NodeName != node {
			err = fmt.Errorf("node %s can only evict pods with spec.nodeName set to itself", node)
		}
		return err
	case sub == "":
		return fmt.Errorf("unexpected operation %q, node %q can only create and delete mirror pods", a.Operation, node)
	case sub == "status", sub == "eviction":
		return fmt.Errorf("unexpected operation %q", a.Operation)
	default:
		return fmt.Errorf("unexpected pod subresource %q, only 'status' and 'eviction' are allowed", sub)
	}
}

// mirrorPod permits copies of pods that the node runs by itself, which refer to no other object.
func (n *nodeRestriction) mirrorPod(ctx context.Context, node string, a *rest.Attributes) error {
	pod, ok := a.Object.(*corev1.Pod)
	if !ok {
		return errObject
	}
	if _, ok := pod.Annotations[corev1.MirrorPodAnnotationKey]; !ok {
		return fmt.Errorf("pod does not have %q annotation, node %q can only create mirror pods", corev1.MirrorPodAnnotationKey, node)
	}
	if pod.Spec.NodeName != node {
		return fmt.Errorf("node %q can only create pods with spec.nodeName set to itself", node)
	}
	if len(pod.OwnerReferences) > 1 {
		return fmt.Errorf("node %q can only create pods with a single owner reference set to itself", node)
	}
	var owner metav1.OwnerReference
	if len(pod.OwnerReferences) == 1 {
		owner = pod.OwnerReferences[0]
	}
	switch {
	case owner.APIVersion != "v1" || owner.Kind != "Node" || owner.Name != node:
		return fmt.Errorf("node %q can only create pods with an owner reference set to itself", node)
	case !ptr.Deref(owner.Controller, false):
		return fmt.Errorf("node %q can only create pods with a controller owner reference set to itself", node)
	case ptr.Deref(owner.BlockOwnerDeletion, false):
		return fmt.Errorf("node %q must not set blockOwnerDeletion on an owner reference", node)
	}
	known, err := readListed[*corev1.Node](ctx, n.nodes, resource.Key{Name: node})
	if err != nil {
		return err
	}
	if owner.UID != known.UID {
		return fmt.Errorf("node %s UID mismatch: expected %s got %s", node, owner.UID, known.UID)
	}
	what, err := referred(&pod.Spec)
	if err != nil {
		return fmt.Errorf("error checking mirror pod for API references: %w", err)
	}
	if what != "" {
		return fmt.Errorf("node %q can not create pods that reference %s", node, what)
	}
	return nil
}

// referred returns what other objects a pod refers to; "": none.
func referred(spec *corev1.PodSpec) (string, error) {
	switch {
	case spec.ServiceAccountName != "":
		return "serviceaccounts", nil
	case len(podrefs.Secrets(spec)) > 0:
		return "secrets", nil
	case len(podrefs.ConfigMaps(spec)) > 0:
		return "configmaps", nil
	case len(spec.ResourceClaims) > 0:
		return "resourceclaims", nil
	}
	for i := range spec.Volumes {
		if what, err := referredBy(&spec.Volumes[i]); what != "" || err != nil {
			return what, err
		}
	}
	return "", nil
}

// referredBy returns what other objects a volume refers to; "": none. Sources that are not known
// to refer to none are an error.
func referredBy(v *corev1.Volume) (string, error) {
	switch {
	case v.AWSElasticBlockStore != nil, v.AzureDisk != nil, v.CephFS != nil, v.Cinder != nil, v.DownwardAPI != nil, v.EmptyDir != nil, v.FC != nil,
		v.FlexVolume != nil, v.Flocker != nil, v.GCEPersistentDisk != nil, v.GitRepo != nil, v.HostPath != nil, v.Image != nil, v.ISCSI != nil,
		v.NFS != nil, v.PhotonPersistentDisk != nil, v.PortworxVolume != nil, v.Quobyte != nil, v.RBD != nil, v.ScaleIO != nil, v.StorageOS != nil,
		v.VsphereVolume != nil:
		return "", nil
	case v.ConfigMap != nil:
		return "configmaps (via configmap volumes)", nil
	case v.Secret != nil:
		return "secrets (via secret volumes)", nil
	case v.CSI != nil:
		return "csidrivers (via CSI volumes)", nil
	case v.Glusterfs != nil:
		return "endpoints (via glusterFS volumes)", nil
	case v.PersistentVolumeClaim != nil:
		return "persistentvolumeclaims", nil
	case v.Ephemeral != nil:
		return "persistentvolumeclaims (via ephemeral volumes)", nil
	case v.AzureFile != nil:
		return "secrets (via azureFile volumes)", nil
	case v.Projected == nil:
		return "", fmt.Errorf("unknown volume type for volume  %q", v.Name)
	}
	for _, s := range v.Projected.Sources {
		switch {
		case s.ConfigMap != nil: // without a name
			return "configmaps (via projected volumes)", nil
		case s.Secret != nil:
			return "secrets (via projected volumes)", nil
		case s.ServiceAccountToken != nil:
			return "serviceaccounts (via projected volumes)", nil
		case s.ClusterTrustBundle != nil:
			return "clustertrustbundles", nil
		case s.PodCertificate != nil:
			return "podcertificates", nil
		case s.DownwardAPI == nil:
			return "", fmt.Errorf("unknown source for projected volume %q", v.Name)
		}
	}
	return "", nil
}

// podStatus permits the status of pods of the node, without what names claims of devices.
func podStatus(node string, a *rest.Attributes) error {
	old, ok := a.Old.(*corev1.Pod)
	now, same := a.Object.(*corev1.Pod)
	equal := equality.Semantic.DeepEqual
	switch {
	case !ok || !same:
		return errObject
	case old.Spec.NodeName != node:
		return fmt.Errorf("node %q can only update pod status for pods with spec.nodeName set to itself", node)
	case !equal(old.Labels, now.Labels):
		return fmt.Errorf("node %q cannot update labels through pod status", node)
	case !equal(old.Status.ResourceClaimStatuses, now.Status.ResourceClaimStatuses):
		return fmt.Errorf("node %q cannot update resource claim statues", node)
	case !equal(old.Status.ExtendedResourceClaimStatus, now.Status.ExtendedResourceClaimStatus):
		return fmt.Errorf("node %q cannot update extended resource claim status", node)
	case !equal(old.Status.NodeAllocatableResourceClaimStatuses, now.Status.NodeAllocatableResourceClaimStatuses):
		return fmt.Errorf("node %q cannot update node allocatable resource claim statuses", node)
	}
	return nil
}

// ownRequest permits requests for certificates of kubelets that name the node.
func ownRequest(node string, a *rest.Attributes) error {
	if a.Operation != rest.Create || !whole(a) {
		return nil
	}
	r, ok := a.Object.(*certificatesv1.CertificateSigningRequest)
	if !ok {
		return errObject
	}
	if s := r.Spec.SignerName; s != certificatesv1.KubeletServingSignerName && s != certificatesv1.KubeAPIServerClientKubeletSignerName {
		return nil
	}
	block, _ := pem.Decode(r.Spec.Request)
	if block == nil || block.Type != "CERTIFICATE REQUEST" {
		return errors.New("unable to parse csr: PEM block type must be CERTIFICATE REQUEST")
	}
	parsed, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return fmt.Errorf("unable to parse csr: %w", err)
	}
	if parsed.Subject.CommonName != "system:node:"+node {
		return fmt.Errorf("can only create a node CSR with CN=system:node:%s", node)
	}
	return nil
}

// right returns an error unless the user of a write has a verb on a name of its service account.
func (n *nodeRestriction) right(ctx context.Context, a *rest.Attributes, verb, res, account string) error {
	return n.authorize(ctx, &resource.Action{
		User: a.Action.User, Verb: verb, IsResource: true, Group: a.Kind.Group, Version: a.Action.Version,
		Resource: res, Namespace: a.Key.Namespace, Name: account, InPath: true,
	})
}

// audience permits the audiences that the volumes of a pod or their CSI drivers need, and the
// audiences that the node has a right to.
func (n *nodeRestriction) audience(ctx context.Context, a *rest.Attributes, request *authenticationv1.TokenRequest, pod *corev1.Pod) error {
	audience := ""
	switch len(request.Spec.Audiences) {
	case 0:
	case 1:
		audience = request.Spec.Audiences[0]
	default:
		return errors.New("node may only request 0 or 1 audiences")
	}
	var errs []error
	for i := range pod.Spec.Volumes {
		mounts, err := n.mounts(ctx, pod, &pod.Spec.Volumes[i], audience)
		if mounts {
			return nil
		}
		if err != nil {
			errs = append(errs, err)
		}
	}
	if err := utilerrors.NewAggregate(errs); err != nil {
		return fmt.Errorf("error validating audience %q: %v", audience, err) // 403, also if something is not found
	}
	if err := n.right(ctx, a, "request-serviceaccounts-token-audience", audience, a.Key.Name); err != nil {
		return fmt.Errorf("%s is not authorized to request tokens for audience %q", a.Action.User.Name, audience)
	}
	return nil
}

// mounts reports whether a volume needs tokens of an audience.
func (n *nodeRestriction) mounts(ctx context.Context, pod *corev1.Pod, v *corev1.Volume, audience string) (bool, error) {
	if v.Projected != nil && slices.ContainsFunc(v.Projected.Sources, func(s corev1.VolumeProjection) bool {
		return s.ServiceAccountToken != nil && s.ServiceAccountToken.Audience == audience
	}) {
		return true, nil
	}
	name, err := n.driverOf(ctx, pod, v)
	if name == "" || err != nil {
		return false, err
	}
	driver, err := readListed[*storagev1.CSIDriver](ctx, n.drivers, resource.Key{Name: name})
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(driver.Spec.TokenRequests, func(r storagev1.TokenRequest) bool { return r.Audience == audience }), nil
}

// migrated translates volumes of the types that CSI drivers have replaced.
var migrated = csitranslation.New()

// driverOf returns the CSI driver of a volume; "" if it has none.
func (n *nodeRestriction) driverOf(ctx context.Context, pod *corev1.Pod, v *corev1.Volume) (string, error) {
	alone := &corev1.Pod{ObjectMeta: pod.ObjectMeta, Spec: corev1.PodSpec{Volumes: []corev1.Volume{*v}}}
	if claims := podrefs.Claims(alone); len(claims) > 0 {
		return n.driverOfClaim(ctx, resource.Key{Namespace: pod.Namespace, Name: claims[0]})
	}
	switch {
	case v.CSI != nil:
		return v.CSI.Driver, nil
	case migrated.IsInlineMigratable(v):
		return driverIn(migrated.TranslateInTreeInlineVolumeToCSI(klog.FromContext(ctx), v, pod.Namespace))
	}
	return "", nil
}

func (n *nodeRestriction) driverOfClaim(ctx context.Context, key resource.Key) (string, error) {
	claim, err := readListed[*corev1.PersistentVolumeClaim](ctx, n.claims, key)
	if err != nil {
		return "", err
	}
	name := claim.Spec.VolumeName
	if name == "" {
		return "", apierrors.NewNotFound(corev1.Resource("persistentvolume"), "")
	}
	v, err := readListed[*corev1.PersistentVolume](ctx, n.volumes, resource.Key{Name: name})
	if err == nil && v.Spec.CSI == nil && migrated.IsPVMigratable(v) {
		v, err = migrated.TranslateInTreePVToCSI(klog.FromContext(ctx), v)
	}
	return driverIn(v, err)
}

// driverIn returns err, or the CSI driver of v: "" if it has none.
func driverIn(v *corev1.PersistentVolume, err error) (string, error) {
	if err != nil || v == nil || v.Spec.CSI == nil {
		return "", err
	}
	return v.Spec.CSI.Driver, nil
}

// podCertificate permits requests for certificates of pods of the node, by the signers of their
// volumes and those that the node has a right to.
func (n *nodeRestriction) podCertificate(ctx context.Context, node string, a *rest.Attributes) error {
	switch {
	case a.Operation != rest.Create:
		return fmt.Errorf("unexpected operation %v", a.Operation)
	case !whole(a):
		return fmt.Errorf("unexpected subresource %v", subresourceOf(a))
	}
	r, ok := a.Object.(*certificatesv1.PodCertificateRequest)
	if !ok {
		return errObject
	}
	spec, namespace := &r.Spec, a.Key.Namespace
	name := namespace + "/" + spec.PodName
	if string(spec.NodeName) != node {
		return fmt.Errorf("PodCertificateRequest.Spec.NodeName=%q, which is not the requesting node %q", spec.NodeName, node)
	}
	known, err := readListed[*corev1.Node](ctx, n.nodes, resource.Key{Name: node})
	switch {
	case err != nil:
		return err
	case known.UID != spec.NodeUID:
		return fmt.Errorf("PodCertificateRequest for pod %q names node UID %q, inconsistent with the running node (%q)", name, spec.NodeUID, known.UID)
	}
	pod, err := readListed[*corev1.Pod](ctx, n.pods, resource.Key{Namespace: namespace, Name: spec.PodName})
	if err != nil {
		return err
	}
	_, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]
	switch {
	case pod.UID != spec.PodUID:
		return fmt.Errorf("PodCertificateRequest for pod %q contains pod UID (%q) which differs from running pod %q", name, spec.PodUID, pod.UID)
	case pod.Spec.NodeName != node:
		return fmt.Errorf("pod %q is not running on node %q named in the PodCertificateRequest", name, node)
	case mirror:
		return fmt.Errorf("pod %q is a mirror pod", name)
	case pod.Spec.ServiceAccountName != spec.ServiceAccountName:
		return fmt.Errorf("PodCertificateRequest for pod %q contains serviceAccountName (%q) that differs from running pod (%q)",
			name, spec.ServiceAccountName, pod.Spec.ServiceAccountName)
	}
	account, err := readListed[*corev1.ServiceAccount](ctx, n.accounts, resource.Key{Namespace: namespace, Name: spec.ServiceAccountName})
	switch {
	case err != nil:
		return err
	case account.UID != spec.ServiceAccountUID:
		return fmt.Errorf("PodCertificateRequest for pod %q names service account UID %q, which differs from the running service account (%q)",
			name, spec.ServiceAccountUID, account.UID)
	}
	return n.signer(ctx, a, pod, spec)
}

// signer permits the signers of the volumes of a pod, and those that the node has a right to.
func (n *nodeRestriction) signer(ctx context.Context, a *rest.Attributes, pod *corev1.Pod, spec *certificatesv1.PodCertificateRequestSpec) error {
	for i := range pod.Spec.Volumes {
		if p := pod.Spec.Volumes[i].Projected; p != nil && slices.ContainsFunc(p.Sources, func(s corev1.VolumeProjection) bool {
			return s.PodCertificate != nil && s.PodCertificate.SignerName == spec.SignerName
		}) {
			return nil
		}
	}
	signer := strings.ReplaceAll(spec.SignerName, "/", ":") // as upstream: names of resources have no slashes
	if n.right(ctx, a, "request-serviceaccounts-podcertificate-signer", signer, spec.ServiceAccountName) != nil {
		return fmt.Errorf("pod %q does not mount a podCertificate projected volume for signer %q", a.Key.Namespace+"/"+spec.PodName, spec.SignerName)
	}
	return nil
}
