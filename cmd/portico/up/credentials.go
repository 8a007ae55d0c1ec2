package up

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/pflag"

	"portico/cmd/internal/datadir"
	"portico/cmd/internal/pki"
	"portico/resource/authn"
)

// maxRenewInterval is the longest pause between checks of certificates.
const maxRenewInterval = 12 * time.Hour

// renewInterval is the pause between checks of certificates: a fraction of the part of a lifetime
// in which they are replaced, a third for leaves and a half for authorities.
func renewInterval(life pki.Lifetimes) time.Duration {
	interval := maxRenewInterval
	for of, parts := range map[time.Duration]time.Duration{life.Leaf: 10, life.Authority: 40} {
		if of > 0 {
			interval = min(interval, of/parts)
		}
	}
	return interval
}

// Bounds of the lifetimes: processes read renewed files within a second or two, and a leaf is renewed
// several times before its authority ends.
const (
	minLeafLifetime    = 20 * time.Second
	leavesPerAuthority = 4
)

// addLifetimes adds the flags of the lifetimes of certificates.
func addLifetimes(fs *pflag.FlagSet, to *pki.Lifetimes) {
	fs.DurationVar(&to.Leaf, "certificate-lifetime", pki.DefaultLeafLifetime, "`lifetime` of the certificates of servers and clients; they are renewed when a third of it is left")
	fs.DurationVar(&to.Authority, "certificate-authority-lifetime", pki.DefaultAuthorityLifetime, "`lifetime` of the authorities; they are replaced when half of it is left, and the key of service-account tokens with them")
}

// checkLifetimes refuses lifetimes with which certificates would end before they are renewed.
func checkLifetimes(life pki.Lifetimes) error {
	switch {
	case life.Leaf < minLeafLifetime:
		return fmt.Errorf("--certificate-lifetime=%v: must be at least %v", life.Leaf, minLeafLifetime)
	case life.Authority < leavesPerAuthority*life.Leaf:
		return fmt.Errorf("--certificate-authority-lifetime=%v: must be at least %d times --certificate-lifetime, %v", life.Authority, leavesPerAuthority, leavesPerAuthority*life.Leaf)
	}
	return nil
}

// ensureCredentials makes what is missing of certificates, keys and the
// administrator's kubeconfigs, and renews what nears its end.
func (s *stack) ensureCredentials() error {
	files, err := pki.Ensure(pki.Config{Dir: s.dir.File(datadir.PKIFolder), Hosts: s.hosts, Now: time.Now(), Lifetimes: s.flags.life})
	if err != nil {
		return err
	}
	s.files = files
	own := s.dir.File("kubeconfig")
	switch err := pki.WriteKubeconfig(own, s.endpoint, s.files.ServingCAFile, s.files.Admin); {
	case errors.Is(err, pki.ErrForeignKubeconfig):
		return fmt.Errorf("the kubeconfig %s is damaged or was not written by portico; move it away to have it written again", own)
	case err != nil || own == s.kubeconfig:
		return err
	}
	return pki.WriteKubeconfig(s.kubeconfig, s.endpoint, s.files.ServingCAFile, s.files.Admin)
}

// keepCredentials renews what nears its end, when that is due, on request and after SIGHUP, until ctx ends. The processes
// read their certificates again when the files change.
func (s *stack) keepCredentials(ctx context.Context) {
	interval := renewInterval(s.flags.life)
	due := s.nextRenewal(interval)
	for {
		timer := time.NewTimer(time.Until(due))
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		case <-s.hangups:
			timer.Stop()
		}
		err := s.ensureCredentials()
		due = s.nextRenewal(interval)
		if err != nil {
			due = time.Now().Add(interval)
			fmt.Fprintf(s.errOut, "portico: renew certificates: %v; next attempt in %v\n", err, interval)
		}
	}
}

// requestInterval is the pause between looks for requests of "portico certs rotate".
const requestInterval = time.Second

// followRequests has keepCredentials look at certificates when "portico certs rotate" requests a change, once for each
// request, until ctx ends.
func (s *stack) followRequests(ctx context.Context) {
	dir := s.dir.File(datadir.PKIFolder)
	tick := time.NewTicker(requestInterval)
	defer tick.Stop()
	var latest time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for _, r := range []pki.Rotation{pki.ReplaceAuthorities, pki.RetireAuthorities} {
			if at := r.Requested(dir); at.After(latest) {
				latest = at
				select {
				case s.hangups <- struct{}{}:
				default: // it is about to look
				}
			}
		}
	}
}

// nextRenewal returns when ensureCredentials is to be called again.
func (s *stack) nextRenewal(interval time.Duration) time.Time {
	due := time.Now().Add(interval)
	if next := s.files.NextUse; !next.IsZero() && next.Before(due) {
		return next
	}
	return due
}

// adminTLS returns the administrator's TLS configuration as a client of the
// gateway on a host. The files are read again when they change.
func adminTLS(files *pki.Files, host string) (*tls.Config, error) {
	pair, err := authn.NewKeyPair(files.Admin.CertFile, files.Admin.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("load administrator's certificate: %w", err)
	}
	ca, err := authn.NewCAFile(files.ServingCAFile)
	if err != nil {
		return nil, fmt.Errorf("load serving authority: %w", err)
	}
	config := &tls.Config{GetClientCertificate: pair.GetClientCertificate, MinVersion: tls.VersionTLS12}
	ca.VerifyServer(config, host)
	return config, nil
}
