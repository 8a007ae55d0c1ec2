package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	admissionv1 "k8s.io/api/admissionregistration/v1"

	"portico/apiservice"
	"portico/apiservice/backend"
	"portico/gateway/proxy"
	"portico/resource"
	"portico/resource/admission"
	"portico/resource/rest"
	"portico/resource/serve/filter"
)

// assembleAdmission makes the admission of the gateway's own kinds: the lifecycle of
// namespaces, webhooks and policies, as in the core and the CRD server. It follows their
// objects through the route table.
//
// Only requests are subject to admission. Writes of the gateway itself (rest.CreateObject
// and rest.Modify) are not: the bootstrap policy, aggregated rules, flow control defaults,
// automanaged APIServices and every status. A policy that rejected those would stop the
// installation.
func (g *Gateway) assembleAdmission() (rest.Admission, error) {
	engine, err := admission.NewEngine(admission.EngineConfig{
		Egress: g.cfg.Egress, ConfigFile: g.cfg.AdmissionConfigFile,
		BaseURL: loopbackURL, Transport: g.core, UserAgent: userAgent, Warn: filter.AddWarning, Authorizer: g.authorizer,
		Waited: filter.AddWait, Logger: g.log,
	})
	if err != nil {
		return nil, err
	}
	g.admission = &ownAdmission{
		engine: engine, namespaces: admission.NewNamespaceStates(admission.NamespacesOver(g.core.client), g.log), log: g.log,
		route:      func(group string) *proxy.Route { return g.sync.Table().Lookup(group, "v1") },
		registered: g.isRegistered,
	}
	return admission.Timed(admission.Chain(admission.NamespaceLifecycle(g.admission.lookupNamespace), g.admission)), nil
}

// isRegistered reports whether version v1 of a group has an APIService, or may have one
// because the stored APIServices were not read yet.
func (g *Gateway) isRegistered(group string) bool {
	list, known := g.sync.Listed()
	if !known {
		return true
	}
	for _, s := range list {
		if s.Name == apiservice.Name(group, "v1") {
			return true
		}
	}
	return false
}

// ownAdmission calls webhooks and policies for the gateway's own kinds. While the server
// of their configurations cannot be reached:
//
//   - The configurations that were read last apply, also after a restart of the gateway.
//   - If none were ever read, writes are rejected with 503.
//   - Members of system:masters may write APIServices and Backends without webhooks and
//     policies. These objects decide how that server is reached, and no policy could be
//     removed before it is.
//
// A gateway without a registered server for configurations or namespaces that never read
// any has none to call.
type ownAdmission struct {
	engine     *admission.Engine
	namespaces *admission.NamespaceStates
	log        *slog.Logger
	// route returns the route to v1 of a group, nil without one; registered reports whether
	// there is or may be an APIService for it.
	route      func(group string) *proxy.Route
	registered func(group string) bool
}

// Mutate implements rest.Admission.
func (o *ownAdmission) Mutate(ctx context.Context, a *rest.Attributes) error {
	asked, err := o.asks(a)
	if !asked {
		return err
	}
	return o.engine.Mutate(ctx, a)
}

// Validate implements rest.Admission.
func (o *ownAdmission) Validate(ctx context.Context, a *rest.Attributes) error {
	asked, err := o.asks(a)
	if !asked {
		return err
	}
	return o.engine.Validate(ctx, a)
}

// asks reports whether webhooks and policies are called for a write. If not, the write is
// admitted, or rejected with the error.
func (o *ownAdmission) asks(a *rest.Attributes) (bool, error) {
	unread := o.engine.Ready() != nil
	if unread && !o.registered(admissionv1.GroupName) {
		return false, nil
	}
	away := o.away()
	switch {
	case away == nil:
		return true, nil
	case repairs(a):
		o.log.Warn("a write passes without webhooks and policies: the server of their configurations is away",
			"resource", a.Kind.GroupResource().String(), "name", a.Key.Name, "user", a.Action.User.Name, "err", away)
		return false, nil
	case unread:
		return false, resource.Unavailable(fmt.Sprintf("admission webhooks and policies are not known: %v; writes are possible once their server is back, "+
			"until then system:masters may write APIServices and Backends, which say where it is", away), 0)
	}
	return true, nil
}

// away returns why the server of the configurations cannot be reached; nil if it can.
func (o *ownAdmission) away() error {
	rt := o.route(admissionv1.GroupName)
	if rt == nil {
		return errors.New("no server is routed for " + admissionv1.SchemeGroupVersion.String())
	}
	if err := rt.Unavailable(); err != nil {
		return err
	}
	return nil
}

// repairs reports whether a write may decide how servers are reached and its user is in
// system:masters.
func repairs(a *rest.Attributes) bool {
	return a.Action != nil && a.Action.User != nil && slices.Contains(a.Action.User.Groups, resource.GroupMasters) &&
		(a.Kind.Group == apiservice.Group || a.Kind.Group == backend.Group)
}

// lookupNamespace is an admission.LookupNamespace.
func (o *ownAdmission) lookupNamespace(ctx context.Context, name string, live bool) (admission.NamespaceState, error) {
	if o.namespaces.Ready() != nil && !o.registered("") {
		return admission.NamespaceState{Exists: true}, nil
	}
	return o.namespaces.Lookup(ctx, name, live)
}

// Ready returns nil once everything that writes wait for has been read.
func (o *ownAdmission) Ready() error {
	var errs []error
	if o.registered(admissionv1.GroupName) {
		errs = append(errs, o.engine.Ready())
	}
	if o.registered("") {
		errs = append(errs, o.namespaces.Ready())
	}
	return errors.Join(errs...)
}
