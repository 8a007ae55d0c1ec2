package controllers

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"

	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	certificatesinformers "k8s.io/client-go/informers/certificates/v1"
	"k8s.io/client-go/tools/cache"

	"portico/resource/authn"
)

// servingSigner is the signer of the certificates of API servers.
const servingSigner = "kubernetes.io/kube-apiserver-serving"

// publishServingTrust keeps one ClusterTrustBundle of servingSigner, with the certificates of
// Options.RootCAFile, named after them, which is read again when it changes.
func publishServingTrust(ctx context.Context, env *Env) error {
	if env.Options.RootCAFile == "" {
		<-ctx.Done()
		return ctx.Err()
	}
	first, err := os.ReadFile(env.Options.RootCAFile)
	if err != nil {
		return fmt.Errorf("read root CA: %w", err)
	}
	var bundle atomic.Pointer[[]byte]
	bundle.Store(&first)
	informer := certificatesinformers.NewFilteredClusterTrustBundleInformer(env.Client, 0, cache.Indexers{}, func(opts *metav1.ListOptions) {
		opts.FieldSelector = fields.OneTermEqualSelector("spec.signerName", servingSigner).String()
	})
	queue := env.NewQueue("ca_cert_publisher_cluster_trust_bundles")
	queue.Add(servingSigner)
	Handle(env, informer, func(_, _ *certificatesv1.ClusterTrustBundle) { queue.Add(servingSigner) })
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	wg.Go(func() { informer.RunWithContext(ctx) })
	wg.Go(func() {
		_ = authn.FollowFile(ctx, env.Options.RootCAFile, first, func(data []byte) { // it ends with ctx
			bundle.Store(&data)
			queue.Add(servingSigner)
		})
	})
	return env.Work(ctx, Loop{Queue: queue, Workers: 1, Sync: func(ctx context.Context, _, _ string) error {
		return env.keepBundle(ctx, informer.GetStore(), string(*bundle.Load()))
	}})
}

// keepBundle creates or repairs a bundle of servingSigner and deletes the others of stored.
func (e *Env) keepBundle(ctx context.Context, stored cache.Store, bundle string) error {
	name := fmt.Sprintf("%s:%x", strings.ReplaceAll(servingSigner, "/", ":"), sha256.Sum256([]byte(bundle)))
	name = name[:len(name)-2*(sha256.Size-12)] // 12 bytes of the digest
	client := e.Client.CertificatesV1().ClusterTrustBundles()
	o, ok, _ := stored.GetByKey(name) // it has no errors
	var err error
	if !ok {
		_, err = client.Create(ctx, &certificatesv1.ClusterTrustBundle{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:       certificatesv1.ClusterTrustBundleSpec{SignerName: servingSigner, TrustBundle: bundle},
		}, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			return errStale
		}
	} else if b := o.(*certificatesv1.ClusterTrustBundle); b.Spec.TrustBundle != bundle {
		b = b.DeepCopy()
		b.Spec.TrustBundle = bundle
		_, err = client.Update(ctx, b, metav1.UpdateOptions{})
	}
	if err != nil {
		return err
	}
	for _, other := range stored.ListKeys() {
		if other == name {
			continue
		}
		if err := ignoreNotFound(client.Delete(ctx, other, metav1.DeleteOptions{})); err != nil {
			return err
		}
	}
	return nil
}
