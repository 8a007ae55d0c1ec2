package controllers

import (
	"context"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"portico/resource/authn"
)

// bootstrapSecrets is the informer of the Secrets of bootstrap tokens.
func (e *Env) bootstrapSecrets() cache.SharedIndexInformer {
	return e.secretsOf(metav1.NamespaceSystem, authn.BootstrapSecretType)
}

// bootstrapToken returns the bootstrap token of a Secret.
func bootstrapToken(s *corev1.Secret) *authn.BootstrapSecret {
	return &authn.BootstrapSecret{Name: s.Name, Type: string(s.Type), Data: s.Data, Terminating: s.DeletionTimestamp != nil}
}

// cleanBootstrapTokens deletes the Secrets of bootstrap tokens when they expire.
func cleanBootstrapTokens(ctx context.Context, env *Env) error {
	secrets, queue := env.bootstrapSecrets(), env.NewQueue("token_cleaner")
	Handle(env, secrets, func(_, cur *corev1.Secret) {
		if cur != nil {
			queue.Add(Key(cur))
		}
	})
	return env.workBeside(ctx, []cache.SharedIndexInformer{secrets}, Loop{Queue: queue, Workers: 1, Sync: func(ctx context.Context, namespace, name string) error {
		o, found, err := secrets.GetStore().GetByKey(namespace + "/" + name)
		if err != nil || !found {
			return err
		}
		s := o.(*corev1.Secret)
		token, now := bootstrapToken(s), env.Clock.Now()
		end := token.Expiration()
		switch {
		case end.IsZero():
			return nil
		case !token.Expired(now):
			queue.AddAfter(Key(s), end.Sub(now))
			return nil
		}
		err = env.Client.CoreV1().Secrets(namespace).Delete(ctx, name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &s.UID}})
		if apierrors.IsConflict(err) { // it is another Secret by now
			return nil
		}
		return ignoreNotFound(err)
	}})
}

// workBeside is Work with informers of the controller's own, which it runs.
func (e *Env) workBeside(ctx context.Context, informers []cache.SharedIndexInformer, loops ...Loop) error {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	for _, i := range informers {
		wg.Go(func() { i.RunWithContext(ctx) })
	}
	return e.Work(ctx, loops...)
}
