package doctor

import (
	"context"
	"crypto/x509"
	"net"
	"net/http"
	"net/url"
	"time"

	"k8s.io/client-go/rest"

	"golang.org/x/net/http/httpproxy"
)

// connectTimeout bounds a connection, and a question to DNS.
const connectTimeout = 3 * time.Second

func kubeconfig(_ context.Context, t *target) finding {
	if t.gateway == nil {
		return fail("%v", t.unopened)
	}
	// The gateway says the same of all requests of a user that it does not know.
	for _, u := range t.view.Unread {
		if u.Unauthorized {
			return fail("%s", u.Why)
		}
	}
	if t.unanswered != nil {
		return fail("%v", t.unanswered)
	}
	return ok("it leads to %s", t.gateway.Host())
}

// address returns host and port of the gateway.
func (t *target) address() (host, port string, why finding, known bool) {
	if t.gateway == nil {
		return "", "", noGateway(), false
	}
	u, err := url.Parse(t.gateway.Host())
	if err != nil {
		return "", "", skip("%v", err), false
	}
	if port = u.Port(); port == "" {
		port = u.Scheme
	}
	return u.Hostname(), port, finding{}, true
}

func hostName(ctx context.Context, t *target) finding {
	host, _, why, known := t.address()
	if !known {
		return why
	}
	if net.ParseIP(host) != nil {
		return ok("%s is an address", host)
	}
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	addresses, err := net.DefaultResolver.LookupHost(ctx, host)
	if err != nil {
		return fail("%v", err)
	}
	return ok("%s is %s", host, some(addresses))
}

func port(ctx context.Context, t *target) finding {
	host, port, why, known := t.address()
	if !known {
		return why
	}
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", net.JoinHostPort(host, port))
	if err != nil {
		return fail("%v", err)
	}
	conn.Close()
	return ok("%s accepts connections", net.JoinHostPort(host, port))
}

func httpProxy(_ context.Context, t *target) finding {
	if t.gateway == nil {
		return noGateway()
	}
	u, err := url.Parse(t.gateway.Host())
	if err != nil {
		return skip("%v", err)
	}
	// Not http.ProxyFromEnvironment, which reads the environment once.
	through, err := httpproxy.FromEnvironment().ProxyFunc()(u)
	switch {
	case err != nil:
		return fail("HTTPS_PROXY: %v", err)
	case through != nil:
		return warn("requests for %s go through the proxy %s", t.gateway.Host(), through.Redacted())
	}
	return ok("requests go to the gateway without a proxy")
}

func serverCertificate(_ context.Context, t *target) finding {
	host, _, why, known := t.address()
	switch state := t.certificate(); {
	case !known:
		return why
	case t.away():
		return noGateway()
	case state == nil || len(state.PeerCertificates) == 0:
		return warn("the kubeconfig has no https:// URL")
	default:
		return judgeServer(t.gateway.Config(), host, state.PeerCertificates)
	}
}

// judgeServer verifies the chain of a server as clients with the configuration do.
func judgeServer(cfg *rest.Config, host string, chain []*x509.Certificate) finding {
	if cfg.Insecure {
		return warn("the kubeconfig says insecure-skip-tls-verify: any server is believed")
	}
	settings, err := rest.TLSConfigFor(cfg)
	if err != nil {
		return fail("%v", err)
	}
	options := x509.VerifyOptions{DNSName: host, Intermediates: x509.NewCertPool()}
	if settings != nil {
		options.Roots = settings.RootCAs
		if settings.ServerName != "" {
			options.DNSName = settings.ServerName
		}
	}
	for _, c := range chain[1:] {
		options.Intermediates.AddCert(c)
	}
	if _, err := chain[0].Verify(options); err != nil {
		return fail("%v", err)
	}
	return ok("it is valid for %s", options.DNSName)
}

const (
	// skewed is the difference of clocks to warn of, broken the one at which tokens that were just
	// made are refused. The header has seconds.
	skewed, broken = 3 * time.Second, time.Minute
)

func clock(_ context.Context, t *target) finding {
	if t.away() {
		return noGateway()
	}
	there, err := http.ParseTime(t.answer.Header.Get("Date"))
	if err != nil {
		return skip("the gateway sends no date")
	}
	return judgeClock(t.answered.Sub(there))
}

func judgeClock(ahead time.Duration) finding {
	ahead = ahead.Truncate(time.Second)
	switch {
	case ahead.Abs() > broken:
		return fail("this clock is %v ahead of the gateway's", ahead)
	case ahead.Abs() > skewed:
		return warn("this clock is %v ahead of the gateway's", ahead)
	}
	return ok("this clock and the gateway's differ by less than %v", skewed+time.Second)
}
