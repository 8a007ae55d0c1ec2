package core

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"portico/resource"
	"portico/resource/loop"
	"portico/resource/rest"
)

const (
	defaultAccount = "default"
	rootCAName     = "kube-root-ca.crt"
	rootCAKey      = "ca.crt"
	rootCANote     = "kubernetes.io/description"
	rootCAText     = "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the internal service IP or kubernetes.default.svc. " +
		"No other usage is guaranteed across distributions of Kubernetes clusters."
	// rootCAInterval is how often the file is read again.
	rootCAInterval = time.Minute
)

// namespaceDefaults keeps what every living namespace has: the service account
// default and the ConfigMap kube-root-ca.crt.
type namespaceDefaults struct {
	core *Core
	log  *slog.Logger
	wake loop.Signal

	mu                       sync.Mutex
	namespaces, accounts, ca *loop.Snapshot
}

func (d *namespaceDefaults) run(ctx context.Context) error {
	follow := func(res, name string, set func(*loop.Snapshot)) func() {
		opts := loop.FollowOptions{Logger: d.log}
		if name != "" {
			opts.Selector.Fields = fields.OneTermEqualSelector("metadata.name", name)
		}
		return func() {
			// Follow ends with ctx only.
			_ = loop.Follow(ctx, d.core.find("", res).Store, opts, func(s loop.Snapshot) {
				d.mu.Lock()
				set(&s)
				d.mu.Unlock()
				d.wake.Set()
			})
		}
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(follow("namespaces", "", func(s *loop.Snapshot) { d.namespaces = s }))
	wg.Go(follow("serviceaccounts", defaultAccount, func(s *loop.Snapshot) { d.accounts = s }))
	wg.Go(follow("configmaps", rootCAName, func(s *loop.Snapshot) { d.ca = s }))
	tick := time.NewTicker(rootCAInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-d.wake.C():
		case <-tick.C:
		}
		err := loop.Retry(ctx, loop.Backoff{}, func(ctx context.Context) error {
			err := d.reconcile(ctx)
			if err != nil && ctx.Err() == nil {
				d.log.Warn("setting up namespaces failed", "err", err)
			}
			return err
		})
		if err != nil {
			return err
		}
	}
}

// reconcile sets up every namespace that is not going. One that goes meanwhile
// is no error; what fails in one namespace does not keep it from the others.
func (d *namespaceDefaults) reconcile(ctx context.Context) error {
	d.mu.Lock()
	namespaces, accounts, ca := d.namespaces, d.accounts, d.ca
	d.mu.Unlock()
	if namespaces == nil || accounts == nil || ca == nil {
		return nil
	}
	bundle, err := d.bundle()
	errs := []error{err}
	for _, ns := range namespaces.Items {
		if ns.Terminating() {
			continue
		}
		if accounts.Get(resource.Key{Namespace: ns.Name, Name: defaultAccount}) == nil {
			errs = append(errs, addTo(ctx, d, d.core.find("", "serviceaccounts"),
				&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: ns.Name, Name: defaultAccount}}))
		}
		if bundle != "" {
			errs = append(errs, d.rootCA(ctx, ns.Name, bundle, ca.Get(resource.Key{Namespace: ns.Name, Name: rootCAName})))
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return errors.Join(errs...)
}

// bundle reads what is published as root CA; "" is nothing.
func (d *namespaceDefaults) bundle() (string, error) {
	if d.core.cfg.RootCAFile == "" {
		return "", nil
	}
	data, err := os.ReadFile(d.core.cfg.RootCAFile)
	if err != nil {
		return "", fmt.Errorf("read root CA: %w", err)
	}
	return string(data), nil
}

// addTo stores an object in a namespace that lives. The snapshots are of
// different times: one may show the account of a drained namespace missing
// while the other still shows the namespace. What were stored then would stay
// behind for good, so the namespace is looked at anew.
func addTo[T rest.Object](ctx context.Context, d *namespaceDefaults, r *rest.Resource, obj T) error {
	state, err := d.core.lookupNamespace(ctx, obj.GetNamespace(), true)
	if err != nil {
		return fmt.Errorf("look up namespace %q: %w", obj.GetNamespace(), err)
	}
	if !state.Exists || state.Terminating {
		return nil
	}
	return create(ctx, r, obj)
}

func (d *namespaceDefaults) rootCA(ctx context.Context, namespace, bundle string, have *resource.Object) error {
	configMaps := d.core.find("", "configmaps")
	if have == nil {
		return addTo(ctx, d, configMaps, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: rootCAName, Annotations: map[string]string{rootCANote: rootCAText}},
			Data:       map[string]string{rootCAKey: bundle},
		})
	}
	obj, err := configMaps.Decode(have)
	if err != nil {
		return fmt.Errorf("read ConfigMap %s: %w", have.Key(), err)
	}
	if cm := obj.(*corev1.ConfigMap); len(cm.Data) == 1 && len(cm.BinaryData) == 0 && cm.Data[rootCAKey] == bundle && cm.Annotations[rootCANote] != "" {
		return nil
	}
	_, err = rest.Modify(ctx, configMaps, have.Key(), func(cm *corev1.ConfigMap) error {
		cm.Data, cm.BinaryData = map[string]string{rootCAKey: bundle}, nil
		if cm.Annotations == nil {
			cm.Annotations = map[string]string{}
		}
		cm.Annotations[rootCANote] = rootCAText
		return nil
	})
	if isNotFound(err) {
		return nil // the next snapshot shows it missing
	}
	if err != nil {
		return fmt.Errorf("repair ConfigMap %s: %w", have.Key(), err)
	}
	return nil
}

// create stores an object of a controller; that it is there is no error.
func create[T rest.Object](ctx context.Context, r *rest.Resource, obj T) error {
	if _, err := rest.CreateObject(ctx, r, obj); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create %s %s/%s: %w", r.Kind.Kind, obj.GetNamespace(), obj.GetName(), err)
	}
	return nil
}
