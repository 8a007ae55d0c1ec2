package controllers

import (
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
)

// slim drops the fields of an informer's object that no controller reads, so that the
// informers take a small part of the memory of the objects. A kind that controllers write
// whole (Update, UpdateStatus) loses its managed fields only, which the server then keeps.
func slim(obj any) (any, error) {
	o, err := meta.Accessor(obj)
	if err != nil {
		return obj, nil // the last state of a deleted object
	}
	o.SetManagedFields(nil)
	switch o := obj.(type) {
	case *appsv1.Deployment:
		o.Spec.Template = corev1.PodTemplateSpec{}
	case *appsv1.ReplicaSet:
		o.Spec.Template = corev1.PodTemplateSpec{}
	case *appsv1.StatefulSet:
		o.Spec.Template, o.Spec.VolumeClaimTemplates = corev1.PodTemplateSpec{}, nil
	case *batchv1.Job:
		o.Spec.Template = corev1.PodTemplateSpec{}
	case *corev1.Node:
		o.Status.Images, o.Status.VolumesInUse, o.Status.VolumesAttached = nil, nil, nil
	case *corev1.Pod:
		slimContainers(o.Spec.InitContainers)
		slimContainers(o.Spec.Containers)
		if o.Spec.Affinity != nil {
			o.Spec.Affinity.NodeAffinity = nil // quotas have a scope of the others
		}
		o.Spec.Tolerations = nil
	case *corev1.ReplicationController:
		o.Spec.Template = nil
	default:
		return obj, nil
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
