package admission

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	upstream "k8s.io/apiserver/pkg/authorization/authorizer"

	"portico/resource"
	"portico/resource/authz"
	"portico/resource/client"
)

// maxReview bounds the answer to an access review, in bytes.
const maxReview = 1 << 20

// newAuthorizer returns what answers the `authorizer` variable of CEL
// expressions.
func newAuthorizer(e *Engine) upstream.UnconditionalAuthorizer {
	switch {
	case e.cfg.Authorizer != nil:
		return local{e.cfg.Authorizer}
	case e.client != nil:
		return reviewer{e.client}
	}
	return nobody{}
}

// nobody is the authorizer without a gateway.
type nobody struct{}

func (nobody) Authorize(context.Context, upstream.Attributes) (upstream.Decision, string, error) {
	return upstream.DecisionNoOpinion, "", errors.New("there is nobody to ask for authorization")
}

// local is an Authorizer of this process.
type local struct{ authorizer authz.Authorizer }

// Authorize implements UnconditionalAuthorizer.
func (l local) Authorize(ctx context.Context, a upstream.Attributes) (upstream.Decision, string, error) {
	decision, reason, err := l.authorizer.Authorize(ctx, actionOf(a))
	switch decision {
	case authz.Allow:
		return upstream.DecisionAllow, reason, err
	case authz.Deny:
		return upstream.DecisionDeny, reason, err
	}
	return upstream.DecisionNoOpinion, reason, err
}

// actionOf returns the action that an expression authorizes.
func actionOf(a upstream.Attributes) *resource.Action {
	action := &resource.Action{
		Verb: a.GetVerb(), Path: a.GetPath(), IsResource: a.IsResourceRequest(), Group: a.GetAPIGroup(), Version: a.GetAPIVersion(),
		Namespace: a.GetNamespace(), Resource: a.GetResource(), Subresource: a.GetSubresource(), Name: a.GetName(), InPath: a.GetName() != "",
	}
	if u := a.GetUser(); u != nil {
		action.User = &resource.User{Name: u.GetName(), UID: u.GetUID(), Groups: u.GetGroups(), Extra: u.GetExtra()}
	}
	return action
}

// reviewer authorizes by SubjectAccessReviews.
type reviewer struct{ client *client.Client }

// Authorize implements UnconditionalAuthorizer.
func (r reviewer) Authorize(ctx context.Context, a upstream.Attributes) (upstream.Decision, string, error) {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	status, err := r.ask(ctx, reviewOf(a))
	switch {
	case err != nil:
		return upstream.DecisionNoOpinion, "", fmt.Errorf("review access: %w", err)
	case status.Allowed:
		return upstream.DecisionAllow, status.Reason, nil
	case status.Denied:
		return upstream.DecisionDeny, status.Reason, nil
	}
	return upstream.DecisionNoOpinion, status.Reason, nil
}

func (r reviewer) ask(ctx context.Context, review *authorizationv1.SubjectAccessReview) (*authorizationv1.SubjectAccessReviewStatus, error) {
	body, err := json.Marshal(review)
	if err != nil {
		return nil, err
	}
	res, err := r.client.Do(ctx, http.MethodPost, "/apis/authorization.k8s.io/v1/subjectaccessreviews", nil, body)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	answer := &authorizationv1.SubjectAccessReview{}
	if err := json.NewDecoder(io.LimitReader(res.Body, maxReview)).Decode(answer); err != nil {
		return nil, err
	}
	return &answer.Status, nil
}

// reviewOf is the question as a review.
func reviewOf(a upstream.Attributes) *authorizationv1.SubjectAccessReview {
	review := &authorizationv1.SubjectAccessReview{
		TypeMeta: metav1.TypeMeta{APIVersion: authorizationv1.SchemeGroupVersion.String(), Kind: "SubjectAccessReview"},
	}
	spec := &review.Spec
	if u := a.GetUser(); u != nil {
		spec.User, spec.UID, spec.Groups = u.GetName(), u.GetUID(), u.GetGroups()
		spec.Extra = map[string]authorizationv1.ExtraValue{}
		for key, values := range u.GetExtra() {
			spec.Extra[key] = values
		}
	}
	if !a.IsResourceRequest() {
		spec.NonResourceAttributes = &authorizationv1.NonResourceAttributes{Path: a.GetPath(), Verb: a.GetVerb()}
		return review
	}
	spec.ResourceAttributes = &authorizationv1.ResourceAttributes{
		Namespace: a.GetNamespace(), Verb: a.GetVerb(), Group: a.GetAPIGroup(), Version: a.GetAPIVersion(),
		Resource: a.GetResource(), Subresource: a.GetSubresource(), Name: a.GetName(),
	}
	addSelectors(spec.ResourceAttributes, a)
	return review
}

// addSelectors restricts a review by selectors. A selector that cannot be parsed is
// left out: the review then needs a wider right.
func addSelectors(to *authorizationv1.ResourceAttributes, a upstream.Attributes) {
	if requirements, err := a.GetFieldSelector(); err == nil && len(requirements) > 0 {
		to.FieldSelector = &authorizationv1.FieldSelectorAttributes{}
		for _, r := range requirements {
			to.FieldSelector.Requirements = append(to.FieldSelector.Requirements, metav1.FieldSelectorRequirement{
				Key: r.Field, Operator: fieldOperator(string(r.Operator)), Values: []string{r.Value},
			})
		}
	}
	if requirements, err := a.GetLabelSelector(); err == nil && len(requirements) > 0 {
		to.LabelSelector = &authorizationv1.LabelSelectorAttributes{}
		for _, r := range requirements {
			to.LabelSelector.Requirements = append(to.LabelSelector.Requirements, labelRequirement(r.Key(), string(r.Operator()), r.Values().List()))
		}
	}
}

func fieldOperator(op string) metav1.FieldSelectorOperator {
	if op == "!=" {
		return metav1.FieldSelectorOpNotIn
	}
	return metav1.FieldSelectorOpIn
}

func labelRequirement(key, op string, values []string) metav1.LabelSelectorRequirement {
	r := metav1.LabelSelectorRequirement{Key: key, Operator: metav1.LabelSelectorOpIn, Values: values}
	switch op {
	case "!=", "notin":
		r.Operator = metav1.LabelSelectorOpNotIn
	case "exists":
		r.Operator, r.Values = metav1.LabelSelectorOpExists, nil
	case "!":
		r.Operator, r.Values = metav1.LabelSelectorOpDoesNotExist, nil
	}
	return r
}
