package authz

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico/resource"
)

// maxReview bounds the response to an access review, in bytes.
const maxReview = 1 << 20

// Doer is a client of the gateway.
type Doer interface {
	Do(ctx context.Context, method, path string, query url.Values, body []byte) (*http.Response, error)
}

// Ask sends a SubjectAccessReview to the gateway for an action beyond the one that the
// gateway authorized: an update or an apply that creates needs the right to create
// (docs/wire.md 4.7). The error is 403 if it is refused, and 503 if the gateway does not
// answer. A nil gateway refuses. A constrained impersonation needs a second review.
func Ask(ctx context.Context, gateway Doer, a *resource.Action) error {
	err := ask(ctx, gateway, a)
	if on := ImpersonateOn(a); err == nil && on != nil {
		return ask(ctx, gateway, on)
	}
	return err
}

func ask(ctx context.Context, gateway Doer, a *resource.Action) error {
	if gateway == nil {
		return apierrors.NewForbidden(schema.GroupResource{Group: a.Group, Resource: a.Resource}, a.Name,
			fmt.Errorf("the right to %s cannot be checked: this server was started without --gateway", a.Verb))
	}
	body, err := json.Marshal(reviewOf(a))
	if err != nil {
		return fmt.Errorf("encode access review: %w", err)
	}
	res, err := gateway.Do(ctx, http.MethodPost, "/apis/authorization.k8s.io/v1/subjectaccessreviews", nil, body)
	if err != nil {
		return resource.Unavailable(fmt.Sprintf("the gateway cannot be asked whether you may %s: %v", a.Verb, err), 1)
	}
	defer res.Body.Close()
	var review authorizationv1.SubjectAccessReview
	if err := json.NewDecoder(io.LimitReader(res.Body, maxReview)).Decode(&review); err != nil {
		return resource.Unavailable(fmt.Sprintf("the response of the gateway to an access review for %s cannot be read: %v", a.Verb, err), 1)
	}
	if !review.Status.Allowed {
		return Forbidden(a, review.Status.Reason)
	}
	return nil
}

// reviewOf returns the review of an action.
func reviewOf(a *resource.Action) *authorizationv1.SubjectAccessReview {
	review := &authorizationv1.SubjectAccessReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "authorization.k8s.io/v1", Kind: "SubjectAccessReview"},
		Spec: authorizationv1.SubjectAccessReviewSpec{
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Verb: a.Verb, Group: a.Group, Version: a.Version, Resource: a.Resource, Subresource: a.Subresource,
				Namespace: a.Namespace, Name: a.Name,
			},
		},
	}
	if a.User == nil {
		return review
	}
	review.Spec.User, review.Spec.UID, review.Spec.Groups = a.User.Name, a.User.UID, a.User.Groups
	for key, values := range a.User.Extra {
		if review.Spec.Extra == nil {
			review.Spec.Extra = map[string]authorizationv1.ExtraValue{}
		}
		review.Spec.Extra[key] = values
	}
	return review
}
