package plugins

import (
	"context"
	"errors"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"portico/resource/admission"
	"portico/resource/rest"
)

// member is a plugin of a chain.
type member struct {
	row
	rest.Admission
	// afterEngine: webhooks and policies are called before the plugin.
	afterEngine bool
}

// isGroup reports whether the member is several plugins of kube-apiserver.
func (m *member) isGroup() bool { _, ok := m.Admission.(*kubernetes); return ok }

// chain calls plugins in order, each for its resources, until the first error.
type chain []member

// Mutate implements rest.Admission.
func (c chain) Mutate(ctx context.Context, a *rest.Attributes) error {
	return c.each(ctx, a, admission.PhaseAdmit)
}

// Validate implements rest.Admission.
func (c chain) Validate(ctx context.Context, a *rest.Attributes) error {
	return c.each(ctx, a, admission.PhaseValidate)
}

func (c chain) each(ctx context.Context, a *rest.Attributes, phase string) error {
	for i := range c {
		if m := &c[i]; m.isGroup() || m.takes(a) {
			if err := m.call(ctx, a, phase); err != nil {
				return err
			}
		}
	}
	return nil
}

// call runs a phase of the plugin, if it has that, and observes it.
func (m *member) call(ctx context.Context, a *rest.Attributes, phase string) error {
	run := m.Mutate
	if phase == admission.PhaseValidate {
		run = m.Validate
	}
	if m.name == admission.PluginLifecycle || m.isGroup() { // they observe themselves
		return run(ctx, a)
	}
	if _, first := m.Admission.(mutates); first && phase == admission.PhaseValidate {
		return nil
	}
	begun := time.Now()
	err := asStatus(run(ctx, a))
	admission.Observe(ctx, begun, m.name, phase, a.Operation, err)
	return err
}

// with returns the chain with the plugins of the engine at their place. Where one of those
// changes an object, the plugins before it are called again (docs/wire.md 10.1).
func (c chain) with(engine *admission.Engine, names []string) rest.Admission {
	at := slices.IndexFunc(c, func(m member) bool { return m.afterEngine })
	if at < 0 {
		at = len(c)
	}
	before, after := c[:at], c[at:]
	if engine == nil || len(names) == 0 {
		return c
	}
	return admission.Chain(before, engine.Only(names, before.Mutate), after)
}

// asStatus returns an error of a plugin as a StatusError: an internal error unless it is one. The
// error of a request that has ended is returned as it is.
func asStatus(err error) error {
	var status apierrors.APIStatus
	if err == nil || errors.As(err, &status) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return err
	}
	return apierrors.NewInternalError(err)
}
