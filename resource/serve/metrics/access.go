package metrics

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"portico/resource"
	"portico/resource/authz"
)

// Buckets of upstream's histograms of access, in seconds.
var (
	filterBuckets = []float64{0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 5, 10, 15, 30}
	accessBuckets = prometheus.ExponentialBuckets(0.001, 2, 15)
	expiryBuckets = []float64{0, 1800, 3600, 7200, 21600, 43200, 86400, 172800, 345600, 604800, 2592000, 7776000, 15552000, 31104000}
)

// The filters that Filtered measures.
const (
	FilterAudit         = "audit"
	FilterImpersonation = "impersonation"
)

// knownUsers are the user names that have a label value of their own.
var knownUsers = []string{"admin", "client", "kube_proxy", "kubelet", "system:serviceaccount:kube-system:default"}

// access has the metrics of the filters that decide whether a request may proceed.
type access struct {
	filters                       *prometheus.HistogramVec
	authentication, authorization results
	users                         *prometheus.CounterVec
	expiry                        prometheus.Histogram
}

// results has the metrics of a filter by result.
type results struct {
	attempts *prometheus.CounterVec
	duration *prometheus.HistogramVec
}

func newAccess(factory promauto.Factory) *access {
	counter := func(name, help, label string) *prometheus.CounterVec {
		return factory.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{label})
	}
	histogram := func(name, help string, buckets []float64, label string) *prometheus.HistogramVec {
		return factory.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, []string{label})
	}
	return &access{
		filters: histogram("apiserver_request_filter_duration_seconds", "Time that requests spent in a filter on their way in, in seconds.", filterBuckets, "filter"),
		authentication: results{
			counter("authentication_attempts", "Requests that were authenticated, by result.", "result"),
			histogram("authentication_duration_seconds", "Time that authentication took, by result, in seconds.", accessBuckets, "result"),
		},
		authorization: results{
			counter("authorization_attempts_total", "Requests that were authorized, by result.", "result"),
			histogram("authorization_duration_seconds", "Time that authorization took, by result, in seconds.", accessBuckets, "result"),
		},
		users: counter("authenticated_user_requests", "Requests of authenticated users, by kind of user name.", "username"),
		expiry: factory.NewHistogram(prometheus.HistogramOpts{
			Name:    "apiserver_client_certificate_expiration_seconds",
			Help:    "Remaining lifetime of the certificates that clients authenticate with, in seconds.",
			Buckets: expiryBuckets,
		}),
	}
}

func (r results) observe(result string, took time.Duration) {
	r.attempts.WithLabelValues(result).Inc()
	r.duration.WithLabelValues(result).Observe(took.Seconds())
}

// Filtered observes the time of FilterAudit or FilterImpersonation.
func (m *access) Filtered(filter string, took time.Duration) {
	m.filters.WithLabelValues(filter).Observe(took.Seconds())
}

// Authenticated counts the result of an Authenticator for a request.
func (m *access) Authenticated(r *http.Request, user *resource.User, ok bool, err error, took time.Duration) {
	m.Filtered("authentication", took)
	switch {
	case ok:
		m.authentication.observe("success", took)
		m.users.WithLabelValues(userLabel(user.Name)).Inc()
		if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 && user.Name != resource.Anonymous {
			m.expiry.Observe(time.Until(r.TLS.PeerCertificates[0].NotAfter).Seconds())
		}
	case err != nil:
		m.authentication.observe("error", took)
	default:
		m.authentication.observe("failure", took)
	}
}

// Authorized counts the result of an Authorizer for a request.
func (m *access) Authorized(decision authz.Decision, err error, took time.Duration) {
	m.Filtered("authorization", took)
	name := "no-opinion"
	switch {
	case decision == authz.Allow:
		name = "allowed"
	case err != nil:
		name = "error"
	case decision == authz.Deny:
		name = "denied"
	}
	m.authorization.observe(name, took)
}

// userLabel returns the label of a user name: the name if it is one of knownUsers,
// email_id, or other.
func userLabel(name string) string {
	switch {
	case slices.Contains(knownUsers, name):
		return name
	case strings.Contains(name, "@"):
		return "email_id"
	}
	return "other"
}
