package crd

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico/resource"
	"portico/resource/rest"
)

// lifecycle refuses to create objects of a definition that is going.
type lifecycle struct{ server *Server }

var _ rest.Admission = (*lifecycle)(nil)

// Mutate decides; it changes nothing.
func (l *lifecycle) Mutate(_ context.Context, a *rest.Attributes) error {
	if a.Operation == rest.Create && l.server.terminating(a.Kind.GroupResource()) {
		return apierrors.NewForbidden(a.Kind.GroupResource(), a.Key.Name, errors.New("create not allowed while custom resource definition is terminating"))
	}
	return nil
}

// Validate looks again: the definition may have begun to go meanwhile.
func (l *lifecycle) Validate(ctx context.Context, a *rest.Attributes) error { return l.Mutate(ctx, a) }

// terminating reports whether the definition of a resource is being deleted.
func (s *Server) terminating(gr schema.GroupResource) bool {
	now := s.served.Load()
	if now == nil {
		return false
	}
	d := now.byGR[gr]
	return d != nil && d.terminating()
}

// servingOf returns the entry that a request is about; nil if none.
func (s *Server) servingOf(act *resource.Action) *serving {
	now := s.served.Load()
	if now == nil {
		return nil
	}
	if d := now.byGR[schema.GroupResource{Group: act.Group, Resource: act.Resource}]; d != nil {
		return d.serving
	}
	return nil
}
