package core

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"portico/resource"
	"portico/resource/rest"
)

// componentStatuses is the store of the computed ComponentStatuses: one of each server of etcd,
// which are checked as one.
type componentStatuses struct {
	kind   *rest.Kind
	health func(context.Context) error
	names  []string
}

// newComponentStatuses returns the statuses of the servers of etcd, of which a test has none.
func (c *Core) newComponentStatuses(kind *rest.Kind) *componentStatuses {
	s := &componentStatuses{kind: kind, health: func(context.Context) error { return nil }}
	if c.etcd != nil {
		s.health = c.etcd.Healthy
	}
	for i := range max(len(c.cfg.Etcd.Endpoints), 1) {
		s.names = append(s.names, fmt.Sprintf("etcd-%d", i))
	}
	return s
}

// Info implements resource.Store.
func (s *componentStatuses) Info() *resource.Info { return &s.kind.Info }

func (s *componentStatuses) status(name string, err error) (*resource.Object, error) {
	c := corev1.ComponentCondition{Type: corev1.ComponentHealthy, Status: corev1.ConditionTrue, Message: "ok"}
	if err != nil {
		c.Status, c.Message, c.Error = corev1.ConditionFalse, "", err.Error()
	}
	obj := &corev1.ComponentStatus{Conditions: []corev1.ComponentCondition{c}}
	obj.Name = name
	return s.kind.Codec.EncodeStored(obj)
}

// Get implements resource.Store.
func (s *componentStatuses) Get(ctx context.Context, key resource.Key, _ resource.At) (*resource.Object, error) {
	for _, name := range s.names {
		if name == key.Name {
			return s.status(name, s.health(ctx))
		}
	}
	return nil, apierrors.NewNotFound(s.kind.GroupResource(), key.Name)
}

// List implements resource.Store.
func (s *componentStatuses) List(ctx context.Context, opts resource.ListOptions) (*resource.List, error) {
	err, out := s.health(ctx), &resource.List{}
	for _, name := range s.names {
		o, encodeErr := s.status(name, err)
		if encodeErr != nil {
			return nil, encodeErr
		}
		if opts.Selector.Matches(o) {
			out.Items = append(out.Items, o)
		}
	}
	return out, nil
}

func (s *componentStatuses) refuse(verb string) error {
	return apierrors.NewMethodNotSupported(s.kind.GroupResource(), verb)
}

// Watch implements resource.Store.
func (s *componentStatuses) Watch(context.Context, resource.WatchOptions) (resource.Watcher, error) {
	return nil, s.refuse("watch")
}

// Create implements resource.Store.
func (s *componentStatuses) Create(context.Context, resource.Key, *resource.Object, time.Duration) (*resource.Object, error) {
	return nil, s.refuse("create")
}

// Update implements resource.Store.
func (s *componentStatuses) Update(context.Context, resource.Key, resource.Mutate) (*resource.Object, error) {
	return nil, s.refuse("update")
}

// Delete implements resource.Store.
func (s *componentStatuses) Delete(context.Context, resource.Key, func(*resource.Object) error) (*resource.Object, error) {
	return nil, s.refuse("delete")
}
