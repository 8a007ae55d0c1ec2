package registration

import (
	"context"
	"errors"
	"fmt"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico/apiservice"
	"portico/apiservice/backend"
	"portico/gateway/routing"
	"portico/resource"
	"portico/resource/rest"
)

// introduce stores the configured Backends, before anything is registered as
// theirs. The elected gateway stores what is missing, and puts right where an
// automanaged one is; others store each once.
func (g *registrar) introduce(ctx context.Context, all *routing.BackendStates) error {
	if !all.Whole {
		return nil
	}
	term, elected := g.leadership.term()
	if elected {
		ctx = term
	}
	var errs []error
	for _, c := range g.configured {
		st := all.ByName[c.Name]
		switch {
		case st.Object == nil && (elected || !g.introduced[c.Name]):
			b := &backend.Backend{
				TypeMeta:   metav1.TypeMeta{APIVersion: backend.GroupVersion().String(), Kind: "Backend"},
				ObjectMeta: metav1.ObjectMeta{Name: c.Name, Labels: map[string]string{apiservice.AutomanagedLabel: apiservice.OnStart}},
				Spec:       *c.Spec(),
			}
			if _, err := rest.CreateObject(ctx, g.backends, b.DeepCopy()); err != nil && !apierrors.IsAlreadyExists(err) {
				errs = append(errs, fmt.Errorf("create Backend %q: %w", c.Name, err))
				continue
			}
		case st.Object != nil && elected && st.Own != nil:
			if err := g.relocate(ctx, c, st.Object); err != nil {
				errs = append(errs, err)
			}
		}
		if g.introduced == nil {
			g.introduced = map[string]bool{}
		}
		g.introduced[c.Name] = true
	}
	return errors.Join(errs...)
}

// relocate has the object of a configured Backend say where its server is.
func (g *registrar) relocate(ctx context.Context, c *routing.StaticBackend, have *backend.Backend) error {
	if isAt(c, have) {
		return nil
	}
	_, err := rest.Modify(ctx, g.backends, resource.Key{Name: c.Name}, func(b *backend.Backend) error {
		if b.Labels[apiservice.AutomanagedLabel] != "" && !isAt(c, b) {
			spec := (&backend.Backend{Spec: *c.Spec()}).DeepCopy().Spec
			b.Spec.Endpoints, b.Spec.Service, b.Spec.TLS = spec.Endpoints, nil, spec.TLS
			b.Generation++
		}
		return nil
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("write where Backend %q is: %w", c.Name, err)
	}
	return nil
}

// isAt reports whether an object says of the server what the configuration does.
func isAt(c *routing.StaticBackend, b *backend.Backend) bool {
	now := c.Spec()
	return b.Spec.Service == nil && apiequality.Semantic.DeepEqual(b.Spec.Endpoints, now.Endpoints) && apiequality.Semantic.DeepEqual(b.Spec.TLS, now.TLS)
}
