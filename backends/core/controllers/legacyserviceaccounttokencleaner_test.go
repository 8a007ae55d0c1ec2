package controllers

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"portico/internal/testing/await"
	"portico/resource/authn"
)

// A token that an account lists and that nothing used for a year is marked as invalid, and goes a
// year later; others stay.
func TestUnusedTokensOfSecretsGo(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	const day = 24 * time.Hour
	begin := time.Now()
	now := clocktesting.NewFakeClock(begin)
	later := begin.Add(4000 * day).UTC().Format(authn.DayFormat)
	secrets := s.CoreV1().Secrets("ns")
	made := func(name string, labels map[string]string) {
		o := tokenSecret(name, "robot", "")
		o.Labels = labels
		must[*corev1.Secret](t)(secrets.Create(t.Context(), o, metav1.CreateOptions{}))
	}
	made("unused", nil)
	made("used", map[string]string{authn.LabelLastUsed: later})
	made("unlisted", nil)
	made("mounted", nil)
	sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "robot"}, Secrets: []corev1.ObjectReference{{Name: "unused"}, {Name: "used"}, {Name: "mounted"}}}
	must[*corev1.ServiceAccount](t)(s.CoreV1().ServiceAccounts("ns").Create(t.Context(), sa, metav1.CreateOptions{}))
	must[*corev1.Pod](t)(s.CoreV1().Pods("ns").Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p"},
		Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Name: "c", Image: "i"}},
			Volumes:    []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "mounted"}}}},
		},
	}, metav1.CreateOptions{}))
	must[*corev1.ConfigMap](t)(s.CoreV1().ConfigMaps("kube-system").Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: authn.LegacyTokenTrackingConfigMap}, Data: map[string]string{authn.LegacyTokenTrackingKey: begin.UTC().Format(authn.DayFormat)},
	}, metav1.CreateOptions{}))
	s.run("legacy-serviceaccount-token-cleaner-controller", Options{}, now)
	now.Step(380 * day)
	await.Until(t, "the unused token is marked", func() bool {
		now.Step(day) // the controller may have been at work
		return must[*corev1.Secret](t)(secrets.Get(t.Context(), "unused", metav1.GetOptions{})).Labels[authn.LabelInvalidSince] != ""
	})
	now.Step(370 * day)
	await.Until(t, "it is gone", func() bool {
		_, err := secrets.Get(t.Context(), "unused", metav1.GetOptions{})
		if err == nil {
			now.Step(day)
		}
		return apierrors.IsNotFound(err)
	})
	for name, marked := range map[string]bool{"unlisted": false, "mounted": false} {
		o := must[*corev1.Secret](t)(secrets.Get(t.Context(), name, metav1.GetOptions{}))
		if (o.Labels[authn.LabelInvalidSince] != "") != marked {
			t.Errorf("%s has the labels %v", name, o.Labels)
		}
	}
	must[*corev1.Secret](t)(secrets.Get(t.Context(), "used", metav1.GetOptions{}))
}
