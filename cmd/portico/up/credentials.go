package up

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"time"

	"portico/cmd/internal/datadir"
	"portico/cmd/internal/pki"
	"portico/resource/authn"
)

// renewInterval is the pause between checks of certificates. They are renewed when a
// third of their lifetime is left.
const renewInterval = 12 * time.Hour

// ensureCredentials makes what is missing of certificates, keys and the
// administrator's kubeconfigs, and renews what nears its end.
func (s *stack) ensureCredentials() (err error) {
	if s.files, err = pki.Ensure(pki.Config{Dir: s.dir.File(datadir.PKIFolder), Hosts: s.hosts, Now: time.Now()}); err != nil {
		return err
	}
	own := s.dir.File("kubeconfig")
	switch err := pki.WriteKubeconfig(own, s.endpoint, s.files.ServingCAFile, s.files.Admin); {
	case errors.Is(err, pki.ErrForeignKubeconfig):
		return fmt.Errorf("the kubeconfig %s is damaged or was not written by portico; move it away to have it written again", own)
	case err != nil || own == s.kubeconfig:
		return err
	}
	return pki.WriteKubeconfig(s.kubeconfig, s.endpoint, s.files.ServingCAFile, s.files.Admin)
}

// keepCredentials renews what nears its end, every renewInterval and after SIGHUP, until ctx ends. The processes read
// their certificates again when the files change.
func (s *stack) keepCredentials(ctx context.Context) {
	tick := time.NewTicker(renewInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-s.hangups:
		}
		if err := s.ensureCredentials(); err != nil {
			fmt.Fprintf(s.errOut, "portico: renew certificates: %v; next attempt in %v\n", err, renewInterval)
		}
	}
}

// adminTLS returns the administrator's TLS configuration as a client of the
// gateway. The certificate is read again when its file changes.
func adminTLS(files *pki.Files) (*tls.Config, error) {
	pair, err := authn.NewKeyPair(files.Admin.CertFile, files.Admin.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("load administrator's certificate: %w", err)
	}
	ca, err := authn.NewCAFile(files.ServingCAFile)
	if err != nil {
		return nil, fmt.Errorf("load serving authority: %w", err)
	}
	return &tls.Config{RootCAs: ca.Pool(), GetClientCertificate: pair.GetClientCertificate, MinVersion: tls.VersionTLS12}, nil
}
