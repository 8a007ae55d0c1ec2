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

// tokenTracking keeps the ConfigMap with the day from which on uses of tokens of Secrets are
// recorded. The controller that cleans up unused tokens reads it, in this process or in
// kube-controller-manager.
type tokenTracking struct{ core *Core }

// run creates the ConfigMap, and repairs it every minute.
func (t *tokenTracking) run(ctx context.Context) error {
	return t.core.reconcile(ctx, "legacy token tracking", &loop.Signal{}, t.ensure)
}

func (t *tokenTracking) ensure(ctx context.Context) error {
	configMaps := t.core.find("", "configmaps")
	key := resource.Key{Namespace: metav1.NamespaceSystem, Name: authn.TrackingName}
	today := map[string]string{authn.TrackingKey: time.Now().UTC().Format(authn.DayFormat)}
	cm, err := rest.GetObject[*corev1.ConfigMap](ctx, configMaps, key, resource.At{Freshness: resource.Any})
	switch {
	case apierrors.IsNotFound(err):
		err = create(ctx, configMaps, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}, Data: today})
	case err == nil && !tracksSince(cm):
		_, err = rest.Modify(ctx, configMaps, key, func(cm *corev1.ConfigMap) error {
			if !tracksSince(cm) {
				cm.Data = today
			}
			return nil
		})
	}
	if err == nil {
		t.core.started.tokenTracking.Store(true)
	}
	return err
}

// tracksSince reports whether the ConfigMap has a day.
func tracksSince(cm *corev1.ConfigMap) bool {
	_, err := time.Parse(authn.DayFormat, cm.Data[authn.TrackingKey])
	return err == nil
}
