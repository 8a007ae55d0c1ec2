package authentication

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/token/cache"
	"k8s.io/apiserver/pkg/authentication/token/union"
	"k8s.io/apiserver/plugin/pkg/authenticator/token/oidc"

	"portico/resource/admission"
	"portico/resource/egress"
)

const (
	// issuerCacheTTL is how long the user of a token is used again, as in kube-apiserver.
	issuerCacheTTL = 10 * time.Second
	// issuerTimeout bounds a request to an issuer, and maxIssuerResponse its response in bytes.
	issuerTimeout     = 30 * time.Second
	maxIssuerResponse = 1 << 20
	// updateTimeout is how long new issuers may take to answer before the old ones stay.
	updateTimeout = time.Minute
	// readyInterval is the time between two looks at whether they did.
	readyInterval = 100 * time.Millisecond
	// retirement is how long old issuers serve the requests that have begun, and metricsDelay how
	// much longer their metrics may be written.
	retirement, metricsDelay = time.Minute, 30 * time.Second
)

// issuers authenticates the tokens of the issuers of a configuration by upstream's engine. Each
// issuer reads its keys by itself: one that is away concerns its own tokens only.
type issuers struct {
	algorithms []string
	accounts   []string // issuers of service-account tokens
	audiences  []string
	egress     egress.Selector
	host       string // of the gateway, in metrics
	current    atomic.Pointer[generation]
	retiring   sync.WaitGroup
}

// generation are the issuers of one configuration. They end with cancel.
type generation struct {
	authenticator.Token
	issuers map[string]oidc.AuthenticatorTokenWithHealthCheck // by URL
	cancel  context.CancelFunc
}

// errNotStarted reports a token that arrives before the issuers run.
var errNotStarted = errors.New("the issuers of tokens are not read yet")

// AuthenticateToken implements authenticator.Token.
func (i *issuers) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	g := i.current.Load()
	if g == nil {
		return nil, false, errNotStarted
	}
	return g.AuthenticateToken(ctx, token)
}

// make starts the issuers of a valid configuration, which read their keys until ctx ends.
func (i *issuers) make(ctx context.Context, c *apiserver.AuthenticationConfiguration) (*generation, error) {
	ctx, cancel := context.WithCancel(context.WithValue(ctx, forKeys{}, true))
	g := &generation{issuers: map[string]oidc.AuthenticatorTokenWithHealthCheck{}, cancel: cancel}
	var all []authenticator.Token
	for _, jwt := range c.JWT {
		client, err := i.client(jwt.Issuer)
		if err != nil {
			cancel()
			return nil, err
		}
		one, err := oidc.New(ctx, oidc.Options{
			JWTAuthenticator: jwt, Client: client, SupportedSigningAlgs: i.algorithms, DisallowedIssuers: i.accounts, APIServerID: i.host,
		})
		if err != nil {
			cancel()
			return nil, err
		}
		g.issuers[jwt.Issuer.URL] = one
		all = append(all, one)
	}
	// A token is of one issuer. Caches of generations are apart, so no user outlives its issuer.
	g.Token = cache.New(converting{authenticator.WrapAudienceAgnosticToken(i.audiences, union.NewFailOnError(all...))}, true, issuerCacheTTL, 0)
	return g, nil
}

// client returns a client of an issuer, which trusts its CAs, or those of the system without any.
func (i *issuers) client(of apiserver.Issuer) (*http.Client, error) {
	var roots *x509.CertPool
	if of.CertificateAuthority != "" {
		if roots = x509.NewCertPool(); !roots.AppendCertsFromPEM([]byte(of.CertificateAuthority)) {
			return nil, errors.New("certificateAuthority has no PEM certificate")
		}
	}
	transport := net.SetTransportDefaults(&http.Transport{DialContext: dialer(of.EgressSelectorType, i.egress), TLSClientConfig: &tls.Config{RootCAs: roots}})
	return egress.Client(&boundedKeys{next: admission.BoundAnswers(transport, maxIssuerResponse)}, issuerTimeout), nil
}

// dialer returns the dialer of a type of egress; nil: there is none, and connections are direct.
func dialer(kind apiserver.EgressSelectorType, of egress.Selector) egress.Dial {
	switch kind {
	case apiserver.EgressSelectorControlPlane:
		return of.ControlPlane
	case apiserver.EgressSelectorCluster:
		return of.Cluster
	}
	return nil
}

// unready returns the errors of issuers whose keys were never read, nil if there is none.
func (g *generation) unready() error {
	var errs []error
	for url, one := range g.issuers {
		if err := one.HealthCheck(); err != nil {
			errs = append(errs, fmt.Errorf("issuer %s: %w", url, err))
		}
	}
	return errors.Join(errs...)
}

// update replaces the issuers once all the new ones have answered. ctx is that of the process.
func (i *issuers) update(ctx context.Context, c *apiserver.AuthenticationConfiguration) error {
	next, err := i.make(ctx, c)
	if err != nil {
		return err
	}
	deadline := time.After(updateTimeout)
	for err = next.unready(); err != nil; err = next.unready() {
		select {
		case <-ctx.Done():
			next.cancel()
			return ctx.Err()
		case <-deadline:
			next.cancel()
			return fmt.Errorf("no answer within %s: %w", updateTimeout, err)
		case <-time.After(readyInterval):
		}
	}
	old := i.current.Swap(next)
	i.retiring.Go(func() { i.retire(ctx, old, next) })
	return nil
}

// retire ends issuers that were replaced, after the requests that use them.
func (i *issuers) retire(ctx context.Context, old, next *generation) {
	defer old.cancel()
	if !pause(ctx, retirement) {
		return
	}
	old.cancel()
	if !pause(ctx, metricsDelay) {
		return
	}
	for url := range old.issuers {
		if _, stays := next.issuers[url]; !stays {
			oidc.DeleteJWKSFetchMetrics(url, i.host)
		}
	}
}

// pause waits for d, and reports false if ctx ended before.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// readyDesc describes the metric of issuers.
var readyDesc = prometheus.NewDesc("portico_authentication_issuer_ready",
	"Whether the keys of an issuer of tokens were read since it is configured: 1, or 0 while its tokens are refused.", []string{"issuer"}, nil)

// Describe implements prometheus.Collector.
func (i *issuers) Describe(ch chan<- *prometheus.Desc) { ch <- readyDesc }

// Collect implements prometheus.Collector.
func (i *issuers) Collect(ch chan<- prometheus.Metric) {
	g := i.current.Load()
	if g == nil {
		return
	}
	for url, one := range g.issuers {
		ready := 0.0
		if one.HealthCheck() == nil {
			ready = 1
		}
		ch <- prometheus.MustNewConstMetric(readyDesc, prometheus.GaugeValue, ready, url)
	}
}
