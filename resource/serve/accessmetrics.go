package serve

import (
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"portico/resource"
	"portico/resource/authz"
)

// Bounds of upstream's histograms of access; a distribution has those of both.
var (
	filterScale = inSeconds(0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 5, 10, 15, 30)
	accessScale = inSeconds(0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.024, 2.048, 4.096, 8.192, 16.384)
	// expiryScale has the remaining life of certificates, which is counted in
	// seconds.
	expiryScale = scale{[]float64{0, 1800, 3600, 7200, 21600, 43200, 86400, 172800, 345600, 604800, 2592000, 7776000, 15552000, 31104000}, 1}
)

// Results of authentication and authorization, as upstream names them.
var (
	authenticationResults = [...]string{authSuccess: "success", authFailure: "failure", authError: "error"}
	authorizationResults  = [...]string{authzAllowed: "allowed", authzDenied: "denied", authzNoOpinion: "no-opinion", authzError: "error"}
)

const (
	authSuccess = iota
	authFailure
	authError
)

const (
	authzAllowed = iota
	authzDenied
	authzNoOpinion
	authzError
)

// userNames are the users that are counted apart; all others are "email_id" or
// "other", the last two.
var userNames = [...]string{"admin", "client", "kube_proxy", "kubelet", "system:serviceaccount:kube-system:default", "email_id", "other"}

// accessMetrics count what lets requests in. Each is observed once, in whole
// nanoseconds, and shown as all the metrics that tell of it.
type accessMetrics struct {
	authentication [len(authenticationResults)]*distribution
	authorization  [len(authorizationResults)]*distribution
	audit          *distribution // until a request's event has begun
	impersonation  *distribution
	users          [len(userNames)]atomic.Uint64
	expiry         *distribution

	filter, attempts, duration, user, expires *prometheus.Desc
	authorizations, authorizationDuration     *prometheus.Desc
}

func newAccessMetrics() *accessMetrics {
	of := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	m := &accessMetrics{
		audit:         newDistribution(filterScale.units()),
		impersonation: newDistribution(filterScale.units()),
		expiry:        newDistribution(expiryScale.units()),

		filter:   of("apiserver_request_filter_duration_seconds", "Time that requests spent in a filter on their way in, in seconds.", "filter"),
		attempts: of("authentication_attempts", "Requests that were authenticated, by result.", "result"),
		duration: of("authentication_duration_seconds", "Time that authentication took, by result, in seconds.", "result"),
		user:     of("authenticated_user_requests", "Requests of authenticated users, by kind of user name.", "username"),
		expires: of("apiserver_client_certificate_expiration_seconds",
			"What is left of the life of the certificates that clients authenticate with, in seconds."),
		authorizations:        of("authorization_attempts_total", "Requests that were authorized, by result.", "result"),
		authorizationDuration: of("authorization_duration_seconds", "Time that authorization took, by result, in seconds.", "result"),
	}
	bounds := merged(filterScale.units(), accessScale.units())
	for i := range m.authentication {
		m.authentication[i] = newDistribution(bounds)
	}
	for i := range m.authorization {
		m.authorization[i] = newDistribution(bounds)
	}
	return m
}

// authenticated counts a request whose user was looked for.
func (m *accessMetrics) authenticated(r *http.Request, user *resource.User, claimed bool, err error, x *exchange, took time.Duration) {
	switch {
	case claimed:
		m.authentication[authSuccess].observe(int64(took))
		m.users[userKind(user.Name)].Add(1)
		if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 && user.Name != resource.Anonymous {
			m.expiry.observe(int64(r.TLS.PeerCertificates[0].NotAfter.Sub(x.start) / time.Second))
		}
	case err != nil:
		m.authentication[authError].observe(int64(took))
	default:
		m.authentication[authFailure].observe(int64(took))
	}
}

// authorized counts a request that was decided about.
func (m *accessMetrics) authorized(decision authz.Decision, err error, took time.Duration) {
	result := authzNoOpinion
	switch {
	case decision == authz.Allow:
		result = authzAllowed
	case err != nil:
		result = authzError
	case decision == authz.Deny:
		result = authzDenied
	}
	m.authorization[result].observe(int64(took))
}

// userKind is the index in userNames that a user is counted at.
func userKind(name string) int {
	for i, known := range userNames[:len(userNames)-2] {
		if name == known {
			return i
		}
	}
	if strings.Contains(name, "@") {
		return len(userNames) - 2
	}
	return len(userNames) - 1
}

func (m *accessMetrics) describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.filter, m.attempts, m.duration, m.user, m.expires, m.authorizations, m.authorizationDuration} {
		to <- d
	}
}

// collect shows what has been counted; what never happened is not shown, but for
// the certificates, which an alert looks for.
func (m *accessMetrics) collect(to chan<- prometheus.Metric) {
	results := func(all []*distribution, names []string, attempts, duration *prometheus.Desc) {
		for i, d := range all {
			if t := read(d); t.count > 0 {
				to <- prometheus.MustNewConstMetric(attempts, prometheus.CounterValue, float64(t.count), names[i])
				to <- t.metric(duration, accessScale, names[i])
			}
		}
	}
	results(m.authentication[:], authenticationResults[:], m.attempts, m.duration)
	results(m.authorization[:], authorizationResults[:], m.authorizations, m.authorizationDuration)
	for name, all := range map[string][]*distribution{
		"authentication": m.authentication[:], "audit": {m.audit}, "impersonation": {m.impersonation}, "authorization": m.authorization[:],
	} {
		if t := read(all...); t.count > 0 {
			to <- t.metric(m.filter, filterScale, name)
		}
	}
	for i, name := range userNames {
		if n := m.users[i].Load(); n > 0 {
			to <- prometheus.MustNewConstMetric(m.user, prometheus.CounterValue, float64(n), name)
		}
	}
	to <- read(m.expiry).metric(m.expires, expiryScale)
}
