package controllers

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	coreinformers "k8s.io/client-go/informers/core/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"portico/resource/authn"
)

// tokenSecrets is the informer of the Secrets with tokens of service accounts.
func (e *Env) tokenSecrets() cache.SharedIndexInformer {
	return e.secretsOf(metav1.NamespaceAll, corev1.SecretTypeServiceAccountToken)
}

// secretsOf is the informer of the Secrets of one type.
func (e *Env) secretsOf(namespace string, of corev1.SecretType) cache.SharedIndexInformer {
	return coreinformers.NewFilteredSecretInformer(e.Client, namespace, 0, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc},
		func(opts *metav1.ListOptions) {
			opts.FieldSelector = fields.OneTermEqualSelector("type", string(of)).String()
		})
}

// accountOf returns the service account that a Secret names.
func accountOf(s *corev1.Secret) (name string, uid types.UID) {
	return s.Annotations[corev1.ServiceAccountNameKey], types.UID(s.Annotations[corev1.ServiceAccountUIDKey])
}

// accountTokens keeps the Secrets with tokens of service accounts.
type accountTokens struct {
	env      *Env
	accounts corelisters.ServiceAccountLister
	rootCA   atomic.Pointer[[]byte] // empty: none are published
}

// fillTokenSecrets puts a token, the namespace and the certificates of Options.RootCAFile, which
// is read again when it changes, into Secrets of the type kubernetes.io/service-account-token, and deletes those
// of accounts that do not exist. A deleted Secret is removed from the list of its account.
func fillTokenSecrets(ctx context.Context, env *Env) error {
	if env.Options.SignLegacyToken == nil {
		<-ctx.Done()
		return ctx.Err()
	}
	accounts := env.Informers.Core().V1().ServiceAccounts()
	t := &accountTokens{env: env, accounts: accounts.Lister()}
	var first []byte
	if env.Options.RootCAFile != "" {
		var err error
		if first, err = os.ReadFile(env.Options.RootCAFile); err != nil {
			return fmt.Errorf("read root CA: %w", err)
		}
	}
	t.rootCA.Store(&first)
	secrets := env.tokenSecrets()
	filled, gone := env.NewQueue("serviceaccount_tokens_secret"), env.NewQueue("serviceaccount_tokens_service")
	Handle(env, secrets, func(old, cur *corev1.Secret) {
		if cur != nil {
			filled.Add(Key(cur))
		} else if name, _ := accountOf(old); name != "" {
			gone.Add(old.Namespace + "/" + name + ":" + old.Name)
		}
	})
	Handle(env, accounts.Informer(), func(old, cur *corev1.ServiceAccount) {
		if old == nil || cur != nil && old.UID == cur.UID {
			return
		}
		list, _ := secrets.GetIndexer().ByIndex(cache.NamespaceIndex, old.Namespace) // the index exists
		for _, o := range list {
			if s := o.(*corev1.Secret); s.Annotations[corev1.ServiceAccountNameKey] == old.Name {
				filled.Add(Key(s))
			}
		}
	})
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	if env.Options.RootCAFile != "" {
		wg.Go(func() {
			_ = authn.FollowFile(ctx, env.Options.RootCAFile, first, func(data []byte) { // it ends with ctx
				t.rootCA.Store(&data)
				for _, key := range secrets.GetStore().ListKeys() {
					filled.Add(key)
				}
			})
		})
	}
	return env.workBeside(ctx, []cache.SharedIndexInformer{secrets}, Loop{Queue: filled, Workers: 5, Sync: t.fill}, Loop{Queue: gone, Workers: 1, Sync: t.forget})
}

// fill completes a Secret, or deletes it if its account does not exist.
func (t *accountTokens) fill(ctx context.Context, namespace, name string) error {
	secrets := t.env.Client.CoreV1().Secrets(namespace)
	s, err := secrets.Get(ctx, name, metav1.GetOptions{})
	if err != nil || s.Type != corev1.SecretTypeServiceAccountToken || s.DeletionTimestamp != nil {
		return ignoreNotFound(err)
	}
	account, uid := accountOf(s)
	if account == "" {
		return nil
	}
	sa, err := t.account(ctx, namespace, account, uid)
	switch {
	case err != nil:
		return err
	case sa == nil:
		err := secrets.Delete(ctx, name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &s.UID}})
		if apierrors.IsConflict(err) { // it is another Secret by now
			return nil
		}
		return ignoreNotFound(err)
	}
	rootCA := *t.rootCA.Load()
	stale := len(rootCA) > 0 && !bytes.Equal(s.Data[corev1.ServiceAccountRootCAKey], rootCA)
	if !stale && len(s.Data[corev1.ServiceAccountNamespaceKey]) > 0 && len(s.Data[corev1.ServiceAccountTokenKey]) > 0 {
		return nil
	}
	if s.Data == nil {
		s.Data = map[string][]byte{}
	}
	if stale {
		s.Data[corev1.ServiceAccountRootCAKey] = rootCA
	}
	if len(s.Data[corev1.ServiceAccountNamespaceKey]) == 0 {
		s.Data[corev1.ServiceAccountNamespaceKey] = []byte(namespace)
	}
	if len(s.Data[corev1.ServiceAccountTokenKey]) == 0 {
		token, err := t.env.Options.SignLegacyToken(namespace, name, sa.Name, string(sa.UID))
		if err != nil {
			return err
		}
		s.Data[corev1.ServiceAccountTokenKey] = []byte(token)
	}
	metav1.SetMetaDataAnnotation(&s.ObjectMeta, corev1.ServiceAccountNameKey, sa.Name)
	metav1.SetMetaDataAnnotation(&s.ObjectMeta, corev1.ServiceAccountUIDKey, string(sa.UID))
	_, err = secrets.Update(ctx, s, metav1.UpdateOptions{})
	return ignoreNotFound(err)
}

// account returns a service account; nil if there is none, or one of another uid ("" is any).
func (t *accountTokens) account(ctx context.Context, namespace, name string, uid types.UID) (*corev1.ServiceAccount, error) {
	if sa, err := t.accounts.ServiceAccounts(namespace).Get(name); err == nil && (uid == "" || uid == sa.UID) {
		return sa, nil
	}
	sa, err := t.env.Client.CoreV1().ServiceAccounts(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil || uid != "" && uid != sa.UID {
		return nil, ignoreNotFound(err)
	}
	return sa, nil
}

// forget removes a Secret that is gone from the list of its account. key is account:secret.
func (t *accountTokens) forget(ctx context.Context, namespace, key string) error {
	account, secret, _ := strings.Cut(key, ":")
	client := t.env.Client.CoreV1()
	if _, err := client.Secrets(namespace).Get(ctx, secret, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		return err // it is there again
	}
	sa, err := client.ServiceAccounts(namespace).Get(ctx, account, metav1.GetOptions{})
	if err != nil {
		return ignoreNotFound(err)
	}
	listed := len(sa.Secrets)
	sa.Secrets = slices.DeleteFunc(sa.Secrets, func(r corev1.ObjectReference) bool { return r.Name == secret })
	if len(sa.Secrets) == listed {
		return nil
	}
	_, err = client.ServiceAccounts(namespace).Update(ctx, sa, metav1.UpdateOptions{})
	return ignoreNotFound(err)
}
