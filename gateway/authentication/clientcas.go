package authentication

import (
	"crypto/x509"
	"slices"
	"sync"

	"portico/resource/authn"
)

// ClientCAs returns the authorities of the certificates of users and of front proxies, which the server names to clients as
// kube-apiserver does: a browser offers only certificates of these. It is the same pool until a file changes; nil if there are
// no authorities.
func (a *Authentication) ClientCAs() *x509.CertPool { return a.clientCAs.pool() }

// clientCAs are the authorities of several files. Safe for concurrent use.
type clientCAs struct {
	files []*authn.CAFile

	mu    sync.Mutex
	of    []*x509.CertPool // the pools of files that union was made from
	union *x509.CertPool
}

func (c *clientCAs) pool() *x509.CertPool {
	now := make([]*x509.CertPool, len(c.files))
	for i, f := range c.files {
		now[i] = f.Pool()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if slices.Equal(now, c.of) {
		return c.union
	}
	c.of, c.union = now, x509.NewCertPool()
	for _, f := range c.files {
		c.union.AppendCertsFromPEM(f.PEM())
	}
	return c.union
}
