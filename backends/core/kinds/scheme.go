package kinds

import (
	"reflect"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	_ "k8s.io/kubernetes/pkg/apis/admissionregistration/install"
	_ "k8s.io/kubernetes/pkg/apis/apps/install"
	_ "k8s.io/kubernetes/pkg/apis/authentication/install"
	_ "k8s.io/kubernetes/pkg/apis/autoscaling/install"
	_ "k8s.io/kubernetes/pkg/apis/batch/install"
	_ "k8s.io/kubernetes/pkg/apis/certificates/install"
	_ "k8s.io/kubernetes/pkg/apis/coordination/install"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
	_ "k8s.io/kubernetes/pkg/apis/discovery/install"
	_ "k8s.io/kubernetes/pkg/apis/events/install"
	_ "k8s.io/kubernetes/pkg/apis/networking/install"
	_ "k8s.io/kubernetes/pkg/apis/node/install"
	_ "k8s.io/kubernetes/pkg/apis/policy/install"
	_ "k8s.io/kubernetes/pkg/apis/resource/install"
	_ "k8s.io/kubernetes/pkg/apis/scheduling/install"
	_ "k8s.io/kubernetes/pkg/apis/storage/install"
	_ "k8s.io/kubernetes/pkg/apis/storagemigration/install"
)

// scheme has all versions of kube-apiserver, their defaults and conversions. Its strategies refer to it.
var scheme = legacyscheme.Scheme

// Internal converts obj to the internal version of its group. The result may share memory with obj.
func Internal(obj runtime.Object) (runtime.Object, error) {
	kinds, _, err := scheme.ObjectKinds(obj)
	if err != nil {
		return nil, err
	}
	return scheme.UnsafeConvertToVersion(obj, schema.GroupVersion{Group: kinds[0].Group, Version: runtime.APIVersionInternal})
}

// StoredInternal is Internal for a stored object. Annotations that stand for fields of the internal version are removed if
// they are malformed: releases before this one stored them. It panics if the object cannot be converted nevertheless.
func StoredInternal(obj runtime.Object) runtime.Object {
	if in, err := Internal(obj); err == nil {
		return in
	}
	obj = obj.DeepCopyObject()
	if m, err := meta.Accessor(obj); err == nil {
		annotations := m.GetAnnotations()
		delete(annotations, appsv1.DeprecatedRollbackTo)
		delete(annotations, appsv1.DeprecatedTemplateGeneration)
	}
	return mustInternal(obj)
}

// SetFromInternal replaces obj by in, an object of the internal version. The apiVersion and kind of obj stay.
func SetFromInternal(obj, in runtime.Object) error {
	kinds, _, err := scheme.ObjectKinds(obj)
	if err != nil {
		return err
	}
	out, err := scheme.UnsafeConvertToVersion(in, kinds[0].GroupVersion())
	if err != nil {
		return err
	}
	out.GetObjectKind().SetGroupVersionKind(obj.GetObjectKind().GroupVersionKind())
	reflect.ValueOf(obj).Elem().Set(reflect.ValueOf(out).Elem())
	return nil
}

// convert is the rest.ConvertFunc of all resources. It converts by way of the internal version.
func convert(obj runtime.Object, to schema.GroupVersionKind) (runtime.Object, error) {
	in, err := Internal(obj.DeepCopyObject())
	if err != nil {
		return nil, err
	}
	return scheme.UnsafeConvertToVersion(in, to.GroupVersion())
}
