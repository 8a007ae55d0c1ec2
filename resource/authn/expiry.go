package authn

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/util/cert"
)

const (
	// expiryWarning and expiryError are the times before expiry from which on a certificate
	// is logged at the levels WARN and ERROR; of one that lives less than a year, a twelfth and a
	// fifty-second of its life.
	expiryWarning = 30 * 24 * time.Hour
	expiryError   = 7 * 24 * time.Hour
	// backdate is how long before they sign it signers let a certificate begin.
	backdate = 5 * time.Minute
	// expiryInterval is the interval between two warnings about one certificate.
	expiryInterval = 24 * time.Hour
)

// CertificateFile is a PEM file that a process depends on.
type CertificateFile struct {
	// Usage is what the process uses the file for: "serving", "client-ca".
	Usage string
	// Path of the file; "" omits it.
	Path string
	// CA: the file has CAs, and the last one to expire counts, since an old CA may remain
	// beside its successor. Of other files the first certificate counts, which is the leaf.
	CA bool
}

// Expiries reports when the certificates in files expire. Files are read again when they
// change. It is a prometheus.Collector. Safe for concurrent use.
type Expiries struct {
	files []CertificateFile
	ends  []*reloaded[expiry]
	// desc and life are the metrics of the end and the lifetime.
	desc, life *prometheus.Desc
}

// expiry is when a certificate ends, and how long it lives.
type expiry struct {
	end  time.Time
	life time.Duration
}

// warns reports whether the certificate ends soon, and fails whether it ends very soon.
func (x expiry) warns() bool { return time.Until(x.end) <= min(expiryWarning, x.life/12) }
func (x expiry) fails() bool { return time.Until(x.end) <= min(expiryError, x.life/52) }

// NewExpiries reads the files. A file without a certificate is an error.
func NewExpiries(files ...CertificateFile) (*Expiries, error) {
	e := &Expiries{desc: prometheus.NewDesc("portico_certificate_expiration_timestamp_seconds",
		"Expiry of a certificate that the process uses, in seconds since 1970; for a file of CAs, the expiry of the last one.",
		[]string{"usage", "file"}, nil), life: prometheus.NewDesc("portico_certificate_lifetime_seconds",
		"Lifetime, from beginning to end, of the certificate of portico_certificate_expiration_timestamp_seconds.", []string{"usage", "file"}, nil)}
	for _, f := range files {
		if f.Path == "" {
			continue
		}
		end, err := newReloaded(f.expiry, f.Path)
		if err != nil {
			return nil, fmt.Errorf("read %s certificate: %w", f.Usage, err)
		}
		e.files, e.ends = append(e.files, f), append(e.ends, end)
	}
	return e, nil
}

// expiry returns the end of the file's certificate.
func (f CertificateFile) expiry() (expiry, error) {
	certs, err := cert.CertsFromFile(f.Path) // at least one
	if err != nil {
		return expiry{}, err
	}
	last := certs[0]
	for _, c := range certs[1:] {
		if f.CA && c.NotAfter.After(last.NotAfter) {
			last = c
		}
	}
	return expiry{last.NotAfter, last.NotAfter.Sub(last.NotBefore) - backdate}, nil
}

// Describe implements prometheus.Collector.
func (e *Expiries) Describe(to chan<- *prometheus.Desc) {
	to <- e.desc
	to <- e.life
}

// Collect implements prometheus.Collector.
func (e *Expiries) Collect(to chan<- prometheus.Metric) {
	for i, f := range e.files {
		x := e.ends[i].get()
		to <- prometheus.MustNewConstMetric(e.desc, prometheus.GaugeValue, float64(x.end.Unix()), f.Usage, f.Path)
		to <- prometheus.MustNewConstMetric(e.life, prometheus.GaugeValue, x.life.Seconds(), f.Usage, f.Path)
	}
}

// Warnings returns a sentence for each certificate that has expired or expires soon: within 30
// days, or the last twelfth of a life of less than a year. Files are named without their folders.
func (e *Expiries) Warnings() []string {
	var out []string
	for i := range e.files {
		if x := e.ends[i].get(); x.warns() {
			out = append(out, e.sentence(i, x.end))
		}
	}
	return out
}

func (e *Expiries) sentence(i int, end time.Time) string {
	f := e.files[i]
	text := fmt.Sprintf("the %s certificate %s expires at %s", f.Usage, filepath.Base(f.Path), end.UTC().Format(time.RFC3339))
	if left := time.Until(end); left > 0 {
		return fmt.Sprintf("%s, in %d days", text, int(left.Hours()/24))
	}
	return text + ", in the past"
}

// Log logs once a day each certificate that expires soon, as of Warnings, at level ERROR from 7
// days before its expiry on, or in the last fifty-second of a shorter life, until ctx ends.
func (e *Expiries) Log(ctx context.Context, log *slog.Logger) {
	tick := time.NewTicker(expiryInterval)
	defer tick.Stop()
	for {
		for i := range e.files {
			x := e.ends[i].get()
			level := slog.LevelWarn
			switch {
			case !x.warns():
				continue
			case x.fails():
				level = slog.LevelError
			}
			log.Log(ctx, level, e.sentence(i, x.end), "file", e.files[i].Path)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
