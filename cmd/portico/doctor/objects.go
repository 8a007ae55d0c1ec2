package doctor

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"portico/cmd/portico/cli"
	"portico/cmd/portico/inspect"
)

// webhook is a webhook of either kind.
type webhook struct {
	name     string
	client   admissionv1.WebhookClientConfig
	required bool // failurePolicy Fail
	rules    []admissionv1.RuleWithOperations
	chosen   bool // by selectors or match conditions
}

// allWebhooks reads the webhooks of both kinds.
func (t *target) allWebhooks(ctx context.Context) (all []webhook, why finding, read bool) {
	add := func(configuration, name string, c admissionv1.WebhookClientConfig, policy *admissionv1.FailurePolicyType,
		rules []admissionv1.RuleWithOperations, namespaces, objects *metav1.LabelSelector, conditions []admissionv1.MatchCondition) {
		chosen := len(conditions) > 0
		for _, s := range []*metav1.LabelSelector{namespaces, objects} {
			chosen = chosen || s != nil && len(s.MatchLabels)+len(s.MatchExpressions) > 0
		}
		all = append(all, webhook{configuration + "/" + name, c, policy == nil || *policy == admissionv1.Fail, rules, chosen})
	}
	const root = "/apis/admissionregistration.k8s.io/v1/"
	var mutating admissionv1.MutatingWebhookConfigurationList
	if why, read := t.get(ctx, root+"mutatingwebhookconfigurations", &mutating); !read {
		return nil, why, false
	}
	for _, c := range mutating.Items {
		for _, h := range c.Webhooks {
			add(c.Name, h.Name, h.ClientConfig, h.FailurePolicy, h.Rules, h.NamespaceSelector, h.ObjectSelector, h.MatchConditions)
		}
	}
	var validating admissionv1.ValidatingWebhookConfigurationList
	if why, read := t.get(ctx, root+"validatingwebhookconfigurations", &validating); !read {
		return nil, why, false
	}
	for _, c := range validating.Items {
		for _, h := range c.Webhooks {
			add(c.Name, h.Name, h.ClientConfig, h.FailurePolicy, h.Rules, h.NamespaceSelector, h.ObjectSelector, h.MatchConditions)
		}
	}
	return all, finding{}, true
}

// maxServices bounds the requests for Services of webhooks.
const maxServices = 20

func webhooks(ctx context.Context, t *target) finding {
	all, why, read := t.allWebhooks(ctx)
	if !read {
		return why
	}
	var w worst
	asked := 0
	for _, h := range all {
		s := h.client.Service
		if s == nil || asked == maxServices {
			continue
		}
		asked++
		err := t.gateway.Send(ctx, http.MethodGet, "/api/v1/namespaces/"+s.Namespace+"/services/"+s.Name, inspect.FromMemory(), nil, nil)
		switch {
		case !apierrors.IsNotFound(err): // or it cannot be known
		case h.required:
			w.fail("%s: there is no Service %s/%s, and it must be asked", h.name, s.Namespace, s.Name)
		default:
			w.warn("%s: there is no Service %s/%s", h.name, s.Namespace, s.Name)
		}
	}
	for _, s := range t.view.Metrics["apiserver_admission_webhook_rejection_count"] {
		if n := inspect.Value(s); n > 0 && inspect.Label(s, "error_type") == "calling_webhook_error" {
			w.warn("%s could not be called %.0f times", inspect.Label(s, "name"), n)
		}
	}
	return w.finding("%s", cli.Plural(len(all), "webhook"))
}

func webhookScope(ctx context.Context, t *target) finding {
	all, why, read := t.allWebhooks(ctx)
	if !read {
		return why
	}
	var w worst
	for _, h := range all {
		everything := slices.ContainsFunc(h.rules, func(r admissionv1.RuleWithOperations) bool {
			return slices.Contains(r.APIGroups, "*") && slices.ContainsFunc(r.Resources, func(name string) bool { return strings.HasPrefix(name, "*") })
		})
		if h.required && everything && !h.chosen {
			w.warn("%s: without it no write of any kind succeeds", h.name)
		}
	}
	return w.finding("none of %s", cli.Plural(len(all), "webhook"))
}

func definitions(ctx context.Context, t *target) finding {
	var list apiextensionsv1.CustomResourceDefinitionList
	if why, read := t.get(ctx, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &list); !read {
		return why
	}
	var w worst
	for _, d := range list.Items {
		for _, c := range d.Status.Conditions {
			switch {
			case c.Reason == "Installing" && time.Since(c.LastTransitionTime.Time) < time.Minute: // it was just created
			case c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionFalse,
				c.Type == apiextensionsv1.NamesAccepted && c.Status == apiextensionsv1.ConditionFalse:
				w.fail("%s is not %s: %s", d.Name, c.Type, c.Message)
			case c.Type == apiextensionsv1.NonStructuralSchema && c.Status == apiextensionsv1.ConditionTrue:
				w.warn("%s: %s: %s", d.Name, c.Type, c.Message)
			}
		}
	}
	return w.finding("%s", cli.Plural(len(list.Items), "definition"))
}

// longDeletion is how long the deletion of a namespace may take.
const longDeletion = 2 * time.Minute

func namespaces(ctx context.Context, t *target) finding {
	var list corev1.NamespaceList
	if why, read := t.get(ctx, "/api/v1/namespaces", &list); !read {
		return why
	}
	return judgeNamespaces(list.Items, time.Now())
}

func judgeNamespaces(all []corev1.Namespace, now time.Time) finding {
	var w worst
	for _, n := range all {
		why := inspect.Waits(&n)
		if n.DeletionTimestamp == nil || why == "" && now.Sub(n.DeletionTimestamp.Time) < longDeletion {
			continue
		}
		for _, c := range n.Status.Conditions {
			if why == "" && c.Status == corev1.ConditionTrue {
				why = c.Message
			}
		}
		why = cmp.Or(why, "no condition says why")
		w.warn("%s for %s: %s", n.Name, duration.HumanDuration(now.Sub(n.DeletionTimestamp.Time)), why)
	}
	return w.finding("%s", cli.Plural(len(all), "namespace"))
}

// private are paths that no request without credentials should read.
var private = []string{"/api/v1/namespaces", "/api/v1/secrets", "/apis/rbac.authorization.k8s.io/v1/clusterroles", "/metrics"}

func anonymous(ctx context.Context, t *target) finding {
	if t.away() {
		return noGateway()
	}
	var w worst
	for _, path := range private {
		answer, err := t.anonymously(ctx, path)
		if err != nil {
			return skip("%v", err)
		}
		if answer.StatusCode == http.StatusOK {
			w.fail("%s", path)
		}
	}
	return w.finding("health and version only")
}

// everyone are a user and groups that include users without any right.
var everyone = []string{"system:anonymous", "system:unauthenticated", "system:authenticated", "system:serviceaccounts"}

func clusterAdmin(ctx context.Context, t *target) finding {
	var list rbacv1.ClusterRoleBindingList
	if why, read := t.get(ctx, "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", &list); !read {
		return why
	}
	var w worst
	admins := 0
	for _, b := range list.Items {
		if b.RoleRef.Name != "cluster-admin" {
			continue
		}
		admins++
		for _, s := range b.Subjects {
			if slices.Contains(everyone, s.Name) {
				w.fail("%s makes %s an administrator", b.Name, s.Name)
			}
		}
	}
	return w.finding("%s to cluster-admin, none for all users", cli.Plural(admins, "binding"))
}

// tokenLife is the shortest life of a token, in seconds.
const tokenLife = 600

func tokens(ctx context.Context, t *target) finding {
	switch {
	case t.away():
		return noGateway()
	case !t.write:
		return skip("it makes a token; allow it with --write")
	}
	seconds := int64(tokenLife)
	made := authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}}
	if why, done := t.send(ctx, http.MethodPost, "/api/v1/namespaces/default/serviceaccounts/default/token", nil, &made, &made); !done {
		return finding{failed, "make a token: " + why.text}
	}
	review := authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: made.Status.Token}}
	if why, done := t.send(ctx, http.MethodPost, "/apis/authentication.k8s.io/v1/tokenreviews", nil, &review, &review); !done {
		return why
	}
	if !review.Status.Authenticated {
		return fail("the gateway refuses a token that the core server made: %s", review.Status.Error)
	}
	return ok("a token is accepted")
}

// manyEvents is the number to warn of. They are the first thing that fills an etcd.
const manyEvents = 100_000

func events(ctx context.Context, t *target) finding {
	if t.away() {
		return noGateway()
	}
	var list metav1.PartialObjectMetadataList
	if err := t.gateway.Send(ctx, http.MethodGet, "/api/v1/events", url.Values{"limit": {"1"}}, nil, &list); err != nil {
		return skip("%v", err)
	}
	n := int64(len(list.Items))
	if list.RemainingItemCount != nil {
		n += *list.RemainingItemCount
	}
	if n > manyEvents {
		return warn("%d events", n)
	}
	return ok("%d events", n)
}
