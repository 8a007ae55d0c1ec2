package doctor

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"
	certutil "k8s.io/client-go/util/cert"

	"portico/cmd/internal/datadir"
	"portico/cmd/portico/cli"
	"portico/cmd/portico/inspect"
)

// authorityWarning is how long before its end an authority is warned of; of one that lives less than ten years a tenth
// of its life.
const authorityWarning = 365 * 24 * time.Hour

// warnAuthority returns how long before its end an authority that lives so long is warned of; 0: the life is unknown.
func warnAuthority(life time.Duration) time.Duration {
	if life == 0 {
		return authorityWarning
	}
	return min(authorityWarning, life/10)
}

func keyPairs(_ context.Context, t *target) finding {
	if t.folder == nil {
		return noFolder()
	}
	var w worst
	keys, _ := filepath.Glob(t.folder.File(datadir.PKIFolder, "*.key"))
	n := 0
	for _, key := range keys {
		if filepath.Base(key) == "service-account.key" {
			continue // it has a public key instead
		}
		n++
		if _, err := tls.LoadX509KeyPair(strings.TrimSuffix(key, ".key")+".crt", key); err != nil {
			w.fail("%s: %v", key, err)
		}
	}
	if n == 0 {
		return skip("no keys in %s", t.folder.File(datadir.PKIFolder))
	}
	return w.finding("%s", cli.Plural(n, "pair"))
}

// certificates calls each with the certificates in the data folder.
func (t *target) certificates(each func(file string, c *x509.Certificate, err error)) {
	if t.folder == nil {
		return
	}
	files, _ := filepath.Glob(t.folder.File(datadir.PKIFolder, "*.crt"))
	for _, file := range files {
		all, err := certutil.CertsFromFile(file)
		if err != nil {
			each(file, nil, err)
		}
		for _, c := range all {
			each(file, c, nil)
		}
	}
}

// end judges the end of a certificate.
func (w *worst) end(name string, ends time.Time, warnBefore time.Duration) {
	switch left := time.Until(ends); {
	case left < 0:
		w.fail("%s ended %s ago", name, duration.HumanDuration(-left))
	case left < warnBefore:
		w.warn("%s ends in %s", name, duration.HumanDuration(left))
	}
}

func certificateEnds(_ context.Context, t *target) finding {
	var w worst
	seen := map[string]bool{}
	t.certificates(func(file string, c *x509.Certificate, err error) {
		switch {
		case err != nil:
			w.fail("%v", err)
		case !c.IsCA:
			seen[file] = true
			w.end(file, c.NotAfter, inspect.WarnBefore(c.NotAfter.Sub(c.NotBefore)))
		}
	})
	lives := t.view.Metrics.CertificateLives()
	for _, s := range t.view.Metrics["portico_certificate_expiration_timestamp_seconds"] {
		if file := inspect.Label(s, "file"); !seen[file] && !strings.HasSuffix(inspect.Label(s, "usage"), "-ca") {
			seen[file] = true
			w.end(file, time.Unix(int64(inspect.Value(s)), 0), lives.WarnBefore(file))
		}
	}
	if len(seen) == 0 && len(w.failed) == 0 {
		return skip("no certificates in a data folder or in metrics")
	}
	return w.finding("%s", cli.Plural(len(seen), "certificate"))
}

func authorityEnds(_ context.Context, t *target) finding {
	var w worst
	seen := map[string]bool{}
	t.certificates(func(file string, c *x509.Certificate, err error) {
		if err == nil && c.IsCA {
			seen[file] = true
			w.end(file, c.NotAfter, warnAuthority(c.NotAfter.Sub(c.NotBefore)))
		}
	})
	lives := t.view.Metrics.CertificateLives()
	for _, s := range t.view.Metrics["portico_certificate_expiration_timestamp_seconds"] {
		if file := inspect.Label(s, "file"); !seen[file] && strings.HasSuffix(inspect.Label(s, "usage"), "-ca") {
			seen[file] = true
			w.end(file, time.Unix(int64(inspect.Value(s)), 0), warnAuthority(lives[file]))
		}
	}
	if len(seen) == 0 {
		return skip("no authorities in a data folder or in metrics")
	}
	return w.finding("%s", cli.Plural(len(seen), "authority"))
}
