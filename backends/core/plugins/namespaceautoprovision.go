package plugins

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico/resource"
	"portico/resource/rest"
)

// newNamespaceAutoProvision creates the namespace of a new object if it does not exist. Creators
// need no right to create namespaces.
func newNamespaceAutoProvision(cfg *Config) (rest.Admission, error) {
	namespaces := cfg.Resource("", "namespaces")
	return mutates(func(ctx context.Context, a *rest.Attributes) error {
		if a.Operation != rest.Create || a.DryRun || !inNamespace(a) {
			return nil
		}
		name := a.Key.Namespace
		_, err := namespaces.Store.Get(ctx, resource.Key{Name: name}, cached)
		if apierrors.IsNotFound(err) {
			_, err = rest.CreateObject(ctx, namespaces, &corev1.Namespace{
				ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelMetadataName: name}},
				Spec:       corev1.NamespaceSpec{Finalizers: []corev1.FinalizerName{corev1.FinalizerKubernetes}},
				Status:     corev1.NamespaceStatus{Phase: corev1.NamespaceActive},
			})
		}
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return forbidden(a, err)
		}
		return nil
	}), nil
}
