package controllers

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Slim pods have what controllers read, and not much else.
func TestSlimPod(t *testing.T) {
	t.Parallel()
	always := corev1.ContainerRestartPolicyAlways
	container := corev1.Container{Name: "c", Image: "i", Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 80}}, Env: []corev1.EnvVar{{Name: "A"}}, RestartPolicy: &always}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p", ManagedFields: []metav1.ManagedFieldsEntry{{}}, Annotations: map[string]string{corev1.LastAppliedConfigAnnotation: "{}", "a": "b"}},
		Spec: corev1.PodSpec{
			Containers: []corev1.Container{container}, InitContainers: []corev1.Container{container}, Tolerations: []corev1.Toleration{{}},
			Volumes: []corev1.Volume{
				{Name: "secret", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{}}},
				{Name: "claim", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "x"}}},
			},
		},
		Status: corev1.PodStatus{
			ContainerStatuses: []corev1.ContainerStatus{
				{Name: "c", ImageID: "i", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Message: "m"}}},
				{Name: "d", ImageID: "i", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}}},
			},
		},
	}
	pod.DeletionTimestamp = new(metav1.Now())
	if stopped(pod) {
		t.Fatal("the pod has stopped")
	}
	got, err := slim(pod)
	if err != nil {
		t.Fatal(err)
	}
	p := got.(*corev1.Pod)
	c := p.Spec.InitContainers[0]
	if c.Image != "" || c.Env != nil || c.Ports[0].Name != "http" || c.RestartPolicy == nil || len(p.Spec.Volumes) != 1 || p.Spec.Volumes[0].Name != "claim" {
		t.Errorf("spec %+v", p.Spec)
	}
	if len(p.ManagedFields) > 0 || len(p.Annotations) > 0 || p.Spec.Tolerations != nil || p.Status.ContainerStatuses[0].ImageID != "" {
		t.Errorf("pod %+v", p)
	}
	if stopped(p) {
		t.Error("the slim pod has stopped")
	}
}
