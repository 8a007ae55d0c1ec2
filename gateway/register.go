package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apireg "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico/apiservice"
	"portico/discovery"
	"portico/resource"
	"portico/resource/loop"
	"portico/resource/rest"
)

// ownBackend is what automanaged APIServices of the gateway's own groups name
// as their backend.
const ownBackend = "gateway"

// registrar writes what sync found out to the stored APIServices: it keeps one
// automanaged APIService for every group/version of the gateway and of its
// configured backends, and the Available condition of every APIService. It
// runs apart from sync, so that a slow etcd delays no route; and it writes only
// differences.
type registrar struct {
	sync     *syncer
	services *rest.Resource
	wake     loop.Nudge
	log      *slog.Logger
	metrics  *availabilityMetrics
	// made are the automanaged APIServices by name as they were wanted last; of
	// the writing goroutine only.
	made map[string]*apireg.APIService
}

// registerWriters is how many APIServices are created at once, so that etcd
// syncs its disk once for several.
const registerWriters = 16

// run writes until ctx ends. What fails is tried again.
func (g *registrar) run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-g.wake.C():
		}
		err := loop.Retry(ctx, loop.Backoff{Max: 5 * time.Second}, func(ctx context.Context) error {
			err := g.write(ctx)
			if err != nil && ctx.Err() == nil {
				g.log.Warn("writing APIServices failed", "err", err)
			}
			return err
		})
		if err != nil {
			return err
		}
	}
}

// write brings the stored APIServices in line with what is known now.
func (g *registrar) write(ctx context.Context) error {
	list, ok := g.sync.listed()
	if !ok {
		return nil
	}
	stored := make(map[string]*apireg.APIService, len(list))
	for _, a := range list {
		stored[a.Name] = a
	}
	if err := g.register(ctx, stored); err != nil {
		return err
	}
	conditions := *g.sync.conditions.Load()
	g.metrics.set(conditions)
	for name, want := range conditions {
		a := stored[name]
		if a == nil {
			continue
		}
		if have, ok := apiservice.Current(a); ok && have == want {
			continue
		}
		if err := g.setCondition(ctx, name, want); err != nil {
			return err
		}
	}
	return nil
}

// setCondition writes one condition. That the APIService is gone meanwhile is
// no error.
func (g *registrar) setCondition(ctx context.Context, name string, want apiservice.Condition) error {
	_, err := rest.Modify(ctx, g.services, resource.Key{Name: name}, func(a *apireg.APIService) error {
		apiservice.Set(a, want, time.Now())
		return nil
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("write condition of APIService %q: %w", name, err)
	}
	return nil
}

// register creates, repairs and removes automanaged APIServices. An APIService
// whose automanaged label a user took off is the user's.
func (g *registrar) register(ctx context.Context, stored map[string]*apireg.APIService) error {
	want, complete := g.wanted()
	var missing []*apireg.APIService
	for name, a := range want {
		have := stored[name]
		switch {
		case have == nil:
			missing = append(missing, a)
		case apiservice.IsAutomanaged(have) && !sameRegistration(have, a):
			if err := g.repair(ctx, a); err != nil {
				return err
			}
		}
	}
	if err := g.create(ctx, missing); err != nil {
		return err
	}
	for name, have := range stored {
		gone := have.Labels[apiservice.AutomanagedLabel] == apiservice.Managed &&
			complete[have.Annotations[apiservice.BackendAnnotation]] && want[name] == nil
		if !gone {
			continue
		}
		if err := g.remove(ctx, have); err != nil {
			return err
		}
	}
	return nil
}

// create stores new APIServices, several at a time. That one is there already
// is no error.
func (g *registrar) create(ctx context.Context, list []*apireg.APIService) error {
	errs := make([]error, len(list))
	slots := make(chan struct{}, registerWriters)
	var wg sync.WaitGroup
	for i, a := range list {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			a = a.DeepCopy()
			apiservice.Set(a, apiservice.Local(), time.Now())
			if _, err := rest.CreateObject(ctx, g.services, a); err != nil && !apierrors.IsAlreadyExists(err) {
				errs[i] = fmt.Errorf("create APIService %q: %w", a.Name, err)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// wanted returns the automanaged APIServices that shall exist, and of which
// backends everything is known.
func (g *registrar) wanted() (want map[string]*apireg.APIService, complete map[string]bool) {
	want, complete = make(map[string]*apireg.APIService, len(g.made)), map[string]bool{ownBackend: true}
	defer func() { g.made = want }()
	for _, gv := range g.sync.own {
		if gv.Group != apiservice.Group {
			name := apiservice.Name(gv.Group, gv.Version)
			want[name] = g.automanaged(name, gv, ownBackend)
		}
	}
	for _, b := range g.sync.backends {
		gvs, ok := b.source.GroupVersions()
		complete[b.name] = ok
		for _, gv := range gvs {
			name := apiservice.Name(gv.Group, gv.Version)
			if want[name] == nil && gv.Group != apiservice.Group {
				want[name] = g.automanaged(name, gv, b.name)
			}
		}
	}
	return want, complete
}

// automanaged is automanaged, made once as long as nothing changes.
func (g *registrar) automanaged(name string, gv discovery.GroupVersion, backend string) *apireg.APIService {
	if a := g.made[name]; a != nil && a.Annotations[apiservice.BackendAnnotation] == backend {
		return a
	}
	return automanaged(gv, backend)
}

// automanaged returns the APIService for a group/version of a backend. Built-in
// groups have their fixed place and are never removed; others come and go with
// what the backend serves.
func automanaged(gv discovery.GroupVersion, backend string) *apireg.APIService {
	group, version := discovery.Priorities(gv.Group, gv.Version)
	label := apiservice.OnStart
	if !discovery.Builtin(gv.Group) {
		label, version = apiservice.Managed, discovery.CustomVersionPriority
	}
	return &apireg.APIService{
		TypeMeta: metav1.TypeMeta{APIVersion: apireg.SchemeGroupVersion.String(), Kind: "APIService"},
		ObjectMeta: metav1.ObjectMeta{
			Name:        apiservice.Name(gv.Group, gv.Version),
			Labels:      map[string]string{apiservice.AutomanagedLabel: label},
			Annotations: map[string]string{apiservice.BackendAnnotation: backend},
		},
		Spec: apireg.APIServiceSpec{Group: gv.Group, Version: gv.Version, GroupPriorityMinimum: group, VersionPriority: version},
	}
}

func sameRegistration(have, want *apireg.APIService) bool {
	return have.Spec.Service == nil &&
		have.Spec.GroupPriorityMinimum == want.Spec.GroupPriorityMinimum &&
		have.Spec.VersionPriority == want.Spec.VersionPriority &&
		have.Labels[apiservice.AutomanagedLabel] == want.Labels[apiservice.AutomanagedLabel] &&
		have.Annotations[apiservice.BackendAnnotation] == want.Annotations[apiservice.BackendAnnotation]
}

// repair puts an automanaged APIService right. It looks again at the stored
// object: a user may have taken it over a moment ago.
func (g *registrar) repair(ctx context.Context, want *apireg.APIService) error {
	_, err := rest.Modify(ctx, g.services, resource.Key{Name: want.Name}, func(a *apireg.APIService) error {
		if !apiservice.IsAutomanaged(a) {
			return nil
		}
		a.Spec = want.Spec
		a.Labels = with(a.Labels, want.Labels)
		a.Annotations = with(a.Annotations, want.Annotations)
		return nil
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("repair APIService %q: %w", want.Name, err)
	}
	return nil
}

func with(have, add map[string]string) map[string]string {
	out := maps.Clone(have)
	if out == nil {
		out = map[string]string{}
	}
	maps.Copy(out, add)
	return out
}

// remove deletes an automanaged APIService whose group/version is served no
// more, unless it changed meanwhile.
func (g *registrar) remove(ctx context.Context, a *apireg.APIService) error {
	_, err := g.services.Store.Delete(ctx, resource.Key{Name: a.Name}, func(cur *resource.Object) error {
		if cur.UID != string(a.UID) || cur.Labels[apiservice.AutomanagedLabel] != apiservice.Managed {
			return apierrors.NewConflict(g.services.GroupResource(), a.Name, fmt.Errorf("the APIService was taken over"))
		}
		return nil
	})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("remove APIService %q: %w", a.Name, err)
	}
	return nil
}
