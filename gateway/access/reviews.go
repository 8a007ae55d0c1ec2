package access

import (
	"context"
	"net/http"
	"slices"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico/resource"
	"portico/resource/authn"
	"portico/resource/authz"
	"portico/resource/rest"
)

// reviews returns the rows of the six virtual kinds: questions that are
// answered and never stored (contract 7.4, 7.5).
func (a *Access) reviews(scheme *runtime.Scheme) []*rest.Kind {
	row := func(group, res, kind string, namespaced bool, review func(context.Context, runtime.Object) (runtime.Object, error)) *rest.Kind {
		info := resource.Info{Group: group, Versions: []string{"v1"}, Resource: res, Kind: kind, Namespaced: namespaced}
		return &rest.Kind{Info: info, Codec: rest.Typed(scheme, info.GVK("v1")), Review: review}
	}
	who, may := authenticationv1.GroupName, authorizationv1.GroupName
	return []*rest.Kind{
		row(who, "tokenreviews", "TokenReview", false, a.reviewToken),
		row(who, "selfsubjectreviews", "SelfSubjectReview", false, a.reviewSelf),
		row(may, "subjectaccessreviews", "SubjectAccessReview", false, a.reviewSubject),
		row(may, "selfsubjectaccessreviews", "SelfSubjectAccessReview", false, a.reviewSelfAccess),
		row(may, "localsubjectaccessreviews", "LocalSubjectAccessReview", true, a.reviewLocal),
		row(may, "selfsubjectrulesreviews", "SelfSubjectRulesReview", false, a.reviewRules),
	}
}

func userInfo(u *resource.User) authenticationv1.UserInfo {
	info := authenticationv1.UserInfo{Username: u.Name, UID: u.UID, Groups: u.Groups}
	if len(u.Extra) > 0 {
		info.Extra = map[string]authenticationv1.ExtraValue{}
		for k, v := range u.Extra {
			info.Extra[k] = v
		}
	}
	return info
}

// reviewToken tells whose a bearer token is.
func (a *Access) reviewToken(ctx context.Context, obj runtime.Object) (runtime.Object, error) {
	review := obj.(*authenticationv1.TokenReview)
	if review.Spec.Token == "" {
		return nil, apierrors.NewBadRequest("token is required for TokenReview in authentication")
	}
	audiences := &authn.Audiences{Wanted: review.Spec.Audiences}
	if len(audiences.Wanted) == 0 {
		audiences.Wanted = a.cfg.Audiences
	}
	req, err := http.NewRequestWithContext(authn.WithAudiences(ctx, audiences), http.MethodGet, "/", nil)
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	req.Header.Set("Authorization", "Bearer "+review.Spec.Token)
	review.Status = authenticationv1.TokenReviewStatus{}
	user, ok, err := a.cfg.Authenticator.Authenticate(req)
	switch {
	case err != nil:
		review.Status.Error = err.Error()
	case ok && user.Name != resource.Anonymous:
		review.Status.Authenticated, review.Status.User = true, userInfo(authenticated(user))
		review.Status.Audiences = audiences.Matched
		if len(review.Spec.Audiences) == 0 && len(review.Status.Audiences) == 0 {
			review.Status.Audiences = a.cfg.Audiences
		}
	}
	return review, nil
}

// authenticated returns the user with the group of everybody who is.
func authenticated(u *resource.User) *resource.User {
	if slices.Contains(u.Groups, resource.GroupAuthenticated) || slices.Contains(u.Groups, resource.GroupUnauthenticated) {
		return u
	}
	out := *u
	out.Groups = append(slices.Clone(u.Groups), resource.GroupAuthenticated)
	return &out
}

func (a *Access) reviewSelf(ctx context.Context, obj runtime.Object) (runtime.Object, error) {
	review := obj.(*authenticationv1.SelfSubjectReview)
	review.Status.UserInfo = userInfo(resource.ActionFrom(ctx).User)
	return review, nil
}

// checkAttributes requires exactly one of the two forms of a question.
func checkAttributes(kind string, res *authorizationv1.ResourceAttributes, url *authorizationv1.NonResourceAttributes) error {
	spec := field.NewPath("spec")
	var errs field.ErrorList
	switch {
	case res != nil && url != nil:
		errs = append(errs, field.Invalid(spec.Child("nonResourceAttributes"), url, "cannot be specified in combination with resourceAttributes"))
	case res == nil && url == nil:
		errs = append(errs, field.Invalid(spec.Child("resourceAttributes"), res, "exactly one of nonResourceAttributes or resourceAttributes must be specified"))
	}
	if len(errs) == 0 {
		return nil
	}
	return apierrors.NewInvalid(authorizationv1.SchemeGroupVersion.WithKind(kind).GroupKind(), "", errs)
}

// decide answers a question about a user.
func (a *Access) decide(ctx context.Context, u *resource.User, res *authorizationv1.ResourceAttributes, url *authorizationv1.NonResourceAttributes) authorizationv1.SubjectAccessReviewStatus {
	act := &resource.Action{User: u}
	if res != nil {
		act.IsResource, act.InPath = true, res.Name != ""
		act.Verb, act.Group, act.Version = res.Verb, res.Group, res.Version
		act.Namespace, act.Resource, act.Subresource, act.Name = res.Namespace, res.Resource, res.Subresource, res.Name
	} else {
		act.Verb, act.Path = url.Verb, url.Path
	}
	decision, reason, err := a.Authorize(ctx, act)
	status := authorizationv1.SubjectAccessReviewStatus{
		Allowed: decision == authz.Allow, Denied: decision == authz.Deny, Reason: reason,
	}
	if err != nil {
		status.EvaluationError = err.Error()
	}
	return status
}

func subjectOf(spec *authorizationv1.SubjectAccessReviewSpec) *resource.User {
	u := &resource.User{Name: spec.User, UID: spec.UID, Groups: spec.Groups}
	if len(spec.Extra) > 0 {
		u.Extra = map[string][]string{}
		for k, v := range spec.Extra {
			u.Extra[k] = v
		}
	}
	return u
}

func checkSubject(kind string, spec *authorizationv1.SubjectAccessReviewSpec) error {
	if err := checkAttributes(kind, spec.ResourceAttributes, spec.NonResourceAttributes); err != nil {
		return err
	}
	if spec.User == "" && len(spec.Groups) == 0 {
		return apierrors.NewInvalid(authorizationv1.SchemeGroupVersion.WithKind(kind).GroupKind(), "", field.ErrorList{
			field.Invalid(field.NewPath("spec", "user"), spec.User, "at least one of user or group must be specified"),
		})
	}
	return nil
}

func (a *Access) reviewSubject(ctx context.Context, obj runtime.Object) (runtime.Object, error) {
	review := obj.(*authorizationv1.SubjectAccessReview)
	if err := checkSubject("SubjectAccessReview", &review.Spec); err != nil {
		return nil, err
	}
	review.Status = a.decide(ctx, subjectOf(&review.Spec), review.Spec.ResourceAttributes, review.Spec.NonResourceAttributes)
	return review, nil
}

func (a *Access) reviewSelfAccess(ctx context.Context, obj runtime.Object) (runtime.Object, error) {
	review := obj.(*authorizationv1.SelfSubjectAccessReview)
	if err := checkAttributes("SelfSubjectAccessReview", review.Spec.ResourceAttributes, review.Spec.NonResourceAttributes); err != nil {
		return nil, err
	}
	review.Status = a.decide(ctx, resource.ActionFrom(ctx).User, review.Spec.ResourceAttributes, review.Spec.NonResourceAttributes)
	return review, nil
}

func (a *Access) reviewLocal(ctx context.Context, obj runtime.Object) (runtime.Object, error) {
	review := obj.(*authorizationv1.LocalSubjectAccessReview)
	if err := checkSubject("LocalSubjectAccessReview", &review.Spec); err != nil {
		return nil, err
	}
	attrs := review.Spec.ResourceAttributes
	if attrs == nil {
		return nil, apierrors.NewInvalid(authorizationv1.SchemeGroupVersion.WithKind("LocalSubjectAccessReview").GroupKind(), "", field.ErrorList{
			field.Invalid(field.NewPath("spec", "nonResourceAttributes"), review.Spec.NonResourceAttributes, "disallowed on this kind of request"),
		})
	}
	if ns := resource.ActionFrom(ctx).Namespace; attrs.Namespace != ns {
		return nil, apierrors.NewInvalid(authorizationv1.SchemeGroupVersion.WithKind("LocalSubjectAccessReview").GroupKind(), "", field.ErrorList{
			field.Invalid(field.NewPath("spec", "resourceAttributes", "namespace"), attrs.Namespace, "must match metadata.namespace: "+ns),
		})
	}
	review.Status = a.decide(ctx, subjectOf(&review.Spec), attrs, nil)
	return review, nil
}

// reviewRules lists what the requester may do in a namespace.
func (a *Access) reviewRules(ctx context.Context, obj runtime.Object) (runtime.Object, error) {
	review := obj.(*authorizationv1.SelfSubjectRulesReview)
	if review.Spec.Namespace == "" {
		return nil, apierrors.NewBadRequest("no namespace on request")
	}
	user := resource.ActionFrom(ctx).User
	review.Status = authorizationv1.SubjectRulesReviewStatus{
		ResourceRules: []authorizationv1.ResourceRule{}, NonResourceRules: []authorizationv1.NonResourceRule{},
	}
	var rules []rbacv1.PolicyRule
	if slices.Contains(user.Groups, resource.GroupMasters) {
		rules = everything()
	} else if idx := a.index.Load(); idx != nil {
		var missing []error
		rules, missing = idx.rules(user, review.Spec.Namespace)
		for _, err := range missing {
			review.Status.EvaluationError += err.Error() + "\n"
		}
	}
	for _, r := range rules {
		if len(r.Resources) > 0 {
			review.Status.ResourceRules = append(review.Status.ResourceRules, authorizationv1.ResourceRule{
				Verbs: r.Verbs, APIGroups: r.APIGroups, Resources: r.Resources, ResourceNames: r.ResourceNames,
			})
		}
		if len(r.NonResourceURLs) > 0 {
			review.Status.NonResourceRules = append(review.Status.NonResourceRules, authorizationv1.NonResourceRule{
				Verbs: r.Verbs, NonResourceURLs: r.NonResourceURLs,
			})
		}
	}
	return review, nil
}
