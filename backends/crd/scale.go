package crd

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

// unsetReplicas marks the view of an object that says nothing of replicas, so
// that a write which does not say it either is told from one that asks for 0.
const unsetReplicas = math.MinInt32

// scaleOf is the scale view of an object; found is false where the object does
// not say how many replicas it wants.
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

// readScale is scaleOf for readers, who get an error where there is nothing to
// read.
func readScale(obj rest.Object, at *apiextensionsv1.CustomResourceSubresourceScale) (*autoscalingv1.Scale, error) {
	scale, found, err := scaleOf(obj, at)
	switch {
	case err != nil:
		return nil, apierrors.NewInternalError(err)
	case !found:
		return nil, apierrors.NewInternalError(fmt.Errorf("the spec replicas field %q does not exist", at.SpecReplicasPath))
	}
	return scale, nil
}

// scaleView is the scale subresource.
func (c *custom) scaleView(at *apiextensionsv1.CustomResourceSubresourceScale) rest.Subresource {
	kind := c.server.scale
	return rest.Subresource{
		Name: "scale", GVK: kind.GVK("v1"),
		Projection: &rest.Projection{
			Kind: kind,
			Get:  func(obj rest.Object) (rest.Object, error) { return readScale(obj, at) },
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
			Set:   func(obj, view rest.Object) error { return writeScale(obj, view.(*autoscalingv1.Scale), at) },
			Paths: c.replicasPaths(),
		},
	}
}

// replicasPaths are where each version has its number of replicas.
func (c *custom) replicasPaths() managedfields.ResourcePathMappings {
	paths := managedfields.ResourcePathMappings{}
	for _, v := range c.serving.outline.Spec.Versions {
		gv := c.serving.outline.Spec.Group + "/" + v.Name
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

// writeScale puts the number of replicas wanted into the object.
func writeScale(obj rest.Object, scale *autoscalingv1.Scale, at *apiextensionsv1.CustomResourceSubresourceScale) error {
	if scale.Spec.Replicas == unsetReplicas {
		return apierrors.NewBadRequest(fmt.Sprintf("the spec replicas field %q cannot be empty", at.SpecReplicasPath))
	}
	if err := unstructured.SetNestedField(content(obj), int64(scale.Spec.Replicas), splitPath(at.SpecReplicasPath)...); err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	return nil
}
