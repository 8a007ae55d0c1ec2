package kinds

import (
	"context"
	"errors"
	"fmt"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico/resource"
	"portico/resource/authz"
	"portico/resource/rest"
)

// Rights beyond the one that the gateway checked. Each is a field error where kube-apiserver has
// one; admission plugins check others. A gateway that does not answer refuses the write.

// Permissions are what rows need to check rights.
type Permissions struct {
	// Authorize asks the gateway about an action: nil, or a StatusError. nil: every action
	// is refused.
	Authorize func(ctx context.Context, a *resource.Action) error
	// ResourceOf returns the resource of a kind, of any server. nil: none is known.
	ResourceOf func(ctx context.Context, gvk schema.GroupVersionKind) (string, error)
	// Get reads the latest state of an object without a namespace. nil: there is none.
	Get func(ctx context.Context, group, res, name string) (rest.Object, error)
}

func (p Permissions) authorize(ctx context.Context, a *resource.Action) error {
	if p.Authorize == nil {
		return authz.Forbidden(a, "this server has no authorizer")
	}
	return p.Authorize(ctx, a)
}

// requester returns the user of a request; one without rights if there is none.
func requester(ctx context.Context) *resource.User {
	if a := resource.ActionFrom(ctx); a != nil && a.User != nil {
		return a.User
	}
	return &resource.User{Name: resource.Anonymous, Groups: []string{resource.GroupUnauthenticated}}
}

// denied returns the field error of an error of an authorizer.
func denied(path *field.Path, err error, message string) field.ErrorList {
	switch {
	case err == nil:
		return nil
	case apierrors.IsForbidden(err):
		return field.ErrorList{field.Forbidden(path, message)}
	}
	return field.ErrorList{field.InternalError(path, err)}
}

// signer requires the right to do verb for a signer of certificates.
func (p Permissions) signer(ctx context.Context, verb, signer string) field.ErrorList {
	user := requester(ctx)
	err := authz.AskSigner(ctx, p.authorize, user, verb, signer)
	return denied(field.NewPath("spec", "signerName"), err, fmt.Sprintf("User %q is not permitted to %q for signer %q", user.Name, verb, signer))
}

// paramKind requires that the author of an admission policy may read all objects of the kind of
// its parameters, which its expressions can disclose. was is that of the stored policy.
func (p Permissions) paramKind(ctx context.Context, kind, was *admissionregistrationv1.ParamKind) field.ErrorList {
	user := requester(ctx)
	if kind == nil || was != nil && *was == *kind || slices.Contains(user.Groups, resource.GroupMasters) {
		return nil
	}
	a := &resource.Action{User: user, Verb: "get", IsResource: true, Namespace: "*", Name: "*", InPath: true}
	_ = p.target(ctx, a, kind) // what is unknown is everything
	return denied(field.NewPath("spec", "paramKind"), p.authorize(ctx, a),
		fmt.Sprintf(`user %v must have "get" permission on all objects of the referenced paramKind (kind=%s, apiVersion=%s)`, user, kind.Kind, kind.APIVersion))
}

// paramRef requires that the author of a binding may read the parameters that it refers to. The
// policy, which is read from policies, names their kind.
func (p Permissions) paramRef(ctx context.Context, ref *admissionregistrationv1.ParamRef, policies, policy string) field.ErrorList {
	user := requester(ctx)
	if ref == nil || slices.Contains(user.Groups, resource.GroupMasters) {
		return nil
	}
	a := &resource.Action{User: user, Verb: "get", IsResource: true, Namespace: ref.Namespace, Name: ref.Name, InPath: ref.Name != ""}
	if ref.Name == "" {
		a.Verb = "list"
	}
	kind, err := p.paramKindOf(ctx, policies, policy)
	why := fmt.Sprintf("unable to get policy %s to determine", policy)
	if err == nil {
		err = p.target(ctx, a, kind)
		why = fmt.Sprintf("unable to resolve paramKind %v to determine", kind)
	} else {
		a.Group, a.Version, a.Resource = "*", "*", "*"
	}
	message := fmt.Sprintf(`user %v does not have %q permission on the object referenced by paramRef`, user, a.Verb)
	if err != nil {
		message = fmt.Sprintf(`%s minimum required permissions and user %v does not have %q permission for all groups, versions and resources`, why, user, a.Verb)
	}
	return denied(field.NewPath("spec", "paramRef"), p.authorize(ctx, a), message)
}

// paramKindOf returns the kind of the parameters of a stored policy; nil if it has none.
func (p Permissions) paramKindOf(ctx context.Context, policies, name string) (*admissionregistrationv1.ParamKind, error) {
	if p.Get == nil {
		return nil, errors.New("policies cannot be read")
	}
	o, err := p.Get(ctx, admissionregistrationv1.GroupName, policies, name)
	if err != nil {
		return nil, err
	}
	switch o := o.(type) {
	case *admissionregistrationv1.ValidatingAdmissionPolicy:
		return o.Spec.ParamKind, nil
	case *admissionregistrationv1.MutatingAdmissionPolicy:
		return o.Spec.ParamKind, nil
	}
	return nil, fmt.Errorf("a policy cannot be a %T", o)
}

// target sets the group, version and resource of an action to those of a kind; to "*" as far as
// they are unknown, with the error of a kind that is not found.
func (p Permissions) target(ctx context.Context, a *resource.Action, kind *admissionregistrationv1.ParamKind) error {
	a.Group, a.Version, a.Resource = "*", "*", "*"
	if kind == nil {
		return nil
	}
	gv, err := schema.ParseGroupVersion(kind.APIVersion)
	if err != nil {
		return err
	}
	a.Group, a.Version = gv.Group, gv.Version
	if p.ResourceOf == nil {
		return errors.New("kinds cannot be looked up")
	}
	res, err := p.ResourceOf(ctx, gv.WithKind(kind.Kind))
	if err == nil {
		a.Resource = res
	}
	return err
}

// checkThen validates the rules of a kind on create, and rights if they are met.
func checkThen[T rest.Object](f func(obj T) field.ErrorList, then func(ctx context.Context, obj T) field.ErrorList) func(context.Context, rest.Object) field.ErrorList {
	return func(ctx context.Context, obj rest.Object) field.ErrorList {
		if errs := f(obj.(T)); len(errs) > 0 {
			return errs
		}
		return then(ctx, obj.(T))
	}
}

// checkUpdateThen is checkThen for updates.
func checkUpdateThen[T rest.Object](f func(obj, old T) field.ErrorList, then func(ctx context.Context, obj, old T) field.ErrorList) func(context.Context, rest.Object, rest.Object) field.ErrorList {
	return func(ctx context.Context, obj, old rest.Object) field.ErrorList {
		if errs := f(obj.(T), old.(T)); len(errs) > 0 {
			return errs
		}
		return then(ctx, obj.(T), old.(T))
	}
}
