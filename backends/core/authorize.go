package core

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico/resource"
	"portico/resource/authz"
)

// maxReview bounds the answer to an access review.
const maxReview = 1 << 20

// authorize asks the gateway whether the user may also do something else than
// the gateway has authorized for the request: a PUT that finds nothing creates,
// which needs the right to create (contract 4.7). Who cannot be asked has not
// agreed.
func (c *Core) authorize(ctx context.Context, a *resource.Action) error {
	if c.drain.gateway == nil {
		return apierrors.NewForbidden(schema.GroupResource{Group: a.Group, Resource: a.Resource}, a.Name, errors.New("creating by update needs the gateway's consent, and this server was started without --gateway"))
	}
	review := &authorizationv1.SubjectAccessReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "authorization.k8s.io/v1", Kind: "SubjectAccessReview"},
		Spec: authorizationv1.SubjectAccessReviewSpec{
			User: a.User.Name, UID: a.User.UID, Groups: a.User.Groups,
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Verb: a.Verb, Group: a.Group, Version: a.Version, Resource: a.Resource, Subresource: a.Subresource,
				Namespace: a.Namespace, Name: a.Name,
			},
		},
	}
	for key, values := range a.User.Extra {
		if review.Spec.Extra == nil {
			review.Spec.Extra = map[string]authorizationv1.ExtraValue{}
		}
		review.Spec.Extra[key] = values
	}
	body, err := json.Marshal(review)
	if err != nil {
		return fmt.Errorf("encode access review: %w", err)
	}
	res, err := c.drain.gateway.Do(ctx, http.MethodPost, "/apis/authorization.k8s.io/v1/subjectaccessreviews", nil, body)
	if err != nil {
		return resource.Unavailable(fmt.Sprintf("the gateway could not be asked whether you may %s: %v", a.Verb, err), 1)
	}
	defer res.Body.Close()
	if err := json.NewDecoder(io.LimitReader(res.Body, maxReview)).Decode(review); err != nil {
		return resource.Unavailable(fmt.Sprintf("the gateway's answer whether you may %s could not be read: %v", a.Verb, err), 1)
	}
	if !review.Status.Allowed {
		return authz.Forbidden(a, review.Status.Reason)
	}
	return nil
}
