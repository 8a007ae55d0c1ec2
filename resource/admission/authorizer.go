package admission

import (
	"context"
	"errors"
	"net/http"

	"k8s.io/apimachinery/pkg/util/wait"
	upstream "k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/plugin/pkg/authorizer/webhook"
	"k8s.io/apiserver/plugin/pkg/authorizer/webhook/metrics"
	authorizationv1client "k8s.io/client-go/kubernetes/typed/authorization/v1"

	"portico/resource"
	"portico/resource/authz"
)

// newAuthorizer returns the authorizer of the variable `authorizer` in CEL expressions.
func newAuthorizer(cfg *EngineConfig) (upstream.UnconditionalAuthorizer, error) {
	switch {
	case cfg.Authorizer != nil:
		return localAuthorizer{cfg.Authorizer}, nil
	case cfg.Transport == nil:
		return noAuthorizer{}, nil
	}
	reviews, err := authorizationv1client.NewForConfigAndClient(cfg.clientConfig(), &http.Client{Transport: cfg.Transport, Timeout: lookupTimeout})
	if err != nil {
		return nil, err
	}
	// Results are not cached, and there is one attempt.
	return webhook.NewFromInterface(reviews, 0, 0, wait.Backoff{Steps: 1}, upstream.DecisionNoOpinion, metrics.NoopAuthorizerMetrics{}, nil)
}

// noAuthorizer is the authorizer without a gateway.
type noAuthorizer struct{}

// Authorize implements UnconditionalAuthorizer.
func (noAuthorizer) Authorize(context.Context, upstream.Attributes) (upstream.Decision, string, error) {
	return upstream.DecisionNoOpinion, "", errors.New("no authorizer is configured")
}

// localAuthorizer is the authorizer of this process.
type localAuthorizer struct{ authorizer authz.Authorizer }

// Authorize implements UnconditionalAuthorizer.
func (l localAuthorizer) Authorize(ctx context.Context, a upstream.Attributes) (upstream.Decision, string, error) {
	decision, reason, err := l.authorizer.Authorize(ctx, actionOf(a))
	switch decision {
	case authz.Allow:
		return upstream.DecisionAllow, reason, err
	case authz.Deny:
		return upstream.DecisionDeny, reason, err
	}
	return upstream.DecisionNoOpinion, reason, err
}

// actionOf returns the action that an expression asks about.
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
