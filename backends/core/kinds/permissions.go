package kinds

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/kubernetes/pkg/apis/admissionregistration"
	"k8s.io/kubernetes/pkg/registry/admissionregistration/resolver"

	"portico/resource"
	"portico/resource/authz"
	"portico/resource/rest"
)

// Permissions are what strategies need to check rights beyond the one that the gateway checked. A gateway that does not
// answer refuses the write.
type Permissions struct {
	// Authorize asks the gateway about an action: nil, or a StatusError. nil: every action
	// is refused.
	Authorize func(ctx context.Context, a *resource.Action) error
	// ResourceOf returns the resource of a kind, of any server. nil: none is known.
	ResourceOf func(ctx context.Context, gvk schema.GroupVersionKind) (string, error)
	// Get reads the latest state of an object without a namespace. nil: there is none.
	Get func(ctx context.Context, group, res, name string) (rest.Object, error)
}

// resolveTimeout bounds the search for the resource of a kind, which strategies start without a context.
const resolveTimeout = 5 * time.Second

// requester returns the user of a request; one without rights if there is none.
func requester(ctx context.Context) *resource.User {
	if a := resource.ActionFrom(ctx); a != nil && a.User != nil {
		return a.User
	}
	return &resource.User{Name: resource.Anonymous, Groups: []string{resource.GroupUnauthenticated}}
}

// authorizer returns the authorizer of strategies.
func (p Permissions) authorizer() authorizer.UnconditionalAuthorizer { return gatewayAuthorizer{p} }

// gatewayAuthorizer decides about the user of the request in the context, whose rights a resource.Constraint may limit.
type gatewayAuthorizer struct{ Permissions }

// Authorize implements authorizer.UnconditionalAuthorizer.
func (g gatewayAuthorizer) Authorize(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	act := &resource.Action{
		User: requester(ctx), Verb: a.GetVerb(), IsResource: true, Group: a.GetAPIGroup(), Version: a.GetAPIVersion(),
		Resource: a.GetResource(), Subresource: a.GetSubresource(), Namespace: a.GetNamespace(), Name: a.GetName(), InPath: a.GetName() != "",
	}
	err := authz.Forbidden(act, "this server has no authorizer")
	if g.Permissions.Authorize != nil {
		err = g.Permissions.Authorize(ctx, act)
	}
	switch {
	case err == nil:
		return authorizer.DecisionAllow, "", nil
	case apierrors.IsForbidden(err):
		return authorizer.DecisionNoOpinion, err.Error(), nil
	}
	return authorizer.DecisionNoOpinion, "", err
}

// resolver returns a resolver of the resources of kinds.
func (p Permissions) resolver() resolver.ResourceResolver {
	return resolver.ResourceResolverFunc(func(gvk schema.GroupVersionKind) (schema.GroupVersionResource, error) {
		if p.ResourceOf == nil {
			return schema.GroupVersionResource{}, errors.New("kinds cannot be looked up")
		}
		ctx, cancel := context.WithTimeout(context.Background(), resolveTimeout)
		defer cancel()
		res, err := p.ResourceOf(ctx, gvk)
		return gvk.GroupVersion().WithResource(res), err
	})
}

// policyGetter reads the policies of bindings for strategies.
type policyGetter struct{ Permissions }

// GetValidatingAdmissionPolicy returns the policy of that name.
func (g policyGetter) GetValidatingAdmissionPolicy(ctx context.Context, name string) (*admissionregistration.ValidatingAdmissionPolicy, error) {
	return readPolicy[*admissionregistration.ValidatingAdmissionPolicy](ctx, g.Permissions, "validatingadmissionpolicies", name)
}

// GetMutatingAdmissionPolicy returns the policy of that name.
func (g policyGetter) GetMutatingAdmissionPolicy(ctx context.Context, name string) (*admissionregistration.MutatingAdmissionPolicy, error) {
	return readPolicy[*admissionregistration.MutatingAdmissionPolicy](ctx, g.Permissions, "mutatingadmissionpolicies", name)
}

// readPolicy reads a policy, and converts it to the internal type T.
func readPolicy[T any](ctx context.Context, p Permissions, policies, name string) (T, error) {
	var none T
	if p.Get == nil {
		return none, errors.New("policies cannot be read")
	}
	obj, err := p.Get(ctx, admissionregistration.GroupName, policies, name)
	if err != nil {
		return none, err
	}
	in, err := Internal(obj)
	if err != nil {
		return none, err
	}
	typed, ok := in.(T)
	if !ok {
		return none, fmt.Errorf("read %s %s: unexpected type %T", policies, name, obj)
	}
	return typed, nil
}
