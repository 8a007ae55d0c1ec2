package access

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico/resource"
	"portico/resource/authz"
)

// The messages of the validation are those of kubernetes pkg/apis/authorization/validation.

func validateLocal(review *authorizationv1.LocalSubjectAccessReview) field.ErrorList {
	errs := validateSubjectSpec(&review.Spec)
	meta := review.ObjectMeta
	meta.Namespace = ""
	errs = append(errs, mustBeEmpty(meta, "must be empty except for namespace")...)
	spec := field.NewPath("spec")
	if res := review.Spec.ResourceAttributes; res != nil && res.Namespace != review.Namespace {
		errs = append(errs, field.Invalid(spec.Child("resourceAttributes", "namespace"), res.Namespace, "must match metadata.namespace"))
	}
	if review.Spec.NonResourceAttributes != nil {
		errs = append(errs, field.Invalid(spec.Child("nonResourceAttributes"), review.Spec.NonResourceAttributes, "disallowed on this kind of request"))
	}
	return errs
}

// invalid returns a 422 with the errors; nil without errors.
func invalid(kind string, errs field.ErrorList) error {
	if len(errs) == 0 {
		return nil
	}
	return apierrors.NewInvalid(schema.GroupKind{Group: authorizationv1.GroupName, Kind: kind}, "", errs)
}

func mustBeEmpty(meta metav1.ObjectMeta, message string) field.ErrorList {
	meta.ManagedFields = nil
	if apiequality.Semantic.DeepEqual(metav1.ObjectMeta{}, meta) {
		return nil
	}
	return field.ErrorList{field.Invalid(field.NewPath("metadata"), meta, message)}
}

func validateSubjectSpec(spec *authorizationv1.SubjectAccessReviewSpec) field.ErrorList {
	errs := validateAttributes(spec.ResourceAttributes, spec.NonResourceAttributes)
	if spec.User == "" && len(spec.Groups) == 0 {
		errs = append(errs, field.Invalid(field.NewPath("spec", "user"), spec.User, "at least one of user or group must be specified"))
	}
	return errs
}

// validateAttributes requires either resource or non-resource attributes.
func validateAttributes(res *authorizationv1.ResourceAttributes, url *authorizationv1.NonResourceAttributes) (errs field.ErrorList) {
	spec := field.NewPath("spec")
	switch {
	case res != nil && url != nil:
		errs = append(errs, field.Invalid(spec.Child("nonResourceAttributes"), url, "cannot be specified in combination with resourceAttributes"))
	case res == nil && url == nil:
		errs = append(errs, field.Invalid(spec.Child("resourceAttributes"), res, "exactly one of nonResourceAttributes or resourceAttributes must be specified"))
	}
	if res == nil {
		return errs
	}
	if s := res.FieldSelector; s != nil {
		errs = append(errs, validateSelector(spec.Child("resourceAttributes", "fieldSelector"), s.RawSelector, len(s.Requirements))...)
	}
	if s := res.LabelSelector; s != nil {
		errs = append(errs, validateSelector(spec.Child("resourceAttributes", "labelSelector"), s.RawSelector, len(s.Requirements))...)
	}
	return errs
}

// validateSelector requires either a raw selector or requirements.
func validateSelector(at *field.Path, raw string, requirements int) field.ErrorList {
	switch {
	case raw != "" && requirements > 0:
		return field.ErrorList{field.Invalid(at.Child("rawSelector"), raw, "may not specified at the same time as requirements")}
	case raw == "" && requirements == 0:
		return field.ErrorList{field.Required(at.Child("requirements"), fmt.Sprintf("when %s is specified, requirements or rawSelector is required", at))}
	}
	return nil
}

// decide returns the status of an access review of a user.
func (a *Access) decide(ctx context.Context, u *resource.User, res *authorizationv1.ResourceAttributes, url *authorizationv1.NonResourceAttributes) authorizationv1.SubjectAccessReviewStatus {
	act := &resource.Action{User: u}
	var problems []string
	if res != nil {
		act.IsResource, act.InPath = true, res.Name != ""
		act.Verb, act.Group, act.Version = res.Verb, res.Group, res.Version
		act.Namespace, act.Resource, act.Subresource, act.Name = res.Namespace, res.Resource, res.Subresource, res.Name
		act.Version = cmp.Or(act.Version, "*")
		problems = selectorsOf(act, res)
	} else {
		act.Verb, act.Path = url.Verb, url.Path
	}
	decision, reason, err := a.cfg.Chain().Authorize(ctx, act)
	if err != nil {
		problems = slices.Insert(problems, 0, err.Error())
	}
	return authorizationv1.SubjectAccessReviewStatus{
		Allowed: decision == authz.Allow, Denied: decision == authz.Deny, Reason: reason, EvaluationError: strings.Join(problems, "; "),
	}
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

func (a *Access) reviewSubject(ctx context.Context, obj runtime.Object) (runtime.Object, error) {
	review := obj.(*authorizationv1.SubjectAccessReview)
	errs := append(validateSubjectSpec(&review.Spec), mustBeEmpty(review.ObjectMeta, "must be empty")...)
	if err := invalid("SubjectAccessReview", errs); err != nil {
		return nil, err
	}
	review.Status = a.decide(ctx, subjectOf(&review.Spec), review.Spec.ResourceAttributes, review.Spec.NonResourceAttributes)
	return review, nil
}

func (a *Access) reviewSelfAccess(ctx context.Context, obj runtime.Object) (runtime.Object, error) {
	review := obj.(*authorizationv1.SelfSubjectAccessReview)
	user, err := sender(ctx)
	if err != nil {
		return nil, err
	}
	errs := append(validateAttributes(review.Spec.ResourceAttributes, review.Spec.NonResourceAttributes), mustBeEmpty(review.ObjectMeta, "must be empty")...)
	if err := invalid("SelfSubjectAccessReview", errs); err != nil {
		return nil, err
	}
	review.Status = a.decide(ctx, user, review.Spec.ResourceAttributes, review.Spec.NonResourceAttributes)
	return review, nil
}

func (a *Access) reviewLocal(ctx context.Context, obj runtime.Object) (runtime.Object, error) {
	review := obj.(*authorizationv1.LocalSubjectAccessReview)
	if act := resource.ActionFrom(ctx); act != nil {
		if review.Namespace != "" && review.Namespace != act.Namespace {
			return nil, apierrors.NewBadRequest("the namespace of the provided object does not match the namespace sent on the request")
		}
		review.Namespace = act.Namespace
	}
	if err := invalid("LocalSubjectAccessReview", validateLocal(review)); err != nil {
		return nil, err
	}
	review.Status = a.decide(ctx, subjectOf(&review.Spec), review.Spec.ResourceAttributes, nil)
	return review, nil
}

// reviewRules returns the rules of the user of the request in a namespace.
func (a *Access) reviewRules(ctx context.Context, obj runtime.Object) (runtime.Object, error) {
	review := obj.(*authorizationv1.SelfSubjectRulesReview)
	if review.Spec.Namespace == "" {
		return nil, apierrors.NewBadRequest("no namespace on request")
	}
	user, err := sender(ctx)
	if err != nil {
		return nil, err
	}
	review.Status = authorizationv1.SubjectRulesReviewStatus{
		ResourceRules: []authorizationv1.ResourceRule{}, NonResourceRules: []authorizationv1.NonResourceRule{},
	}
	rules := authz.Everything()
	if !isMaster(user) {
		if rules, review.Status.Incomplete, err = a.cfg.Chain().RulesFor(ctx, user, review.Spec.Namespace); err != nil {
			review.Status.EvaluationError = err.Error()
		}
	}
	fill(&review.Status, rules)
	return review, nil
}

func fill(status *authorizationv1.SubjectRulesReviewStatus, rules []rbacv1.PolicyRule) {
	for _, r := range rules {
		if len(r.Resources) > 0 {
			status.ResourceRules = append(status.ResourceRules, authorizationv1.ResourceRule{
				Verbs: r.Verbs, APIGroups: r.APIGroups, Resources: r.Resources, ResourceNames: r.ResourceNames,
			})
		}
		if len(r.NonResourceURLs) > 0 {
			status.NonResourceRules = append(status.NonResourceRules, authorizationv1.NonResourceRule{
				Verbs: r.Verbs, NonResourceURLs: r.NonResourceURLs,
			})
		}
	}
}
