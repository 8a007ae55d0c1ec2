package core

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico/resource"
	"portico/resource/loop"
	"portico/resource/rest"
)

func isNotFound(err error) bool { return apierrors.IsNotFound(err) }

// assembleControllers makes the controllers; they start with Run.
func (c *Core) assembleControllers() error {
	c.system = &systemNamespaces{namespaces: c.find("", "namespaces"), log: c.log}
	c.drain = newDrainer(c, newGatewayClient(c.cfg.Gateway.URL, c.way))
	return nil
}

// runParts runs everything but the server until ctx ends or one of them fails.
func (c *Core) runParts(ctx context.Context) error {
	defaults := &namespaceDefaults{core: c, log: c.log}
	kubernetes := &kubernetesService{core: c, log: c.log}
	parts := []func(context.Context) error{
		c.cache.Run, c.system.run, defaults.run, c.drain.run, kubernetes.run, c.freeAddresses,
	}
	if c.engine != nil {
		parts = append(parts, c.engine.Run)
	}
	return loop.Together(ctx, parts...)
}

// systemInterval is how often the system namespaces are looked at even if
// nothing is seen to have happened to them.
const systemInterval = time.Minute

// systemNamespaces keeps the namespaces that every cluster has.
type systemNamespaces struct {
	namespaces *rest.Resource
	log        *slog.Logger

	mu   sync.Mutex
	done bool
}

func systemNames() []string {
	return []string{"default", "kube-system", "kube-public", "kube-node-lease"}
}

func (s *systemNamespaces) ready() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.done {
		return fmt.Errorf("the system namespaces are not there yet")
	}
	return nil
}

// run creates the namespaces, and again whenever one is missing.
func (s *systemNamespaces) run(ctx context.Context) error {
	var wake loop.Signal
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		// Follow ends with ctx only.
		_ = loop.Follow(ctx, s.namespaces.Store, loop.FollowOptions{Logger: s.log}, func(loop.Snapshot) { wake.Set() })
	})
	tick := time.NewTicker(systemInterval)
	defer tick.Stop()
	for {
		told := "" // once for each reason
		err := loop.Retry(ctx, loop.Backoff{Max: time.Second}, func(ctx context.Context) error {
			err := s.ensure(ctx)
			if err != nil && ctx.Err() == nil && err.Error() != told {
				told = err.Error()
				s.log.Warn("creating system namespaces failed", "err", err)
			}
			return err
		})
		if err != nil {
			return err
		}
		s.mu.Lock()
		s.done = true
		s.mu.Unlock()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-wake.C():
		case <-tick.C:
		}
	}
}

func (s *systemNamespaces) ensure(ctx context.Context) error {
	for _, name := range systemNames() {
		_, err := s.namespaces.Store.Get(ctx, resource.Key{Name: name}, resource.At{Freshness: resource.Any})
		if err == nil {
			continue
		}
		if !isNotFound(err) {
			return err
		}
		ns := &corev1.Namespace{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelMetadataName: name}},
			Spec:       corev1.NamespaceSpec{Finalizers: []corev1.FinalizerName{corev1.FinalizerKubernetes}},
			Status:     corev1.NamespaceStatus{Phase: corev1.NamespaceActive},
		}
		if _, err := rest.CreateObject(ctx, s.namespaces, ns); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("create namespace %q: %w", name, err)
		}
	}
	return nil
}
