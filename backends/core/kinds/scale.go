package kinds

import (
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"portico/resource"
	"portico/resource/rest"
)

// scaleKind is the kind of every scale subresource.
var scaleKind = rest.ScaleKind()

// scale returns the scale subresource of a kind with spec.replicas. replicas returns the
// address of that field, and observed status.replicas and the selector of the pods.
func scale[T rest.Object](info *resource.Info, replicas func(T) **int32, observed func(T) (int32, labels.Selector, error)) rest.Subresource {
	paths := managedfields.ResourcePathMappings{}
	for _, v := range info.Versions {
		paths[info.GVK(v).GroupVersion().String()] = fieldpath.MakePathOrDie("spec", "replicas")
	}
	return rest.Subresource{
		Name: "scale", GVK: scaleKind.GVK("v1"),
		Projection: &rest.Projection{
			Kind: scaleKind,
			Get: func(obj rest.Object) (rest.Object, error) {
				t := obj.(T)
				count, selector, err := observed(t)
				if err != nil {
					return nil, apierrors.NewBadRequest(err.Error())
				}
				return &autoscalingv1.Scale{
					TypeMeta: metav1.TypeMeta{APIVersion: autoscalingv1.SchemeGroupVersion.String(), Kind: "Scale"},
					ObjectMeta: metav1.ObjectMeta{
						Name: t.GetName(), Namespace: t.GetNamespace(), UID: t.GetUID(),
						ResourceVersion: t.GetResourceVersion(), CreationTimestamp: t.GetCreationTimestamp(),
					},
					Spec:   autoscalingv1.ScaleSpec{Replicas: ptr.Deref(*replicas(t), 0)},
					Status: autoscalingv1.ScaleStatus{Replicas: count, Selector: selector.String()},
				}, nil
			},
			Set: func(obj, projected rest.Object) error {
				wanted := projected.(*autoscalingv1.Scale).Spec.Replicas
				if errs := apivalidation.ValidateNonnegativeField(int64(wanted), field.NewPath("spec", "replicas")); len(errs) > 0 {
					return apierrors.NewInvalid(scaleKind.GroupKind(), projected.GetName(), errs)
				}
				*replicas(obj.(T)) = &wanted
				return nil
			},
			Paths: paths,
		},
	}
}

// selected adds the selector in the form of a spec to status.replicas.
func selected(replicas int32, s *metav1.LabelSelector) (int32, labels.Selector, error) {
	selector, err := metav1.LabelSelectorAsSelector(s)
	return replicas, selector, err
}
