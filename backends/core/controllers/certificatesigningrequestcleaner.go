package controllers

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

const (
	// cleanInterval is the pause between two looks at all requests.
	cleanInterval = time.Hour
	// keptSettled is how long a request with an outcome is kept, keptPending one without.
	keptSettled = time.Hour
	keptPending = 24 * time.Hour
)

// cleanCertificates deletes requests some time after their outcome, those without one after a
// day, and those with an expired certificate.
func cleanCertificates(ctx context.Context, env *Env) error {
	requests := env.Informers.Certificates().V1().CertificateSigningRequests()
	return env.everyInterval(ctx, cleanInterval, requests.Informer(), func(ctx context.Context) {
		all, _ := requests.Lister().List(labels.Everything()) // a lister has no errors
		for _, r := range all {
			if !outdated(r, env.Clock.Now()) {
				continue
			}
			err := env.Client.CertificatesV1().CertificateSigningRequests().Delete(ctx, r.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &r.UID}})
			if ignoreNotFound(err) != nil && ctx.Err() == nil {
				env.Log.Warn("cannot delete an outdated request", "name", r.Name, "err", err)
			}
		}
	})
}

// outdated reports whether a request is to be deleted.
func outdated(r *signingRequest, now time.Time) bool {
	older := func(t metav1.Time, d time.Duration) bool { return !t.IsZero() && now.Sub(t.Time) > d }
	if len(r.Status.Conditions) == 0 {
		return older(r.CreationTimestamp, keptPending)
	}
	issued := len(r.Status.Certificate) > 0
	for _, c := range r.Status.Conditions {
		switch c.Type {
		case certificatesv1.CertificateDenied, certificatesv1.CertificateFailed:
			if older(c.LastUpdateTime, keptSettled) {
				return true
			}
		case certificatesv1.CertificateApproved:
			if issued && (older(c.LastUpdateTime, keptSettled) || expired(r.Status.Certificate, now)) || !issued && older(c.LastUpdateTime, keptPending) {
				return true
			}
		}
	}
	return false
}

// expired reports whether the first certificate of data has expired.
func expired(data []byte, now time.Time) bool {
	block, _ := pem.Decode(data)
	if block == nil {
		return false
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	return err == nil && now.After(cert.NotAfter)
}
