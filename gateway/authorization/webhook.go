package authorization

import (
	"context"
	"fmt"
	"net/http"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	apiserver "k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/authentication/user"
	upstream "k8s.io/apiserver/pkg/authorization/authorizer"
	authorizationcel "k8s.io/apiserver/pkg/authorization/cel"
	webhookutil "k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/apiserver/plugin/pkg/authorizer/webhook"
	webhookmetrics "k8s.io/apiserver/plugin/pkg/authorizer/webhook/metrics"

	"portico/resource"
	"portico/resource/admission"
	"portico/resource/authz"
)

// maxAnswer bounds the answer of a webhook, in bytes: it may repeat the review. Reasons are kept
// in the cache.
const maxAnswer = 256 << 10

// remote is upstream's authorizer of one webhook.
type remote struct{ webhook *webhook.WebhookAuthorizer }

// webhookMetrics are those that kube-apiserver has: none of single HTTP requests.
type webhookMetrics struct {
	webhookmetrics.NoopRequestMetrics
	webhookmetrics.WebhookMetrics
	authorizationcel.MatcherMetrics
}

// newWebhook makes the authorizer of a webhook. It reads the kubeconfig, and does not connect.
func newWebhook(c *apiserver.AuthorizerConfiguration, compiler authorizationcel.Compiler, dial utilnet.DialFunc) (*remote, error) {
	cfg, err := webhookutil.LoadKubeconfig(*c.Webhook.ConnectionInfo.KubeConfigFile, dial)
	if err != nil {
		return nil, fmt.Errorf("authorizer %q: kubeconfig %s: %w", c.Name, *c.Webhook.ConnectionInfo.KubeConfigFile, err)
	}
	cfg.Timeout = c.Webhook.Timeout.Duration
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return admission.BoundAnswers(next, maxAnswer) })
	onError := upstream.DecisionNoOpinion
	if c.Webhook.FailurePolicy == apiserver.FailurePolicyDeny {
		onError = upstream.DecisionDeny
	}
	authorized, unauthorized := c.Webhook.AuthorizedTTL.Duration, c.Webhook.UnauthorizedTTL.Duration
	if !c.Webhook.CacheAuthorizedRequests {
		authorized = 0
	}
	if !c.Webhook.CacheUnauthorizedRequests {
		unauthorized = 0
	}
	w, err := webhook.New(cfg, c.Webhook.SubjectAccessReviewVersion, authorized, unauthorized, *webhook.DefaultRetryBackoff(), onError,
		c.Webhook.MatchConditions, c.Name, webhookMetrics{
			WebhookMetrics: webhookmetrics.NewWebhookMetrics(), MatcherMetrics: authorizationcel.NewMatcherMetrics(),
		}, compiler)
	if err != nil {
		return nil, fmt.Errorf("authorizer %q: %w", c.Name, err)
	}
	return &remote{w}, nil
}

// Authorize implements authz.Authorizer.
func (r *remote) Authorize(ctx context.Context, act *resource.Action) (authz.Decision, string, error) {
	decision, reason, err := r.webhook.Authorize(ctx, attributes(act))
	switch decision {
	case upstream.DecisionAllow:
		return authz.Allow, reason, err
	case upstream.DecisionDeny:
		return authz.Deny, reason, err
	}
	return authz.NoOpinion, reason, err
}

// RulesFor implements authz.Engine.
func (r *remote) RulesFor(context.Context, *resource.User, string) ([]rbacv1.PolicyRule, bool, error) {
	return nil, true, errNoRules
}

// attributes returns an action for upstream's authorizers.
func attributes(act *resource.Action) upstream.AttributesRecord {
	a := upstream.AttributesRecord{
		User: &user.DefaultInfo{Name: act.User.Name, UID: act.User.UID, Groups: act.User.Groups, Extra: act.User.Extra},
		Verb: act.Verb, Path: act.Path, ResourceRequest: act.IsResource,
	}
	if !act.IsResource {
		return a
	}
	a.APIGroup, a.APIVersion, a.Namespace = act.Group, act.Version, act.Namespace
	a.Resource, a.Subresource, a.Name = act.Resource, act.Subresource, act.Name
	// The path of a resource is not sent: upstream counts it to keep decisions about long names out of
	// its cache. Selectors are as long as a client likes.
	a.Path += act.FieldSelector + act.LabelSelector
	if act.FieldSelector != "" {
		selector, err := fields.ParseSelector(act.FieldSelector)
		if a.FieldSelectorParsingErr = err; err == nil {
			a.FieldSelectorRequirements = selector.Requirements()
		}
	}
	if act.LabelSelector != "" {
		selector, err := labels.Parse(act.LabelSelector)
		if a.LabelSelectorParsingErr = err; err == nil {
			a.LabelSelectorRequirements, _ = selector.Requirements()
		}
	}
	return a
}
