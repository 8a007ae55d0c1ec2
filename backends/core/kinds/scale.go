package kinds

import (
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"portico/resource"
	"portico/resource/rest"
)

// scaleKind is the kind of every scale subresource.
var scaleKind = rest.ScaleKind()

// scale returns the scale subresource of a kind with spec.replicas. replicas returns the
// address of that field, and observed status.replicas and the selector of the pods in text
// form.
func scale[T rest.Object](info *resource.Info, replicas func(T) **int32, observed func(T) (int32, string)) rest.Subresource {
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
				count, selector := observed(t)
				return &autoscalingv1.Scale{
					TypeMeta: metav1.TypeMeta{APIVersion: autoscalingv1.SchemeGroupVersion.String(), Kind: "Scale"},
					ObjectMeta: metav1.ObjectMeta{
						Name: t.GetName(), Namespace: t.GetNamespace(), UID: t.GetUID(),
						ResourceVersion: t.GetResourceVersion(), CreationTimestamp: t.GetCreationTimestamp(),
					},
					Spec:   autoscalingv1.ScaleSpec{Replicas: ptr.Deref(*replicas(t), 0)},
					Status: autoscalingv1.ScaleStatus{Replicas: count, Selector: selector},
				}, nil
			},
			Set: func(obj, projected rest.Object) error {
				*replicas(obj.(T)) = new(projected.(*autoscalingv1.Scale).Spec.Replicas)
				return nil
			},
			Paths: paths,
		},
	}
}
