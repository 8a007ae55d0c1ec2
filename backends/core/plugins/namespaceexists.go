package plugins

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"portico/resource"
	"portico/resource/rest"
)

// newNamespaceExists rejects all writes in a namespace that does not exist.
func newNamespaceExists(cfg *Config) (rest.Admission, error) {
	namespaces := cfg.Resource("", "namespaces")
	return validates(func(ctx context.Context, a *rest.Attributes) error {
		if !inNamespace(a) || a.Operation == rest.Connect {
			return nil
		}
		_, err := namespaces.Store.Get(ctx, resource.Key{Name: a.Key.Namespace}, cached)
		if apierrors.IsNotFound(err) {
			_, err = namespaces.Store.Get(ctx, resource.Key{Name: a.Key.Namespace}, resource.At{})
		}
		return err
	}), nil
}

// inNamespace reports whether a write is one of an object in a namespace.
func inNamespace(a *rest.Attributes) bool {
	return a.Key.Namespace != "" && !(a.Kind.Group == "" && a.Kind.Resource == "namespaces")
}
