package core

import (
	"context"
	"fmt"
	"slices"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico/resource"
	"portico/resource/authn"
	"portico/resource/rest"
	"portico/resource/serve/filter"
)

// Bounds of a token's lifetime, in seconds (docs/wire.md 7.4).
const (
	minLife = 600
	maxLife = 1 << 32
	// extendedFrom is the lifetime that admission asks for in the volume of a pod. Clients
	// that read the file once, as they did when tokens had no end, keep the token until
	// extendedTo.
	extendedFrom = 3607
	extendedTo   = 365 * 24 * 3600
)

// DefaultMaxTokenExpiration and MinMaxTokenExpiration are the default and the minimum of
// Config.MaxTokenExpiration; the maximum is 2^32 s.
const (
	DefaultMaxTokenExpiration = 365 * 24 * time.Hour
	MinMaxTokenExpiration     = time.Hour
)

// maxTokenExpiration returns MaxTokenExpiration or its default; an error if it is out of
// bounds.
func (cfg *Config) maxTokenExpiration() (time.Duration, error) {
	longest := cfg.MaxTokenExpiration
	if longest == 0 {
		return DefaultMaxTokenExpiration, nil
	}
	if longest < MinMaxTokenExpiration || longest > maxLife*time.Second {
		return 0, fmt.Errorf("the maximum lifetime of service-account tokens is %v and must be between %v and 2^32 seconds", longest, MinMaxTokenExpiration)
	}
	return longest, nil
}

// tokens serves serviceaccounts/token.
type tokens struct {
	signer    *authn.Signer
	audiences []string
	longest   int64 // lifetime in seconds; longer ones are shortened
	extends   bool  // tokens of pods for extendedFrom live for extendedTo
	find      func(group, res string) *rest.Resource
	now       func() time.Time
}

// create creates a token for a service account.
func (t *tokens) create(ctx context.Context, key resource.Key, body runtime.Object, dryRun bool) (runtime.Object, error) {
	req, ok := body.(*authenticationv1.TokenRequest)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("expected a TokenRequest, got %T", body))
	}
	account, err := t.find("", "serviceaccounts").Store.Get(ctx, key, resource.At{})
	if err != nil {
		return nil, err
	}
	if uid := string(req.UID); uid != "" && uid != account.UID {
		return nil, apierrors.NewConflict(schema.GroupResource{Group: authenticationv1.GroupName, Resource: tokenRequest.Kind}, key.Name,
			fmt.Errorf("the UID in the token request (%s) does not match the UID of the service account (%s)", uid, account.UID))
	}
	if err := t.complete(ctx, req); err != nil {
		return nil, err
	}
	bound, node, err := t.bind(ctx, key, req.Spec.BoundObjectRef)
	if err != nil {
		return nil, err
	}
	now := t.now().Truncate(time.Second)
	expires := now.Add(time.Duration(*req.Spec.ExpirationSeconds) * time.Second)
	req.Name, req.Namespace, req.UID, req.CreationTimestamp = key.Name, key.Namespace, types.UID(account.UID), metav1.NewTime(now)
	req.Status = authenticationv1.TokenRequestStatus{ExpirationTimestamp: metav1.NewTime(expires)}
	if dryRun {
		return req, nil
	}
	claims := authn.TokenClaims{
		Namespace: key.Namespace, Name: key.Name, UID: account.UID,
		Audiences: req.Spec.Audiences, IssuedAt: now, Expires: expires, Bound: bound, Node: node,
	}
	if t.extended(req) {
		claims.WarnAfter, claims.Expires = expires, now.Add(extendedTo*time.Second)
	}
	req.Status.Token, err = t.signer.Sign(ctx, claims)
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	return req, nil
}

// tokenRequest is the kind of requests.
var tokenRequest = authenticationv1.SchemeGroupVersion.WithKind("TokenRequest")

// extended reports whether the token lives longer than requested, with a note where it is used
// later than that.
func (t *tokens) extended(req *authenticationv1.TokenRequest) bool {
	own := func(audience string) bool { return slices.Contains(t.audiences, audience) }
	ref := req.Spec.BoundObjectRef
	return t.extends && ref != nil && ref.Kind == "Pod" && *req.Spec.ExpirationSeconds == extendedFrom &&
		!slices.ContainsFunc(req.Spec.Audiences, func(audience string) bool { return !own(audience) })
}

// complete sets the default audiences and validates the requested lifetime. One that is longer than the
// server allows is shortened with a warning, as by kube-apiserver.
func (t *tokens) complete(ctx context.Context, req *authenticationv1.TokenRequest) error {
	if len(req.Spec.Audiences) == 0 {
		req.Spec.Audiences = t.audiences
	}
	at, life := field.NewPath("spec", "expirationSeconds"), *req.Spec.ExpirationSeconds
	var errs field.ErrorList
	if life < minLife {
		errs = append(errs, field.Invalid(at, life, "may not specify a duration less than 10 minutes"))
	}
	if life > maxLife {
		errs = append(errs, field.Invalid(at, life, "may not specify a duration larger than 2^32 seconds"))
	}
	if len(errs) > 0 {
		return apierrors.NewInvalid(tokenRequest.GroupKind(), "", errs)
	}
	if life > t.longest {
		filter.AddWarning(ctx, fmt.Sprintf("requested expiration of %d seconds shortened to %d seconds", life, t.longest))
		life = t.longest
		req.Spec.ExpirationSeconds = &life
	}
	return nil
}

// boundKinds are the resources of the kinds that a token may be bound to.
var boundKinds = map[string]string{"Pod": "pods", "Secret": "secrets", "Node": "nodes"}

// bind reads the object that a token of a service account is bound to, and the node of a pod.
func (t *tokens) bind(ctx context.Context, account resource.Key, ref *authenticationv1.BoundObjectReference) (bound, node *authn.BoundObject, err error) {
	if ref == nil {
		return nil, nil, nil
	}
	of := boundKinds[ref.Kind]
	if of == "" || ref.APIVersion != "v1" {
		return nil, nil, apierrors.NewBadRequest(fmt.Sprintf("cannot bind token to object of type %s", schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind)))
	}
	key := resource.Key{Namespace: account.Namespace, Name: ref.Name}
	if of == "nodes" {
		key.Namespace = ""
	}
	r := t.find("", of)
	o, err := r.Store.Get(ctx, key, resource.At{})
	if err != nil {
		return nil, nil, err
	}
	if of == "pods" {
		if node, err = t.nodeOf(ctx, account.Name, r, o); err != nil {
			return nil, nil, err
		}
	}
	if uid := string(ref.UID); uid != "" && uid != o.UID {
		return nil, nil, apierrors.NewConflict(schema.GroupResource{Resource: ref.Kind}, ref.Name,
			fmt.Errorf("the UID in the bound object reference (%s) does not match the UID in record. The object might have been deleted and then recreated", uid))
	}
	return &authn.BoundObject{Kind: ref.Kind, Name: o.Name, UID: o.UID}, node, nil
}

// nodeOf returns the node of a pod of the service account: without uid if there is no such
// node, nil if the pod has none.
func (t *tokens) nodeOf(ctx context.Context, account string, pods *rest.Resource, o *resource.Object) (*authn.BoundObject, error) {
	pod, err := rest.DecodeAs[*corev1.Pod](pods.Kind, o)
	if err != nil {
		return nil, err
	}
	if pod.Spec.ServiceAccountName != account {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("cannot bind token for serviceaccount %q to pod running with different serviceaccount name.", account))
	}
	name := pod.Spec.NodeName
	if name == "" {
		return nil, nil
	}
	node := &authn.BoundObject{Kind: "Node", Name: name}
	switch n, err := t.find("", "nodes").Store.Get(ctx, resource.Key{Name: name}, resource.At{}); {
	case err == nil:
		node.UID = n.UID
	case !apierrors.IsNotFound(err):
		return nil, err
	}
	return node, nil
}
