package authn

import (
	"bytes"
	"context"
	"crypto/elliptic"
	"crypto/x509/pkix"
	"encoding/pem"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const day = 24 * time.Hour

// expiringFile writes certificates with these ends into a file.
func expiringFile(t *testing.T, name string, ends ...time.Time) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	writeExpiring(t, path, ends...)
	return path
}

func writeExpiring(t *testing.T, path string, ends ...time.Time) {
	t.Helper()
	writeLiving(t, path, 400*day, ends...)
}

// writeLiving writes certificates of a life with these ends.
func writeLiving(t *testing.T, path string, life time.Duration, ends ...time.Time) {
	t.Helper()
	var all []byte
	key := newECKey(t, elliptic.P256())
	for _, end := range ends {
		template := leafTemplate(pkix.Name{CommonName: "expiring"}, end)
		template.NotBefore = end.Add(-life - backdate)
		cert := signCert(t, template, template, key.Public(), key)
		all = append(all, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw})...)
	}
	if err := os.WriteFile(path, all, 0o600); err != nil {
		t.Fatal(err)
	}
}

// lockedBuffer is a buffer that is written to while it is read.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

// take returns what was written since the last call.
func (b *lockedBuffer) take() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	defer b.buf.Reset()
	return b.buf.String()
}

// A certificate is logged once a day from 30 days before its expiry, as an error from 7 days
// on, until its file has a new one.
func TestExpiringCertificatesAreLogged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		leaf := expiringFile(t, "gateway.crt", began.Add(40*day), began.Add(400*day))
		ca := expiringFile(t, "ca.crt", began.Add(40*day), began.Add(400*day))
		e, err := NewExpiries(CertificateFile{Usage: "serving", Path: leaf}, CertificateFile{Usage: "client-ca", Path: ca, CA: true}, CertificateFile{})
		if err != nil {
			t.Fatal(err)
		}
		var out lockedBuffer
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go e.Log(ctx, slog.New(slog.NewTextHandler(&out, nil)))
		since := func(days int) (warnings, errors int) {
			out.take()
			time.Sleep(time.Duration(days) * day)
			synctest.Wait()
			text := out.take()
			return strings.Count(text, "level=WARN"), strings.Count(text, "level=ERROR")
		}
		time.Sleep(time.Hour)
		for _, stage := range []struct{ days, warnings, errors int }{{9, 0, 0}, {23, 23, 0}, {8, 0, 8}, {5, 0, 5}} {
			if w, e := since(stage.days); w != stage.warnings || e != stage.errors {
				t.Errorf("%d days until %v: %d warnings and %d errors, want %d and %d", stage.days, time.Since(began), w, e, stage.warnings, stage.errors)
			}
		}
		if got := strings.Join(e.Warnings(), "\n"); !strings.Contains(got, "the serving certificate gateway.crt expires at") || !strings.Contains(got, "in the past") || strings.Contains(got, "ca.crt") || strings.Contains(got, string(filepath.Separator)) {
			t.Errorf("warnings: %q", got)
		}
		writeExpiring(t, leaf, time.Now().Add(365*day))
		if err := os.Chtimes(leaf, time.Time{}, time.Now()); err != nil {
			t.Fatal(err)
		}
		if w, e := since(3); w+e != 0 {
			t.Errorf("a renewed certificate is warned of: %d warnings and %d errors", w, e)
		}
		if got := e.Warnings(); got != nil {
			t.Errorf("warnings of a renewed certificate: %q", got)
		}
	})
}

// A certificate that lives less than a year is warned of in the last twelfth of its life: not while it is
// renewed in time.
func TestShortLivesAreWarnedOfLate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, tc := range []struct {
			life, left time.Duration
			want       int
		}{
			{20 * time.Second, 7 * time.Second, 0}, {20 * time.Second, 2 * time.Second, 0}, {20 * time.Second, time.Second, 1},
			{day, 3 * time.Hour, 0}, {day, time.Hour, 1}, {400 * day, 31 * day, 0}, {400 * day, 29 * day, 1}, {3650 * day, 31 * day, 0},
		} {
			path := filepath.Join(t.TempDir(), "a.crt")
			writeLiving(t, path, tc.life, time.Now().Add(tc.left))
			e, err := NewExpiries(CertificateFile{Usage: "serving", Path: path})
			if err != nil {
				t.Fatal(err)
			}
			if got := e.Warnings(); len(got) != tc.want {
				t.Errorf("life %v, left %v: %q, want %d warnings", tc.life, tc.left, got, tc.want)
			}
		}
	})
}

// The expiry and the lifetime of each certificate are metrics.
func TestExpiryMetric(t *testing.T) {
	t.Parallel()
	end := time.Unix(4e9, 0)
	path := expiringFile(t, "a.crt", end)
	e, err := NewExpiries(CertificateFile{Usage: "serving", Path: path})
	if err != nil {
		t.Fatal(err)
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(e)
	families, err := registry.Gather()
	if err != nil || len(families) != 2 || len(families[0].Metric) != 1 || len(families[1].Metric) != 1 {
		t.Fatalf("got %v, %v, want two metrics", families, err)
	}
	if life := families[1].Metric[0].Gauge.GetValue(); life < 300*24*3600 || families[1].GetName() != "portico_certificate_lifetime_seconds" {
		t.Errorf("got %v", families[1])
	}
	if value := families[0].Metric[0].Gauge.GetValue(); value != 4e9 || families[0].GetName() != "portico_certificate_expiration_timestamp_seconds" {
		t.Errorf("got %v", families[0])
	}
	labels := map[string]string{}
	for _, l := range families[0].Metric[0].Label {
		labels[l.GetName()] = l.GetValue()
	}
	if labels["usage"] != "serving" || labels["file"] != path {
		t.Errorf("labels: %v", labels)
	}
}

// The error for a file without a certificate has its path.
func TestFileWithoutCertificate(t *testing.T) {
	t.Parallel()
	path := expiringFile(t, "empty.crt")
	if _, err := NewExpiries(CertificateFile{Usage: "serving", Path: path}); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("got %v", err)
	}
}
