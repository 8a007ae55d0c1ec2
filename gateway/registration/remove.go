package registration

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apireg "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico/apiservice"
	"portico/apiservice/backend"
	"portico/gateway/routing"
	"portico/resource"
)

// lacks reports whether an APIService that is not claimed is to go because its Backend's
// server answers and does not serve it any more. The server of a Backend that is away,
// or has not been asked yet, says nothing of the kind. The gateway's own in built-in
// groups stay: another gateway of the same installation may serve them.
func (c *claims) lacks(have *apireg.APIService) bool {
	of := have.Annotations[apiservice.BackendAnnotation]
	switch have.Labels[apiservice.AutomanagedLabel] {
	case apiservice.Managed:
		return c.complete[of]
	case apiservice.OnStart:
		return c.complete[of] && of != backend.Reserved
	}
	return false
}

// intrudes reports whether an APIService that nobody claims is the gateway's doing for
// another server in a group that the gateway serves itself.
func (c *claims) intrudes(have *apireg.APIService) bool {
	return c.reserved[have.Spec.Group] && apiservice.IsAutomanaged(have) && have.Annotations[apiservice.BackendAnnotation] != backend.Reserved
}

// orphaned reports whether an automanaged APIService is that of a Backend which
// does not exist, as far as is known here.
func orphaned(all *routing.BackendStates, have *apireg.APIService) bool {
	switch have.Labels[apiservice.AutomanagedLabel] {
	case apiservice.Managed, apiservice.OnStart:
	default:
		return false
	}
	of := have.Annotations[apiservice.BackendAnnotation]
	return all.Whole && of != "" && of != backend.Reserved && all.ByName[of] == nil
}

// removeOrphan removes an APIService whose Backend does not exist. It looks for
// the Backend again: both are followed apart, so that news of what another
// gateway registered may come before those of the Backend.
func (g *registrar) removeOrphan(ctx context.Context, a *apireg.APIService) error {
	of := a.Annotations[apiservice.BackendAnnotation]
	_, err := g.backends.Store.Get(ctx, resource.Key{Name: of}, resource.At{})
	switch {
	case err == nil:
		return nil // its news come
	case !apierrors.IsNotFound(err):
		return fmt.Errorf("look for Backend %q of APIService %q: %w", of, a.Name, err)
	}
	return g.remove(ctx, a)
}

// remove deletes an automanaged APIService, unless it changed hands meanwhile:
// then news of it come, and it is looked at again.
func (g *registrar) remove(ctx context.Context, a *apireg.APIService) error {
	_, err := g.services.Store.Delete(ctx, resource.Key{Name: a.Name}, func(cur *resource.Object) error {
		if cur.UID == string(a.UID) && cur.Labels.Get(apiservice.AutomanagedLabel) == a.Labels[apiservice.AutomanagedLabel] {
			now, err := g.services.Decode(cur)
			if err != nil {
				return fmt.Errorf("decode APIService %q: %w", a.Name, err)
			}
			if now.(*apireg.APIService).Annotations[apiservice.BackendAnnotation] == a.Annotations[apiservice.BackendAnnotation] {
				return nil
			}
		}
		return apierrors.NewConflict(g.services.GroupResource(), a.Name, fmt.Errorf("the APIService was taken over"))
	})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("remove APIService %q: %w", a.Name, err)
	}
	return nil
}
