package core

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientrest "k8s.io/client-go/rest"

	"portico/backends/core/controllers"
	"portico/backends/process"
	"portico/resource"
	"portico/resource/loop"
	"portico/resource/rest"
	"portico/resource/serve/version"
)

// assembleControllers makes the controllers; they start with Run.
func (c *Core) assembleControllers() error {
	gateway := newGatewayClient(c.cfg.Gateway.URL, c.transport)
	c.authorize = process.Authorize(gateway)
	var err error
	if c.selection, err = controllers.Select(c.cfg.Controllers); err != nil {
		return fmt.Errorf("--controllers: %w", err)
	}
	c.system = &systemNamespaces{core: c}
	c.drain, err = newDrainer(c, gateway)
	return err
}

// runParts runs everything but the listener until ctx ends or a part fails.
func (c *Core) runParts(ctx context.Context) error {
	parts := []func(context.Context) error{c.cache.Run, c.encrypted.Run, c.engine.Run, c.runControllers}
	if c.etcd != nil { // else the storage is that of a test
		parts = append(parts, func(ctx context.Context) error { return c.cfg.Identify(ctx, c.etcd, name, c.server) },
			func(ctx context.Context) error { return c.etcd.RecordVersion(ctx, name, version.Version()) })
	}
	if c.shard != nil {
		return loop.Together(process.ClientLog(ctx, c.log), append(parts, c.shard.namespaces.Run, c.shard.quotas.Run)...)
	}
	kubernetes := &kubernetesService{core: c}
	parts = append(parts, c.system.run, kubernetes.run, c.repairServices,
		(&priorityClasses{core: c}).run, (&legacyTokenTracking{core: c}).run)
	for _, run := range c.selectedParts() {
		parts = append(parts, run)
	}
	return loop.Together(process.ClientLog(ctx, c.log), parts...)
}

// selectedParts returns the controllers of this package that --controllers selects. One of them
// keeps service accounts and root certificates.
func (c *Core) selectedParts() map[string]func(context.Context) error {
	parts := map[string]func(context.Context) error{}
	if c.selection.Has(controllers.ServiceAccount) || c.selection.Has(controllers.RootCAPublisher) {
		parts["namespace defaults"] = (&namespaceDefaults{core: c}).run
	}
	if c.selection.Has(controllers.Namespace) {
		parts[controllers.Namespace] = c.drain.run
	}
	if c.selection.Has(controllers.GarbageCollector) {
		parts[controllers.GarbageCollector] = (&garbageCollector{core: c, gateway: c.drain.gateway, metrics: c.garbage}).run
	}
	return parts
}

// runControllers runs the controllers of package controllers whenever this process is the
// leader, until ctx ends.
func (c *Core) runControllers(ctx context.Context) error {
	if c.transport == nil { // the server is alone
		<-ctx.Done()
		return ctx.Err()
	}
	cfg := controllers.Config{Gateway: c.clientConfig(), Mapper: c.mapper, Serves: c.serves, Selection: c.selection, Options: c.cfg.ControllerOptions, Log: c.log}
	cfg.Options.RootCAFile = c.cfg.RootCAFile
	if c.signer != nil {
		cfg.Options.SignLegacyToken = c.signer.SignLegacy
	}
	return c.campaign(ctx, "controllers", func(ctx context.Context) {
		if err := controllers.Run(ctx, cfg); err != nil && ctx.Err() == nil {
			c.log.Error("the controllers ended", "err", err)
		}
	})
}

// serves reports whether a built-in resource is switched on.
func (c *Core) serves(gvr schema.GroupVersionResource) bool {
	return slices.ContainsFunc(c.served, func(k *rest.Kind) bool {
		return k.GroupResource() == gvr.GroupResource() && slices.Contains(k.Versions, gvr.Version)
	})
}

// clientConfig configures clients of the gateway.
func (c *Core) clientConfig() *clientrest.Config {
	return &clientrest.Config{Host: c.cfg.Gateway.URL, Transport: c.transport, QPS: -1, UserAgent: process.UserAgent(name)}
}

// campaign calls lead in one core server at a time.
func (c *Core) campaign(ctx context.Context, name string, lead func(ctx context.Context)) error {
	if c.etcd == nil { // the storage of a test, which has one server
		lead(ctx)
		return ctx.Err()
	}
	return c.etcd.Campaign(ctx, name, process.Instance(), lead)
}

// reconcile calls work until it succeeds: at once, after every signal of wake, and every
// minute. It returns when ctx ends. Each distinct error in a row is logged once.
func (c *Core) reconcile(ctx context.Context, name string, wake *loop.Signal, work func(ctx context.Context) error) error {
	tick := time.NewTicker(time.Minute)
	defer tick.Stop()
	for {
		logged := ""
		err := loop.Retry(ctx, loop.Backoff{Max: 5 * time.Second}, func(ctx context.Context) error {
			err := work(ctx)
			if err != nil && ctx.Err() == nil && err.Error() != logged {
				logged = err.Error()
				c.log.Warn("a controller failed", "controller", name, "err", err)
			}
			return err
		})
		if err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-wake.C():
		case <-tick.C:
		}
	}
}

// create stores an object of a controller. It is no error if the object exists.
func create[T rest.Object](ctx context.Context, r *rest.Resource, obj T) error {
	if _, err := rest.CreateObject(ctx, r, obj); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create %s %s/%s: %w", r.Kind.Kind, obj.GetNamespace(), obj.GetName(), err)
	}
	return nil
}

// systemNamespaces keeps the namespaces that every cluster has.
type systemNamespaces struct {
	core *Core
	wake loop.Signal
}

func systemNames() []string {
	return []string{"default", "kube-system", "kube-public", "kube-node-lease"}
}

// run creates the namespaces, and creates them again when one is missing.
func (s *systemNamespaces) run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		// Follow ends with ctx only.
		_ = loop.Follow(ctx, s.core.find("", "namespaces").Store, loop.FollowOptions{Logger: s.core.log}, func(loop.Snapshot) { s.wake.Set() })
	})
	return s.core.reconcile(ctx, "system namespaces", &s.wake, s.ensure)
}

func (s *systemNamespaces) ensure(ctx context.Context) error {
	namespaces := s.core.find("", "namespaces")
	for _, name := range systemNames() {
		_, err := namespaces.Store.Get(ctx, resource.Key{Name: name}, resource.At{Freshness: resource.Any})
		if err == nil {
			continue
		}
		if !apierrors.IsNotFound(err) {
			return err
		}
		err = create(ctx, namespaces, &corev1.Namespace{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelMetadataName: name}},
			Spec:       corev1.NamespaceSpec{Finalizers: []corev1.FinalizerName{corev1.FinalizerKubernetes}},
			Status:     corev1.NamespaceStatus{Phase: corev1.NamespaceActive},
		})
		if err != nil {
			return err
		}
	}
	s.core.started.namespaces.Store(true)
	return nil
}
