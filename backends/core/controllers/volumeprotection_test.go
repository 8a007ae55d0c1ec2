package controllers

import (
	"slices"
	"testing"

	"portico/internal/testing/await"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A volume that is bound stays when it is deleted.
func TestPersistentVolumeProtection(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.run("persistentvolume-protection-controller", Options{}, nil)
	ctx, volumes := t.Context(), s.CoreV1().PersistentVolumes()
	for name, phase := range map[string]corev1.PersistentVolumePhase{"bound": corev1.VolumeBound, "free": corev1.VolumeAvailable} {
		create(t, volumes, &corev1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: name, Finalizers: []string{"example.com/other"}, Annotations: map[string]string{corev1.LastAppliedConfigAnnotation: "{}"}},
			Spec: corev1.PersistentVolumeSpec{
				Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/x"}},
			},
		}, func(pv *corev1.PersistentVolume) { pv.Status.Phase = phase })
		finalizers := func() []string {
			return must[*corev1.PersistentVolume](t)(volumes.Get(ctx, name, metav1.GetOptions{})).Finalizers
		}
		await.Until(t, name+" is protected", func() bool { return slices.Equal(finalizers(), []string{"example.com/other", pvFinalizer}) })
		if err := volumes.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		if phase == corev1.VolumeBound {
			continue
		}
		await.Until(t, name+" is not protected any more", func() bool { return slices.Equal(finalizers(), []string{"example.com/other"}) })
	}
	pv := must[*corev1.PersistentVolume](t)(volumes.Get(ctx, "bound", metav1.GetOptions{}))
	if !slices.Contains(pv.Finalizers, pvFinalizer) || pv.Annotations[corev1.LastAppliedConfigAnnotation] != "{}" {
		t.Errorf("metadata %+v", pv.ObjectMeta)
	}
	pv.Status.Phase = corev1.VolumeReleased
	must[*corev1.PersistentVolume](t)(volumes.UpdateStatus(ctx, pv, metav1.UpdateOptions{}))
	await.Until(t, "it is not protected when it is released", func() bool {
		pv := must[*corev1.PersistentVolume](t)(volumes.Get(ctx, "bound", metav1.GetOptions{}))
		return slices.Equal(pv.Finalizers, []string{"example.com/other"})
	})
}

// A claim that a pod uses stays when it is deleted; the condition Unused says whether a pod
// uses it.
func TestPersistentVolumeClaimProtection(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.run("persistentvolumeclaim-protection-controller", Options{}, nil)
	ctx, claims := t.Context(), s.CoreV1().PersistentVolumeClaims("default")
	claim := func(name string) *corev1.PersistentVolumeClaim {
		pvc := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		}}
		pvc = must[*corev1.PersistentVolumeClaim](t)(claims.Create(ctx, pvc, metav1.CreateOptions{}))
		await.Until(t, name+" is protected", func() bool {
			pvc = must[*corev1.PersistentVolumeClaim](t)(claims.Get(ctx, name, metav1.GetOptions{}))
			return slices.Contains(pvc.Finalizers, pvcFinalizer)
		})
		pvc.Status.Phase = corev1.ClaimBound
		return must[*corev1.PersistentVolumeClaim](t)(claims.UpdateStatus(ctx, pvc, metav1.UpdateOptions{}))
	}
	waitUnused := func(name string, status corev1.ConditionStatus, reason string) {
		t.Helper()
		await.Until(t, name+" has the condition "+reason, func() bool {
			c := unused(must[*corev1.PersistentVolumeClaim](t)(claims.Get(ctx, name, metav1.GetOptions{})))
			return c != nil && c.Status == status && c.Reason == reason
		})
	}
	remove := func(name string) {
		t.Helper()
		if err := claims.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	left := func(name string) bool {
		_, err := claims.Get(ctx, name, metav1.GetOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			t.Fatal(err)
		}
		return err == nil
	}
	mount := func(claim string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}}}
		}
	}

	claim("free")
	waitUnused("free", corev1.ConditionTrue, "NoPodsUsingPVC")
	remove("free")
	await.Until(t, "a claim without pods goes", func() bool { return !left("free") })

	claim("used")
	s.addPod("user", "n1", "x", mount("used"))
	waitUnused("used", corev1.ConditionFalse, "PodUsingPVC")
	claim("named")
	s.addPod("unscheduled", "", "x", mount("named"))
	waitUnused("named", corev1.ConditionFalse, "PodUsingPVC")
	remove("named")
	await.Until(t, "a claim of a pod without a node goes", func() bool { return !left("named") })
	remove("used")
	claim("other")
	waitUnused("other", corev1.ConditionTrue, "NoPodsUsingPVC") // the controller has been there
	if !left("used") {
		t.Fatal("a claim goes that a pod uses")
	}
	s.remove("user")
	await.Until(t, "the claim goes after its pod", func() bool { return !left("used") })
}
