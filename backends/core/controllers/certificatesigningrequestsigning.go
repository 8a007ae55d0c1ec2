package controllers

import (
	"bytes"
	"context"
	"crypto"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"portico/resource/authn"
)

type signingRequest = certificatesv1.CertificateSigningRequest

// legacyUnknownSigner is the signer of requests of earlier versions of the API.
const legacyUnknownSigner = "kubernetes.io/legacy-unknown"

// SigningFiles are a certificate authority and its key, in PEM.
type SigningFiles struct{ CertFile, KeyFile string }

// Signing is what certificates are signed with. The files are read again when they change.
type Signing struct {
	// SigningFiles are for all signers, the others for one each. Those for all exclude the
	// others; without files a signer signs nothing.
	SigningFiles
	KubeletServing, KubeletClient, KubeAPIServerClient, LegacyUnknown SigningFiles
	// Duration is the longest lifetime of a certificate. Default: DefaultSigningDuration.
	Duration time.Duration
}

// DefaultSigningDuration is the longest lifetime of a certificate if no other is given.
const DefaultSigningDuration = 365 * 24 * time.Hour

// For returns the files of each signer.
func (s *Signing) For() map[string]*SigningFiles {
	return map[string]*SigningFiles{
		certificatesv1.KubeletServingSignerName: &s.KubeletServing, certificatesv1.KubeAPIServerClientKubeletSignerName: &s.KubeletClient,
		certificatesv1.KubeAPIServerClientSignerName: &s.KubeAPIServerClient, legacyUnknownSigner: &s.LegacyUnknown,
	}
}

// Empty reports whether there are no files.
func (s *Signing) Empty() bool {
	for _, f := range s.For() {
		if *f != (SigningFiles{}) {
			return false
		}
	}
	return s.SigningFiles == SigningFiles{}
}

// Check returns an error if the files exclude each other or cannot be read.
func (s *Signing) Check() error {
	_, err := s.authorities()
	return err
}

// authorities reads the authority of each signer that has one.
func (s *Signing) authorities() (map[string]*authn.KeyPair, error) {
	out, common, single := map[string]*authn.KeyPair{}, s.SigningFiles, Signing{}
	if common != (SigningFiles{}) {
		single.KubeletServing, single.KubeletClient, single.KubeAPIServerClient, single.LegacyUnknown = common, common, common, common
		own := *s
		own.SigningFiles = SigningFiles{}
		if !own.Empty() {
			return nil, errors.New("cannot specify --cluster-signing-{cert,key}-file and other --cluster-signing-*-file flags at the same time")
		}
		s = &single
	}
	for signer, f := range s.For() {
		switch {
		case *f == SigningFiles{}:
			continue
		case f.CertFile == "":
			return nil, fmt.Errorf("the authority of %s: cannot specify key without cert", signer)
		case f.KeyFile == "":
			return nil, fmt.Errorf("the authority of %s: cannot specify cert without key", signer)
		}
		pair, err := authn.NewKeyPair(f.CertFile, f.KeyFile)
		if err == nil && !current(pair).Leaf.IsCA {
			err = fmt.Errorf("%s is not the certificate of an authority", f.CertFile)
		}
		if err != nil {
			return nil, fmt.Errorf("the authority of %s: %w", signer, err)
		}
		out[signer] = pair
	}
	return out, nil
}

func current(authority *authn.KeyPair) *tls.Certificate {
	pair, _ := authority.GetCertificate(nil) // it has no errors
	return pair
}

// signCertificates signs the approved requests to the built-in signers that have an authority.
func signCertificates(ctx context.Context, env *Env) error {
	authorities, err := env.Options.Signing.authorities()
	if err != nil {
		return err
	}
	if len(authorities) == 0 {
		<-ctx.Done()
		return ctx.Err()
	}
	return env.workRequests(ctx, "certificate", func(ctx context.Context, r *signingRequest) error {
		authority := authorities[r.Spec.SignerName]
		if authority == nil || !has(r, certificatesv1.CertificateApproved) || has(r, certificatesv1.CertificateDenied) || has(r, certificatesv1.CertificateFailed) {
			return nil
		}
		request, err := parseRequest(r.Spec.Request)
		if err != nil {
			return fmt.Errorf("unable to parse csr %q: %w", r.Name, err)
		}
		if err := checkRequest(request, r.Spec.SignerName, r.Spec.Usages); err != nil {
			r.Status.Conditions = append(r.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
				Type: certificatesv1.CertificateFailed, Status: corev1.ConditionTrue, Reason: "SignerValidationFailure",
				Message: err.Error(), LastUpdateTime: metav1.NewTime(env.Clock.Now()),
			})
		} else if r.Status.Certificate, err = sign(current(authority), request, r, env.Options.Signing.Duration, env.Clock.Now()); err != nil {
			return fmt.Errorf("error auto signing csr: %w", err)
		}
		_, err = env.Client.CertificatesV1().CertificateSigningRequests().UpdateStatus(ctx, r, metav1.UpdateOptions{})
		return err
	})
}

// workRequests calls handle for each request without a certificate, in its latest state, until
// ctx ends.
func (e *Env) workRequests(ctx context.Context, name string, handle func(context.Context, *signingRequest) error) error {
	informer := e.Informers.Certificates().V1().CertificateSigningRequests()
	queue := e.NewQueue(name, workqueue.NewTypedItemExponentialFailureRateLimiter[string](200*time.Millisecond, 1000*time.Second))
	Handle(e, informer.Informer(), func(_, r *signingRequest) {
		if r != nil && len(r.Status.Certificate) == 0 {
			queue.Add(Key(r))
		}
	})
	return e.Work(ctx, Loop{Queue: queue, Workers: 5, Sync: func(ctx context.Context, _, name string) error {
		r, err := informer.Lister().Get(name)
		if err != nil || len(r.Status.Certificate) > 0 {
			return ignoreNotFound(err)
		}
		r, err = e.Client.CertificatesV1().CertificateSigningRequests().Get(ctx, name, metav1.GetOptions{})
		if err != nil || len(r.Status.Certificate) > 0 {
			return ignoreNotFound(err)
		}
		return ignoreNotFound(handle(ctx, r))
	}})
}

// has reports whether a request has a condition of a type. Those of the types used here are true.
func has(r *signingRequest, t certificatesv1.RequestConditionType) bool {
	return slices.ContainsFunc(r.Status.Conditions, func(c certificatesv1.CertificateSigningRequestCondition) bool { return c.Type == t })
}

func parseRequest(data []byte) (*x509.CertificateRequest, error) {
	block, _ := pem.Decode(data)
	if block == nil || block.Type != "CERTIFICATE REQUEST" {
		return nil, errors.New("PEM block type must be CERTIFICATE REQUEST")
	}
	return x509.ParseCertificateRequest(block.Bytes)
}

const (
	// backdated is how long before its signature a certificate begins.
	backdated = 5 * time.Minute
	// shortLived is the lifetime from which on it is counted from that beginning. A shorter
	// one is counted from the signature.
	shortLived = 8 * time.Hour
	// leastLife is the shortest lifetime.
	leastLife = 10 * time.Minute
)

// lifetime returns the lifetime of a certificate; longest is the Duration of Signing.
func lifetime(asked *int32, longest time.Duration) time.Duration {
	if longest == 0 {
		longest = DefaultSigningDuration
	}
	if asked == nil {
		return longest
	}
	return min(max(time.Duration(*asked)*time.Second, leastLife), longest)
}

// sign returns the certificate in PEM, followed by those of the authorities below the root that
// a verifier needs, if the authority is not a root itself.
func sign(authority *tls.Certificate, request *x509.CertificateRequest, r *signingRequest, longest time.Duration, now time.Time) ([]byte, error) {
	if err := request.CheckSignature(); err != nil {
		return nil, fmt.Errorf("unable to verify certificate request signature: %w", err)
	}
	ca := authority.Leaf
	if !ca.IsCA {
		return nil, fmt.Errorf("%q is not the certificate of an authority", ca.Subject)
	}
	if !now.Before(ca.NotAfter) {
		return nil, fmt.Errorf("the signer has expired: NotAfter=%v", ca.NotAfter)
	}
	template := &x509.Certificate{
		Subject: request.Subject, DNSNames: request.DNSNames, IPAddresses: request.IPAddresses, EmailAddresses: request.EmailAddresses, URIs: request.URIs,
		BasicConstraintsValid: true, NotBefore: now.Add(-backdated),
	}
	var err error
	if template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 128)); err != nil {
		return nil, err
	}
	if template.KeyUsage, template.ExtKeyUsage, err = keyUsages(r.Spec.Usages); err != nil {
		return nil, err
	}
	life := lifetime(r.Spec.ExpirationSeconds, longest)
	if life >= shortLived {
		life -= backdated
	}
	if template.NotAfter = now.Add(life); template.NotAfter.After(ca.NotAfter) {
		template.NotAfter = ca.NotAfter
	}
	der, err := x509.CreateCertificate(rand.Reader, template, ca, request.PublicKey, authority.PrivateKey.(crypto.Signer))
	if err != nil {
		return nil, fmt.Errorf("failed to sign certificate: %w", err)
	}
	out := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	if bytes.Equal(ca.RawIssuer, ca.RawSubject) {
		return out, nil
	}
	for _, der := range authority.Certificate {
		out = append(out, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})...)
	}
	return out, nil
}

var usages = map[certificatesv1.KeyUsage]x509.KeyUsage{
	certificatesv1.UsageSigning: x509.KeyUsageDigitalSignature, certificatesv1.UsageDigitalSignature: x509.KeyUsageDigitalSignature,
	certificatesv1.UsageContentCommitment: x509.KeyUsageContentCommitment, certificatesv1.UsageKeyEncipherment: x509.KeyUsageKeyEncipherment,
	certificatesv1.UsageKeyAgreement: x509.KeyUsageKeyAgreement, certificatesv1.UsageDataEncipherment: x509.KeyUsageDataEncipherment,
	certificatesv1.UsageCertSign: x509.KeyUsageCertSign, certificatesv1.UsageCRLSign: x509.KeyUsageCRLSign,
	certificatesv1.UsageEncipherOnly: x509.KeyUsageEncipherOnly, certificatesv1.UsageDecipherOnly: x509.KeyUsageDecipherOnly,
}

var extendedUsages = map[certificatesv1.KeyUsage]x509.ExtKeyUsage{
	certificatesv1.UsageAny: x509.ExtKeyUsageAny, certificatesv1.UsageServerAuth: x509.ExtKeyUsageServerAuth,
	certificatesv1.UsageClientAuth: x509.ExtKeyUsageClientAuth, certificatesv1.UsageCodeSigning: x509.ExtKeyUsageCodeSigning,
	certificatesv1.UsageEmailProtection: x509.ExtKeyUsageEmailProtection, certificatesv1.UsageSMIME: x509.ExtKeyUsageEmailProtection,
	certificatesv1.UsageIPsecEndSystem: x509.ExtKeyUsageIPSECEndSystem, certificatesv1.UsageIPsecTunnel: x509.ExtKeyUsageIPSECTunnel,
	certificatesv1.UsageIPsecUser: x509.ExtKeyUsageIPSECUser, certificatesv1.UsageTimestamping: x509.ExtKeyUsageTimeStamping,
	certificatesv1.UsageOCSPSigning: x509.ExtKeyUsageOCSPSigning, certificatesv1.UsageMicrosoftSGC: x509.ExtKeyUsageMicrosoftServerGatedCrypto,
	certificatesv1.UsageNetscapeSGC: x509.ExtKeyUsageNetscapeServerGatedCrypto,
}

func keyUsages(list []certificatesv1.KeyUsage) (usage x509.KeyUsage, extended []x509.ExtKeyUsage, err error) {
	var unknown []certificatesv1.KeyUsage
	for _, u := range list {
		if v, ok := usages[u]; ok {
			usage |= v
		} else if v, ok := extendedUsages[u]; ok {
			extended = append(extended, v)
		} else {
			unknown = append(unknown, u)
		}
	}
	if len(unknown) > 0 {
		return 0, nil, fmt.Errorf("unrecognized usage values: %q", unknown)
	}
	slices.Sort(extended)
	return usage, slices.Compact(extended), nil
}

// everyInterval calls work when the informers are filled, and then every interval until ctx
// ends.
func (e *Env) everyInterval(ctx context.Context, interval time.Duration, informer cache.SharedIndexInformer, work func(ctx context.Context)) error {
	e.Use(informer)
	if err := e.Fill(ctx); err != nil {
		return err
	}
	tick := e.Clock.NewTicker(interval)
	defer tick.Stop()
	for {
		work(ctx)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C():
		}
	}
}
