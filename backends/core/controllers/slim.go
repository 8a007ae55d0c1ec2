package controllers

import (
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
)

// slim drops the fields of an informer's object that no controller reads, so that the
// informers take a small part of the memory of the objects.
func slim(obj any) (any, error) {
	o, err := meta.Accessor(obj)
	if err != nil {
		return obj, nil // the last state of a deleted object
	}
	o.SetManagedFields(nil)
	switch o := obj.(type) {
	case *corev1.Endpoints, *discoveryv1.EndpointSlice:
		return obj, nil // controllers update them; updates without managed fields keep them
	case *corev1.Node:
		o.Status.Images, o.Status.VolumesInUse, o.Status.VolumesAttached = nil, nil, nil
	case *batchv1.Job:
		o.Spec.Template = corev1.PodTemplateSpec{}
	case *corev1.Pod:
		slimContainers(o.Spec.InitContainers)
		slimContainers(o.Spec.Containers)
		o.Spec.Affinity, o.Spec.Tolerations = nil, nil
	}
	delete(o.GetAnnotations(), corev1.LastAppliedConfigAnnotation)
	return obj, nil
}

// slimContainers keeps names, ports and resources.
func slimContainers(list []corev1.Container) {
	for i, c := range list {
		list[i] = corev1.Container{Name: c.Name, Ports: c.Ports, Resources: c.Resources, RestartPolicy: c.RestartPolicy}
	}
}
