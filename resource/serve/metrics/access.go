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

// Filters whose time is observed.
const (
	FilterAudit         = "audit"
	FilterImpersonation = "impersonation"

	filterAuthentication = "authentication"
	filterAuthorization  = "authorization"
)

// knownUsers are the user names that have a label value of their own.
var knownUsers = []string{"admin", "client", "kube_proxy", "kubelet", "system:serviceaccount:kube-system:default"}

// access has the metrics of the filters that decide whether a request may proceed. All
// label values but user names are resolved once.
type access struct {
	filters                       map[string]prometheus.Observer
	authentication, authorization map[string]result
	users                         *prometheus.CounterVec
	expiry                        prometheus.Histogram
}

// result has the metrics of one result of a filter.
type result struct {
	attempts prometheus.Counter
	duration prometheus.Observer
}

func newAccess(factory promauto.Factory) *access {
	filters := factory.NewHistogramVec(prometheus.HistogramOpts{
		Name: "apiserver_request_filter_duration_seconds", Help: "Time that requests spent in a filter on their way in, in seconds.", Buckets: filterBuckets,
	}, []string{"filter"})
	m := &access{
		filters: map[string]prometheus.Observer{},
		authentication: newResults(factory, "authentication_attempts", "Requests that were authenticated, by result.",
			"authentication_duration_seconds", "Time that authentication took, by result, in seconds.", "success", "failure", "error"),
		authorization: newResults(factory, "authorization_attempts_total", "Requests that were authorized, by result.",
			"authorization_duration_seconds", "Time that authorization took, by result, in seconds.", "allowed", "denied", "no-opinion", "error"),
		users: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "authenticated_user_requests", Help: "Requests of authenticated users, by kind of user name.",
		}, []string{"username"}),
		expiry: factory.NewHistogram(prometheus.HistogramOpts{
			Name:    "apiserver_client_certificate_expiration_seconds",
			Help:    "Remaining lifetime of the certificates that clients authenticate with, in seconds.",
			Buckets: expiryBuckets,
		}),
	}
	for _, filter := range []string{FilterAudit, FilterImpersonation, filterAuthentication, filterAuthorization} {
		m.filters[filter] = filters.WithLabelValues(filter)
	}
	return m
}

// newResults makes a counter and a histogram of the results of a filter.
func newResults(factory promauto.Factory, attempts, attemptsHelp, duration, durationHelp string, names ...string) map[string]result {
	label := []string{"result"}
	counts := factory.NewCounterVec(prometheus.CounterOpts{Name: attempts, Help: attemptsHelp}, label)
	times := factory.NewHistogramVec(prometheus.HistogramOpts{Name: duration, Help: durationHelp, Buckets: accessBuckets}, label)
	all := make(map[string]result, len(names))
	for _, name := range names {
		all[name] = result{counts.WithLabelValues(name), times.WithLabelValues(name)}
	}
	return all
}

func (r result) observe(took time.Duration) {
	r.attempts.Inc()
	r.duration.Observe(took.Seconds())
}

// Filtered observes the time of FilterAudit or FilterImpersonation.
func (m *access) Filtered(filter string, took time.Duration) {
	m.filters[filter].Observe(took.Seconds())
}

// Authenticated counts the result of an Authenticator for a request.
func (m *access) Authenticated(r *http.Request, user *resource.User, ok bool, err error, took time.Duration) {
	m.filters[filterAuthentication].Observe(took.Seconds())
	switch {
	case ok:
		m.authentication["success"].observe(took)
		m.users.WithLabelValues(userLabel(user.Name)).Inc()
		if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 && user.Name != resource.Anonymous {
			m.expiry.Observe(time.Until(r.TLS.PeerCertificates[0].NotAfter).Seconds())
		}
	case err != nil:
		m.authentication["error"].observe(took)
	default:
		m.authentication["failure"].observe(took)
	}
}

// Authorized counts the result of an Authorizer for a request.
func (m *access) Authorized(decision authz.Decision, err error, took time.Duration) {
	m.filters[filterAuthorization].Observe(took.Seconds())
	name := "no-opinion"
	switch {
	case decision == authz.Allow:
		name = "allowed"
	case err != nil:
		name = "error"
	case decision == authz.Deny:
		name = "denied"
	}
	m.authorization[name].observe(took)
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
