package authentication

import (
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/token/cache"
	webhookutil "k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/apiserver/plugin/pkg/authenticator/token/webhook"

	"portico/resource/admission"
	"portico/resource/egress"
)

// Webhook is a server that is asked about bearer tokens by a TokenReview.
type Webhook struct {
	// ConfigFile is a kubeconfig that names the server; "": none is asked. It is read once.
	ConfigFile string
	// Version is the version of the TokenReview, v1 or v1beta1.
	Version string
	// CacheTTL is how long an answer is used again; 0: not at all.
	CacheTTL time.Duration
}

// maxReview bounds the answer of a webhook, in bytes.
const maxReview = 1 << 20

// newWebhook returns the authenticator of a webhook, to which dial connects; nil: directly. Requests with the same token share a call,
// which takes at most 30 s with all its attempts.
func newWebhook(cfg Webhook, audiences []string, dial egress.Dial, registry prometheus.Registerer) (authenticator.Token, error) {
	client, err := webhookutil.LoadKubeconfig(cfg.ConfigFile, dial)
	if err != nil {
		return nil, fmt.Errorf("--authentication-token-webhook-config-file: %w", err)
	}
	calls := newCalls(registry)
	client.Wrap(func(next http.RoundTripper) http.RoundTripper {
		calls.next = admission.BoundAnswers(next, maxReview)
		return calls
	})
	hook, err := webhook.New(client, cfg.Version, audiences, *webhook.DefaultRetryBackoff())
	if err != nil {
		return nil, fmt.Errorf("--authentication-token-webhook-config-file: %w", err)
	}
	return cache.New(converting{hook}, false, cfg.CacheTTL, cfg.CacheTTL), nil
}

// calls counts the calls of the webhook under upstream's names.
type calls struct {
	next    http.RoundTripper
	total   *prometheus.CounterVec
	latency *prometheus.HistogramVec
}

func newCalls(registry prometheus.Registerer) *calls {
	factory := promauto.With(registry)
	return &calls{
		total: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "apiserver_delegated_authn_request_total",
			Help: "Calls of the authentication webhook, by status code, or <error> without a response.",
		}, []string{"code"}),
		latency: factory.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "apiserver_delegated_authn_request_duration_seconds",
			Help:    "Time until the authentication webhook answered, by status code, or <error> without a response.",
			Buckets: []float64{0.25, 0.5, 0.7, 1, 1.5, 3, 5, 10},
		}, []string{"code"}),
	}
}

// RoundTrip implements http.RoundTripper.
func (c *calls) RoundTrip(r *http.Request) (*http.Response, error) {
	begun, code := time.Now(), "<error>"
	res, err := c.next.RoundTrip(r)
	if err == nil {
		code = strconv.Itoa(res.StatusCode)
	}
	c.total.WithLabelValues(code).Inc()
	c.latency.WithLabelValues(code).Observe(time.Since(begun).Seconds())
	return res, err
}
