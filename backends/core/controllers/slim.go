package controllers

import (
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
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
	if notes := o.GetAnnotations(); notes != nil {
		delete(notes, corev1.LastAppliedConfigAnnotation)
	}
	switch o := obj.(type) {
	case *batchv1.Job:
		o.Spec.Template = corev1.PodTemplateSpec{}
	case *corev1.Pod:
		slimContainers(o.Spec.InitContainers)
		slimContainers(o.Spec.Containers)
		o.Spec.Affinity, o.Spec.Tolerations = nil, nil
	}
	return obj, nil
}

// slimContainers keeps names, ports and resources.
func slimContainers(list []corev1.Container) {
	for i, c := range list {
		list[i] = corev1.Container{Name: c.Name, Ports: c.Ports, Resources: c.Resources, RestartPolicy: c.RestartPolicy}
	}
}
