package kinds

import (
	admissionregistrationv1beta1 "k8s.io/api/admissionregistration/v1beta1"
	batchv1beta1 "k8s.io/api/batch/v1beta1"
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	coordinationv1beta1 "k8s.io/api/coordination/v1beta1"
	networkingv1beta1 "k8s.io/api/networking/v1beta1"
	nodev1beta1 "k8s.io/api/node/v1beta1"
	policyv1beta1 "k8s.io/api/policy/v1beta1"
	resourcev1beta2 "k8s.io/api/resource/v1beta2"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	storagev1beta1 "k8s.io/api/storage/v1beta1"
	storagemigrationv1beta1 "k8s.io/api/storagemigration/v1beta1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico/resource"
	"portico/resource/rest"
)

// addStoredVersions adds the versions that kube-apiserver stores objects in, or did once, and that
// are not served: those that have the JSON fields of the version of the row, and those that the
// codec of the row converts. They are read, and written in the version of the row.
func addStoredVersions(scheme *runtime.Scheme) {
	for gv, types := range map[schema.GroupVersion][]runtime.Object{
		admissionregistrationv1beta1.SchemeGroupVersion: {
			&admissionregistrationv1beta1.ValidatingWebhookConfiguration{}, &admissionregistrationv1beta1.MutatingWebhookConfiguration{},
			&admissionregistrationv1beta1.ValidatingAdmissionPolicy{}, &admissionregistrationv1beta1.ValidatingAdmissionPolicyBinding{},
			&admissionregistrationv1beta1.MutatingAdmissionPolicy{}, &admissionregistrationv1beta1.MutatingAdmissionPolicyBinding{},
		},
		batchv1beta1.SchemeGroupVersion:        {&batchv1beta1.CronJob{}},
		certificatesv1beta1.SchemeGroupVersion: {&certificatesv1beta1.ClusterTrustBundle{}, &certificatesv1beta1.PodCertificateRequest{}},
		coordinationv1beta1.SchemeGroupVersion: {&coordinationv1beta1.Lease{}},
		networkingv1beta1.SchemeGroupVersion:   {&networkingv1beta1.IPAddress{}, &networkingv1beta1.ServiceCIDR{}},
		nodev1beta1.SchemeGroupVersion:         {&nodev1beta1.RuntimeClass{}},
		policyv1beta1.SchemeGroupVersion:       {&policyv1beta1.PodDisruptionBudget{}},
		resourcev1beta2.SchemeGroupVersion: {
			&resourcev1beta2.DeviceClass{}, &resourcev1beta2.DeviceTaintRule{}, &resourcev1beta2.ResourceClaim{},
			&resourcev1beta2.ResourceClaimTemplate{}, &resourcev1beta2.ResourceSlice{},
		},
		schedulingv1beta1.SchemeGroupVersion: {&schedulingv1beta1.PriorityClass{}},
		storagev1beta1.SchemeGroupVersion: {
			&storagev1beta1.CSIDriver{}, &storagev1beta1.CSINode{}, &storagev1beta1.CSIStorageCapacity{}, &storagev1beta1.StorageClass{},
			&storagev1beta1.VolumeAttachment{}, &storagev1beta1.VolumeAttributesClass{},
		},
		storagemigrationv1beta1.SchemeGroupVersion: {&storagemigrationv1beta1.StorageVersionMigration{}},
	} {
		scheme.AddKnownTypes(gv, types...)
	}
}

// defaultingCodec sets defaults in stored objects when they are read, as kube-apiserver does for
// every kind. It is for kinds with fields that have a default and are not stored.
type defaultingCodec struct {
	rest.Versioned
	setDefaults func(obj rest.Object)
	canonical   func(o *resource.Object) bool // reports that setDefaults changes nothing; called on every read
}

var _ rest.CanonicalCodec = defaultingCodec{}

// withDefaults makes the codec of a row set the defaults of its strategy in objects that are stored as protobuf. JSON
// holds all defaults, such as the apiVersion and kind of the claim templates of a StatefulSet, which protobuf lacks.
func withDefaults(k *rest.Kind) *rest.Kind {
	k.Codec = defaultingCodec{k.Codec.(rest.Versioned), k.Strategy.Default, func(o *resource.Object) bool { return o.Encoding != resource.Protobuf }}
	return k
}

// DecodeStored implements rest.Codec.
func (c defaultingCodec) DecodeStored(o *resource.Object) (runtime.Object, error) {
	obj, err := c.Versioned.DecodeStored(o)
	if err == nil && !c.canonical(o) {
		c.setDefaults(obj.(rest.Object))
	}
	return obj, err
}

// Canonical implements rest.CanonicalCodec.
func (c defaultingCodec) Canonical(o *resource.Object) bool { return c.canonical(o) }
