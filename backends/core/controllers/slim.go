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
		slimPod(o)
	case *corev1.ReplicationController:
		o.Spec.Template = nil
	default:
		return obj, nil
	}
	delete(o.GetAnnotations(), corev1.LastAppliedConfigAnnotation)
	return obj, nil
}

// slimPod drops most of a pod. It keeps the volumes that are claims, the names, ports,
// resources and states of containers, and the conditions that controllers read.
func slimPod(pod *corev1.Pod) {
	spec, status := &pod.Spec, &pod.Status
	pod.Annotations, spec.NodeSelector, spec.ImagePullSecrets, spec.SecurityContext = nil, nil, nil, nil
	var conditions []corev1.PodCondition
	for _, c := range status.Conditions {
		switch c.Type {
		case corev1.PodReady, corev1.DisruptionTarget, corev1.PodResizePending: // the last is for quotas
			conditions = append(conditions, c)
		}
	}
	status.Conditions = conditions
	slimContainers(spec.InitContainers)
	slimContainers(spec.Containers)
	if spec.Affinity != nil {
		spec.Affinity.NodeAffinity = nil // quotas have a scope of the others
	}
	spec.Tolerations = nil
	var volumes []corev1.Volume
	for _, v := range spec.Volumes {
		if v.PersistentVolumeClaim != nil || v.Ephemeral != nil {
			volumes = append(volumes, v)
		}
	}
	spec.Volumes = volumes
	for _, list := range [][]corev1.ContainerStatus{status.InitContainerStatuses, status.ContainerStatuses, status.EphemeralContainerStatuses} {
		for i, c := range list {
			list[i] = corev1.ContainerStatus{Name: c.Name, State: slimState(c.State), Resources: c.Resources, AllocatedResources: c.AllocatedResources}
		}
	}
}

// slimContainers keeps names, ports and resources.
func slimContainers(list []corev1.Container) {
	for i, c := range list {
		list[i] = corev1.Container{Name: c.Name, Ports: c.Ports, Resources: c.Resources, RestartPolicy: c.RestartPolicy}
	}
}

// slimState keeps which state it is.
func slimState(s corev1.ContainerState) (out corev1.ContainerState) {
	switch {
	case s.Terminated != nil:
		out.Terminated = &terminated
	case s.Waiting != nil:
		out.Waiting = &waiting
	case s.Running != nil:
		out.Running = &runningState
	}
	return out
}

// The states of slim containers. They are not changed.
var (
	terminated   corev1.ContainerStateTerminated
	waiting      corev1.ContainerStateWaiting
	runningState corev1.ContainerStateRunning
)
