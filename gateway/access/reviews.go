package access

import (
	"context"
	"errors"
	"net/http"
	"slices"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"portico/resource"
	"portico/resource/authn"
	"portico/resource/rest"
)

// reviews returns the six kinds of reviews, which are not stored (docs/wire.md 7.4, 7.5).
func (a *Access) reviews(scheme *runtime.Scheme) []*rest.Kind {
	row := func(group, res, kind string, namespaced bool, review func(context.Context, runtime.Object) (runtime.Object, error)) *rest.Kind {
		info := resource.Info{Group: group, Versions: []string{"v1"}, Resource: res, Kind: kind, Namespaced: namespaced}
		return &rest.Kind{Info: info, Codec: rest.Typed(scheme, info.GVK("v1")), Review: review}
	}
	authentication, authorization := authenticationv1.GroupName, authorizationv1.GroupName
	return []*rest.Kind{
		row(authentication, "tokenreviews", "TokenReview", false, a.reviewToken),
		row(authentication, "selfsubjectreviews", "SelfSubjectReview", false, a.reviewSelf),
		row(authorization, "subjectaccessreviews", "SubjectAccessReview", false, a.reviewSubject),
		row(authorization, "selfsubjectaccessreviews", "SelfSubjectAccessReview", false, a.reviewSelfAccess),
		row(authorization, "localsubjectaccessreviews", "LocalSubjectAccessReview", true, a.reviewLocal),
		row(authorization, "selfsubjectrulesreviews", "SelfSubjectRulesReview", false, a.reviewRules),
	}
}

// sender returns the user of the request.
func sender(ctx context.Context) (*resource.User, error) {
	act := resource.ActionFrom(ctx)
	if act == nil || act.User == nil {
		return nil, apierrors.NewInternalError(errors.New("the review has no user"))
	}
	return act.User, nil
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

// reviewToken returns the user of a bearer token and the wanted audiences that it has.
func (a *Access) reviewToken(ctx context.Context, obj runtime.Object) (runtime.Object, error) {
	review := obj.(*authenticationv1.TokenReview)
	if review.Spec.Token == "" {
		return nil, apierrors.NewBadRequest("token is required for TokenReview in authentication")
	}
	audiences := &authn.Audiences{Wanted: review.Spec.Audiences}
	if len(audiences.Wanted) == 0 {
		audiences.Wanted = a.cfg.Audiences
	}
	req, err := http.NewRequestWithContext(authn.WithAudiences(blank{ctx}, audiences), http.MethodGet, "/", nil)
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	req.Header.Set("Authorization", "Bearer "+review.Spec.Token)
	review.Status = authenticationv1.TokenReviewStatus{}
	user, ok, err := a.cfg.Authenticator.Authenticate(req)
	switch {
	case err != nil:
		review.Status.Error = err.Error()
		return review, nil
	case !ok || user.Name == resource.Anonymous:
		return review, nil
	}
	matched := audiences.Matched
	if matched == nil {
		// A token without audiences is for this server only.
		matched = intersect(audiences.Wanted, a.cfg.Audiences)
		if len(matched) == 0 && len(audiences.Wanted) > 0 {
			return review, nil
		}
	}
	review.Status.Authenticated, review.Status.User, review.Status.Audiences = true, userInfo(authn.WithAuthenticated(user)), matched
	return review, nil
}

// blank is a context without the values of its parent: the connection of the request must not
// authenticate the token.
type blank struct{ context.Context }

func (blank) Value(any) any { return nil }

func intersect(a, b []string) (both []string) {
	for _, s := range a {
		if slices.Contains(b, s) {
			both = append(both, s)
		}
	}
	return both
}

// reviewSelf returns the user of the request as it was authenticated.
func (a *Access) reviewSelf(ctx context.Context, obj runtime.Object) (runtime.Object, error) {
	review := obj.(*authenticationv1.SelfSubjectReview)
	user, err := sender(ctx)
	if err != nil {
		return nil, err
	}
	review.CreationTimestamp = metav1.Now()
	review.Status.UserInfo = userInfo(user)
	return review, nil
}
