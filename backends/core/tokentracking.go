package core

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico/resource"
	"portico/resource/authn"
	"portico/resource/loop"
	"portico/resource/rest"
)

// legacyTokenTracking keeps the ConfigMap of legacy token tracking, which names the day on which
// servers began to record uses of tokens of Secrets. The controller that cleans up unused tokens,
// here or in kube-controller-manager, reads it.
type legacyTokenTracking struct{ core *Core }

// run creates the ConfigMap, and repairs it every minute.
func (t *legacyTokenTracking) run(ctx context.Context) error {
	return t.core.reconcile(ctx, "legacy token tracking", &loop.Signal{}, t.ensure)
}

// ensure creates the ConfigMap, or sets its day if it has none.
func (t *legacyTokenTracking) ensure(ctx context.Context) error {
	configMaps := t.core.find("", "configmaps")
	key := resource.Key{Namespace: metav1.NamespaceSystem, Name: authn.LegacyTokenTrackingConfigMap}
	today := time.Now().UTC().Format(authn.DayFormat)
	cm, err := rest.GetObject[*corev1.ConfigMap](ctx, configMaps, key, resource.At{Freshness: resource.Any})
	switch {
	case apierrors.IsNotFound(err):
		err = create(ctx, configMaps, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}, Data: map[string]string{authn.LegacyTokenTrackingKey: today},
		})
	case err == nil && !hasDay(cm):
		_, err = rest.Modify(ctx, configMaps, key, func(cm *corev1.ConfigMap) error {
			if hasDay(cm) {
				return nil
			}
			if cm.Data == nil {
				cm.Data = map[string]string{}
			}
			cm.Data[authn.LegacyTokenTrackingKey] = today
			return nil
		})
	}
	if err == nil {
		t.core.started.legacyTokenTracking.Store(true)
	}
	return err
}

func hasDay(cm *corev1.ConfigMap) bool {
	_, err := time.Parse(authn.DayFormat, cm.Data[authn.LegacyTokenTrackingKey])
	return err == nil
}
