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

// storeStaticBackends stores the static Backends, before any APIService of theirs. The
// elected gateway creates what is missing and restores the addresses of automanaged ones;
// another gateway creates each once.
func (g *registrar) storeStaticBackends(ctx context.Context, all *routing.BackendStates) error {
	if !all.Whole {
		return nil
	}
	term, elected := g.leadership.term()
	if elected {
		ctx = term
	}
	var errs []error
	for _, c := range g.static {
		var err error
		switch st := all.ByName[c.Name]; {
		case st.Object == nil && (elected || !g.introduced[c.Name]):
			err = g.createStaticBackend(ctx, c)
		case st.Object != nil && elected && st.Own != nil:
			err = g.restoreAddress(ctx, c, st.Object)
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if g.introduced == nil {
			g.introduced = map[string]bool{}
		}
		g.introduced[c.Name] = true
	}
	return errors.Join(errs...)
}

func (g *registrar) createStaticBackend(ctx context.Context, c *routing.StaticBackend) error {
	b := &backend.Backend{
		TypeMeta:   metav1.TypeMeta{APIVersion: backend.GroupVersion().String(), Kind: "Backend"},
		ObjectMeta: metav1.ObjectMeta{Name: c.Name, Labels: map[string]string{apiservice.AutomanagedLabel: apiservice.OnStart}},
		Spec:       *c.Spec(),
	}
	if _, err := rest.CreateObject(ctx, g.backends, b.DeepCopy()); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create Backend %q: %w", c.Name, err)
	}
	return nil
}

// restoreAddress writes the configured address and CAs to the object of a static Backend.
func (g *registrar) restoreAddress(ctx context.Context, c *routing.StaticBackend, have *backend.Backend) error {
	if hasAddress(have, c) {
		return nil
	}
	_, err := rest.Modify(ctx, g.backends, resource.Key{Name: c.Name}, func(b *backend.Backend) error {
		if b.Labels[apiservice.AutomanagedLabel] != "" && !hasAddress(b, c) {
			spec := (&backend.Backend{Spec: *c.Spec()}).DeepCopy().Spec
			b.Spec.Endpoints, b.Spec.Service, b.Spec.TLS = spec.Endpoints, nil, spec.TLS
			b.Generation++
		}
		return nil
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("write the address of Backend %q: %w", c.Name, err)
	}
	return nil
}

func hasAddress(b *backend.Backend, c *routing.StaticBackend) bool {
	spec := c.Spec()
	return b.Spec.Service == nil && apiequality.Semantic.DeepEqual(b.Spec.Endpoints, spec.Endpoints) && apiequality.Semantic.DeepEqual(b.Spec.TLS, spec.TLS)
}
