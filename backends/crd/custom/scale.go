package custom

import (
	"fmt"
	"math"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"portico/resource/rest"
)

// unsetReplicas is spec.replicas of the Scale of an object that does not set it, which a
// write must change. 0 would be a valid number.
const unsetReplicas = math.MinInt32

// scaleOf returns the Scale of an object; found reports whether the object sets the number
// of replicas.
func scaleOf(obj rest.Object, at *apiextensionsv1.CustomResourceSubresourceScale) (scale *autoscalingv1.Scale, found bool, err error) {
	object := content(obj)
	want, found, err := unstructured.NestedInt64(object, splitPath(at.SpecReplicasPath)...)
	if err != nil {
		return nil, false, err
	}
	have, _, err := unstructured.NestedInt64(object, splitPath(at.StatusReplicasPath)...)
	if err != nil {
		return nil, false, err
	}
	selector := ""
	if path := at.LabelSelectorPath; path != nil && *path != "" {
		if selector, _, err = unstructured.NestedString(object, splitPath(*path)...); err != nil {
			return nil, false, err
		}
	}
	return &autoscalingv1.Scale{
		TypeMeta: metav1.TypeMeta{APIVersion: autoscalingv1.SchemeGroupVersion.String(), Kind: "Scale"},
		ObjectMeta: metav1.ObjectMeta{
			Name: obj.GetName(), Namespace: obj.GetNamespace(), UID: obj.GetUID(),
			ResourceVersion: obj.GetResourceVersion(), CreationTimestamp: obj.GetCreationTimestamp(),
		},
		Spec:   autoscalingv1.ScaleSpec{Replicas: int32(want)},
		Status: autoscalingv1.ScaleStatus{Replicas: int32(have), Selector: selector},
	}, found, nil
}

// scaleView returns the scale subresource.
func (c *custom) scaleView() rest.Subresource {
	kind, at := c.kinds.scale, c.scale()
	return rest.Subresource{
		Name: "scale", GVK: kind.GVK("v1"),
		Projection: &rest.Projection{
			Kind: kind,
			Get: func(obj rest.Object) (rest.Object, error) {
				scale, found, err := scaleOf(obj, at)
				if err == nil && !found {
					err = fmt.Errorf("the spec replicas field %q does not exist", at.SpecReplicasPath)
				}
				if err != nil {
					return nil, apierrors.NewInternalError(err)
				}
				return scale, nil
			},
			Begin: func(obj rest.Object) (rest.Object, error) {
				scale, found, err := scaleOf(obj, at)
				if err != nil {
					return nil, apierrors.NewInternalError(err)
				}
				if !found {
					scale.Spec.Replicas = unsetReplicas
				}
				return scale, nil
			},
			Set:   func(obj, view rest.Object) error { return setReplicas(obj, view.(*autoscalingv1.Scale), at) },
			Paths: c.replicasPaths(),
		},
	}
}

// replicasPaths returns where each version has its number of replicas.
func (c *custom) replicasPaths() managedfields.ResourcePathMappings {
	paths := managedfields.ResourcePathMappings{}
	for _, v := range c.outline.Spec.Versions {
		gv := c.outline.Spec.Group + "/" + v.Name
		paths[gv] = nil
		if v.Subresources == nil || v.Subresources.Scale == nil {
			continue
		}
		for _, name := range splitPath(v.Subresources.Scale.SpecReplicasPath) {
			paths[gv] = append(paths[gv], fieldpath.PathElement{FieldName: &name})
		}
	}
	return paths
}

// setReplicas sets the number of replicas of the object to that of its Scale.
func setReplicas(obj rest.Object, scale *autoscalingv1.Scale, at *apiextensionsv1.CustomResourceSubresourceScale) error {
	if scale.Spec.Replicas == unsetReplicas {
		return apierrors.NewBadRequest(fmt.Sprintf("the spec replicas field %q cannot be empty", at.SpecReplicasPath))
	}
	if err := unstructured.SetNestedField(content(obj), int64(scale.Spec.Replicas), splitPath(at.SpecReplicasPath)...); err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	return nil
}
