package controllers

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
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
	return env.everyInterval(ctx, podCertificateInterval, requests.Informer(), func(ctx context.Context) {
		all, _ := requests.Lister().List(labels.Everything()) // a lister has no errors
		for _, r := range all {
			if env.Clock.Since(r.CreationTimestamp.Time) < keptPodCertificate {
				continue
			}
			err := env.Client.CertificatesV1().PodCertificateRequests(r.Namespace).Delete(ctx, r.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &r.UID}})
			if ignoreNotFound(err) != nil && ctx.Err() == nil {
				env.Log.Warn("cannot delete an old request", "namespace", r.Namespace, "name", r.Name, "err", err)
			}
		}
	})
}
