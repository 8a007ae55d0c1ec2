package core

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"portico/backends/core/controllers"
	"portico/resource"
	"portico/resource/authn"
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
)

// namespaceDefaults keeps the objects of every namespace that is not being deleted: the
// service account default and the ConfigMap kube-root-ca.crt, whichever --controllers selects.
type namespaceDefaults struct {
	core *Core
	wake loop.Signal

	mu                       sync.Mutex
	namespaces, accounts, ca *loop.Snapshot
}

func (d *namespaceDefaults) run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	follow := func(res, name string, to **loop.Snapshot) {
		opts := loop.FollowOptions{Logger: d.core.log}
		if name != "" {
			opts.Selector.Fields = fields.OneTermEqualSelector("metadata.name", name)
		}
		wg.Go(func() {
			// Follow ends with ctx only.
			_ = loop.Follow(ctx, d.core.find("", res).Store, opts, func(s loop.Snapshot) {
				d.mu.Lock()
				*to = &s
				d.mu.Unlock()
				d.wake.Set()
			})
		})
	}
	follow("namespaces", "", &d.namespaces)
	follow("serviceaccounts", defaultAccount, &d.accounts)
	follow("configmaps", rootCAName, &d.ca)
	if path := d.core.cfg.RootCAFile; path != "" {
		wg.Go(func() { _ = authn.FollowFile(ctx, path, nil, func([]byte) { d.wake.Set() }) }) // it ends with ctx
	}
	return d.core.reconcile(ctx, "namespace defaults", &d.wake, d.reconcile)
}

// reconcile creates and repairs the objects in every namespace. An error in one namespace
// does not keep it from the others.
func (d *namespaceDefaults) reconcile(ctx context.Context) error {
	d.mu.Lock()
	namespaces, accounts, ca := d.namespaces, d.accounts, d.ca
	d.mu.Unlock()
	if namespaces == nil || accounts == nil || ca == nil {
		return nil
	}
	bundle, err := d.bundle()
	errs := []error{err}
	withAccounts := d.core.selection.Has(controllers.ServiceAccount)
	for _, ns := range namespaces.Items {
		if ns.Terminating() {
			continue
		}
		if withAccounts && accounts.Get(resource.Key{Namespace: ns.Name, Name: defaultAccount}) == nil {
			errs = append(errs, addTo(ctx, d.core, d.core.find("", "serviceaccounts"),
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

// bundle reads the root CA to publish; "": none.
func (d *namespaceDefaults) bundle() (string, error) {
	if d.core.cfg.RootCAFile == "" || !d.core.selection.Has(controllers.RootCAPublisher) {
		return "", nil
	}
	data, err := os.ReadFile(d.core.cfg.RootCAFile)
	if err != nil {
		return "", fmt.Errorf("read root CA: %w", err)
	}
	return string(data), nil
}

// addTo creates an object if its namespace exists and is not being deleted. It reads the
// namespace again: the snapshots are of different times, and an object that is created
// after its namespace was drained would remain forever.
func addTo[T rest.Object](ctx context.Context, c *Core, r *rest.Resource, obj T) error {
	state, err := c.lookupNamespace(ctx, obj.GetNamespace(), true)
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
		return addTo(ctx, d.core, configMaps, &corev1.ConfigMap{
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
		metav1.SetMetaDataAnnotation(&cm.ObjectMeta, rootCANote, rootCAText)
		return nil
	})
	if err != nil && !apierrors.IsNotFound(err) { // the next snapshot shows it missing
		return fmt.Errorf("repair ConfigMap %s: %w", have.Key(), err)
	}
	return nil
}
