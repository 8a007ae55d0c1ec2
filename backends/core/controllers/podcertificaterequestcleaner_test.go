package controllers

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"testing"
	"time"

	"portico/internal/testing/await"

	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
)

// A PodCertificateRequest is deleted a quarter of an hour after its creation, and not earlier.
func TestPodCertificateRequestCleaner(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	key := must[*ecdsa.PrivateKey](t)(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	client := s.CertificatesV1().PodCertificateRequests("default")
	made := must[*certificatesv1.PodCertificateRequest](t)(client.Create(t.Context(), &certificatesv1.PodCertificateRequest{
		ObjectMeta: metav1.ObjectMeta{Name: "a"},
		Spec: certificatesv1.PodCertificateRequestSpec{
			SignerName: "example.com/signer", PodName: "p", PodUID: "1", ServiceAccountName: "default", ServiceAccountUID: "2", NodeName: "n", NodeUID: "3",
			StubPKCS10Request: must[[]byte](t)(x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)),
		},
	}, metav1.CreateOptions{}))
	clock := clocktesting.NewFakeClock(made.CreationTimestamp.Add(keptPodCertificate - time.Second))
	env := s.env("podcertificaterequest-cleaner-controller", Options{}, clock)
	requests := env.Informers.Certificates().V1().PodCertificateRequests()
	env.Use(requests.Informer())
	if err := env.Fill(t.Context()); err != nil {
		t.Fatal(err)
	}
	env.cleanOldPodCertificates(t.Context(), requests.Lister())
	must[*certificatesv1.PodCertificateRequest](t)(client.Get(t.Context(), "a", metav1.GetOptions{}))
	clock.Step(time.Second)
	s.run("podcertificaterequest-cleaner-controller", Options{}, clock)
	await.Until(t, "the request is gone", func() bool {
		_, err := client.Get(t.Context(), "a", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
}
