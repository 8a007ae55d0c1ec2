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
	// is logged at the levels WARN and ERROR.
	expiryWarning = 30 * 24 * time.Hour
	expiryError   = 7 * 24 * time.Hour
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
	ends  []*reloaded[time.Time]
	desc  *prometheus.Desc
}

// NewExpiries reads the files. A file without a certificate is an error.
func NewExpiries(files ...CertificateFile) (*Expiries, error) {
	e := &Expiries{desc: prometheus.NewDesc("portico_certificate_expiration_timestamp_seconds",
		"Expiry of a certificate that the process uses, in seconds since 1970; for a file of CAs, the expiry of the last one.",
		[]string{"usage", "file"}, nil)}
	for _, f := range files {
		if f.Path == "" {
			continue
		}
		end, err := newReloaded(f.end, f.Path)
		if err != nil {
			return nil, fmt.Errorf("read %s certificate: %w", f.Usage, err)
		}
		e.files, e.ends = append(e.files, f), append(e.ends, end)
	}
	return e, nil
}

// end returns when the file's certificate expires.
func (f CertificateFile) end() (end time.Time, err error) {
	certs, err := cert.CertsFromFile(f.Path) // at least one
	if err != nil {
		return end, err
	}
	end = certs[0].NotAfter
	for _, c := range certs[1:] {
		if f.CA && c.NotAfter.After(end) {
			end = c.NotAfter
		}
	}
	return end, nil
}

// Describe implements prometheus.Collector.
func (e *Expiries) Describe(to chan<- *prometheus.Desc) { to <- e.desc }

// Collect implements prometheus.Collector.
func (e *Expiries) Collect(to chan<- prometheus.Metric) {
	for i, f := range e.files {
		to <- prometheus.MustNewConstMetric(e.desc, prometheus.GaugeValue, float64(e.ends[i].get().Unix()), f.Usage, f.Path)
	}
}

// Warnings returns a sentence for each certificate that has expired or expires within 30
// days. Files are named without their folders.
func (e *Expiries) Warnings() []string {
	var out []string
	for i := range e.files {
		if end := e.ends[i].get(); time.Until(end) <= expiryWarning {
			out = append(out, e.sentence(i, end))
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

// Log logs once a day each certificate that expires within 30 days, at level ERROR from 7
// days before its expiry on, until ctx ends.
func (e *Expiries) Log(ctx context.Context, log *slog.Logger) {
	tick := time.NewTicker(expiryInterval)
	defer tick.Stop()
	for {
		for i := range e.files {
			end := e.ends[i].get()
			level := slog.LevelWarn
			switch left := time.Until(end); {
			case left > expiryWarning:
				continue
			case left <= expiryError:
				level = slog.LevelError
			}
			log.Log(ctx, level, e.sentence(i, end), "file", e.files[i].Path)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
