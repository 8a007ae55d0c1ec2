package authorization

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/json"
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

const (
	// maxAnswer bounds the answer of a webhook, in bytes: it may repeat the review.
	maxAnswer = 256 << 10
	// maxReason bounds the reason of an answer, in bytes: upstream keeps 8,192 of them.
	maxReason = 4 << 10
	// maxKept is upstream's bound, in bytes, of the attributes whose decision it keeps.
	maxKept = 10_000
)

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
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return shortened{admission.BoundAnswers(next, maxAnswer)}
	})
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
	if err != nil {
		err = fmt.Errorf("%v", err) // a 503 of the webhook is not one of this server
	}
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
		a.Name = uncounted(act)
		return a
	}
	a.APIGroup, a.APIVersion, a.Namespace = act.Group, act.Version, act.Namespace
	a.Resource, a.Subresource, a.Name = act.Resource, act.Subresource, act.Name
	a.Path = uncounted(act)
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

var padding = strings.Repeat("x", maxKept)

// uncounted returns a string as long as what upstream does not count when it keeps long decisions
// out of its cache, user and selectors, or maxKept. It is for a field that is not sent: the path of a
// resource, the name of a path.
func uncounted(act *resource.Action) string {
	size := len(act.Path) + len(act.User.Name) + len(act.User.UID) + len(act.FieldSelector) + len(act.LabelSelector)
	for _, g := range act.User.Groups {
		size += len(g)
	}
	for key, values := range act.User.Extra {
		size += len(key)
		for _, v := range values {
			size += len(v)
		}
	}
	return padding[:min(size, maxKept)]
}

// shortened is a transport that cuts the reasons of answers, which bounds the cache of decisions.
type shortened struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (s shortened) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := s.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(res.Body)
	if err = errors.Join(err, res.Body.Close()); err != nil {
		return nil, err
	}
	var review struct {
		metav1.TypeMeta
		Status authorizationv1.SubjectAccessReviewStatus `json:"status"`
	}
	// An answer that is no review is left to upstream, which refuses it.
	if len(body) > maxReason && json.Unmarshal(body, &review) == nil {
		st := &review.Status
		st.Reason, st.EvaluationError = strings.ToValidUTF8(st.Reason[:min(len(st.Reason), maxReason)], ""), ""
		if body, err = json.Marshal(review); err != nil {
			return nil, err
		}
	}
	res.Body, res.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	return res, nil
}
