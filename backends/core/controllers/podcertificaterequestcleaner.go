package controllers

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	certificateslisters "k8s.io/client-go/listers/certificates/v1"
)

const (
	// podCertificateInterval is the pause between two looks at all PodCertificateRequests,
	// keptPodCertificate how long one is kept.
	podCertificateInterval = 5 * time.Minute
	keptPodCertificate     = 15 * time.Minute
)

// cleanPodCertificates deletes PodCertificateRequests some time after their creation, by when
// they are answered and read.
func cleanPodCertificates(ctx context.Context, env *Env) error {
	requests := env.Informers.Certificates().V1().PodCertificateRequests()
	return env.everyInterval(ctx, podCertificateInterval, requests.Informer(), func(ctx context.Context) { env.cleanOldPodCertificates(ctx, requests.Lister()) })
}

// cleanOldPodCertificates deletes the requests that are old now.
func (e *Env) cleanOldPodCertificates(ctx context.Context, requests certificateslisters.PodCertificateRequestLister) {
	all, _ := requests.List(labels.Everything()) // a lister has no errors
	for _, r := range all {
		if e.Clock.Since(r.CreationTimestamp.Time) < keptPodCertificate {
			continue
		}
		err := e.Client.CertificatesV1().PodCertificateRequests(r.Namespace).Delete(ctx, r.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &r.UID}})
		if ignoreNotFound(err) != nil && ctx.Err() == nil {
			e.Log.Warn("cannot delete an old request", "namespace", r.Namespace, "name", r.Name, "err", err)
		}
	}
}
