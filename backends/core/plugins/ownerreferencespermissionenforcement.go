package plugins

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"portico/resource"
	"portico/resource/rest"
)

// newOwnerReferencesPermissionEnforcement permits changes of owner references to users that may
// delete the object, and blockOwnerDeletion to those that may set finalizers of the owner.
func newOwnerReferencesPermissionEnforcement(cfg *Config) (rest.Admission, error) {
	if cfg.Mapper == nil {
		return nil, errors.New("it finds the kinds of owners through the gateway, and this server was started without --gateway")
	}
	o := &ownerPermissions{authorize: cfg.Authorize, mapper: cfg.Mapper}
	return validates(o.validate), nil
}

type ownerPermissions struct {
	authorize func(ctx context.Context, a *resource.Action) error
	mapper    meta.RESTMapper
}

func (o *ownerPermissions) validate(ctx context.Context, a *rest.Attributes) error {
	obj, ok := a.Object.(metav1.Object)
	// The status of a pod may have stale references, which are not stored.
	if !ok || a.Action == nil || a.Kind.Group == "" && a.Kind.Resource == "pods" && a.Action.Subresource == "status" {
		return nil
	}
	var before []metav1.OwnerReference
	if old, ok := a.Old.(metav1.Object); ok {
		before = old.GetOwnerReferences()
	} else if a.Old != nil {
		return nil
	}
	now := obj.GetOwnerReferences()
	if len(now) == len(before) && (len(now) == 0 || equality.Semantic.DeepEqual(now, before)) {
		return nil
	}
	if a.Operation != rest.Create {
		act := *a.Action
		act.Verb = "delete"
		if err := o.authorize(ctx, &act); err != nil {
			return forbidden(a, fmt.Errorf("cannot set an ownerRef on a resource you can't delete: %v", err))
		}
	}
	return o.validateBlocking(ctx, a, newlyBlocking(now, before))
}

// newlyBlocking returns the references that block the deletion of owners and did not before.
func newlyBlocking(now, before []metav1.OwnerReference) (out []metav1.OwnerReference) {
	blocked := map[types.UID]bool{}
	for _, ref := range before {
		blocked[ref.UID] = ptr.Deref(ref.BlockOwnerDeletion, false)
	}
	for _, ref := range now {
		if ptr.Deref(ref.BlockOwnerDeletion, false) && !blocked[ref.UID] {
			out = append(out, ref)
		}
	}
	return out
}

// validateBlocking requires the right to set finalizers of the owners. The right to set all
// finalizers is asked for first, because it needs no discovery.
func (o *ownerPermissions) validateBlocking(ctx context.Context, a *rest.Attributes, refs []metav1.OwnerReference) error {
	act := resource.Action{User: a.Action.User, IsResource: true, Verb: "update", Group: "*", Version: "*", Resource: "*", Subresource: "finalizers", Name: "*"}
	if len(refs) == 0 || o.authorize(ctx, &act) == nil {
		return nil
	}
	for _, ref := range refs {
		mappings, err := o.mappings(ref)
		if err != nil {
			return forbidden(a, fmt.Errorf("cannot set blockOwnerDeletion in this case because cannot find RESTMapping for APIVersion %s Kind %s: %v", ref.APIVersion, ref.Kind, err))
		}
		for _, m := range mappings {
			act.Group, act.Version, act.Resource, act.Name, act.Namespace = m.Resource.Group, m.Resource.Version, m.Resource.Resource, ref.Name, ""
			if m.Scope.Name() == meta.RESTScopeNameNamespace {
				act.Namespace = a.Key.Namespace
			}
			if err := o.authorize(ctx, &act); err != nil {
				return forbidden(a, fmt.Errorf("cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on: %v", err))
			}
		}
	}
	return nil
}

// mappings returns the resources of the kind of an owner.
func (o *ownerPermissions) mappings(ref metav1.OwnerReference) ([]*meta.RESTMapping, error) {
	gv, err := schema.ParseGroupVersion(ref.APIVersion)
	if err != nil {
		return nil, err
	}
	return o.mapper.RESTMappings(schema.GroupKind{Group: gv.Group, Kind: ref.Kind}, gv.Version)
}
