package registration

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apireg "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico/apiservice"
	"portico/discovery"
	"portico/gateway/routing"
	"portico/resource"
	"portico/resource/loop"
	"portico/resource/rest"
)

// registrar writes what was found out to the stored APIServices: it keeps one
// automanaged APIService for every group/version of the gateway and of its
// configured backends, and the Available condition of every APIService. It
// runs apart from routing, so that a slow etcd delays no route; and it writes only
// differences.
//
// Of several gateways on one etcd the elected one writes. The others create
// what is new to them as well, each APIService once: who made a custom resource
// definition a moment ago does not wait for an election, and two gateways that
// see different things do not undo each other's work.
type registrar struct {
	found    Findings
	services *rest.Resource
	backends *rest.Resource
	// own are the group/versions that the gateway serves itself, configured the
	// servers that it starts with.
	own        []discovery.GroupVersion
	configured []*routing.StaticBackend
	wake       loop.Signal
	log        *slog.Logger
	metrics    *availabilityMetrics
	// observer names this gateway in conditions.
	observer string
	// leadership says whether, of the gateways on one etcd, this one writes.
	leadership leadership
	// offered are the APIServices that were found missing and are there since;
	// of the writing goroutine only.
	offered map[string]bool
	// introduced are the configured Backends that are stored, or were when they
	// were stored last; of the writing goroutine only.
	introduced map[string]bool
	// claims are those made last; of the writing goroutine only.
	claims *claims
	// results are what came of what Backends claim, by name.
	results atomic.Pointer[map[string]result]
	// paced holds back messages; of the writing goroutine only.
	paced pace
	// status wakes who shows results; nil: nobody does.
	status *loop.Signal
}

const (
	// registerWriters is how many APIServices are written at once, so that etcd
	// syncs its disk once for several.
	registerWriters = 16
	// registerRetry and registerRetryMax are the pauses before what failed is
	// tried again: the first, and the longest. News do not wait for it.
	registerRetry    = 100 * time.Millisecond
	registerRetryMax = 5 * time.Second
)

// run writes until ctx ends. What fails is tried again.
func (g *registrar) run(ctx context.Context) error {
	var again <-chan time.Time
	pause := registerRetry
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-g.wake.C():
		case <-again:
		}
		err := g.write(ctx)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err == nil:
			again, pause = g.paced.next(time.Now()), registerRetry
		default:
			g.log.Warn("writing APIServices failed", "err", err)
			again, pause = time.After(pause), min(pause*2, registerRetryMax)
		}
	}
}

// write brings the stored APIServices in line with what is known now. What
// fails keeps nothing else from being written.
func (g *registrar) write(ctx context.Context) error {
	// Also of who is not elected: it holds nothing back, and is not to be woken for it.
	g.paced.begin(time.Now())
	list, ok := g.found.Listed()
	if !ok {
		return nil
	}
	stored := make(map[string]*apireg.APIService, len(list))
	for _, a := range list {
		stored[a.Name] = a
	}
	err := g.register(ctx, stored)
	known := g.found.Conditions()
	if known == nil {
		return err
	}
	g.metrics.set(known)
	term, elected := g.leadership.term()
	if !elected {
		return err
	}
	return errors.Join(err, g.writeConditions(term, stored, known))
}

// each calls f for all of a list, registerWriters at a time, and returns what
// failed.
func each[T any](list []T, f func(T) error) error {
	errs := make([]error, len(list))
	slots := make(chan struct{}, registerWriters)
	var wg sync.WaitGroup
	for i, item := range list {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			errs[i] = f(item)
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// register creates, repairs and removes automanaged APIServices. An APIService
// whose automanaged label a user took off is the user's.
func (g *registrar) register(ctx context.Context, stored map[string]*apireg.APIService) error {
	all := g.found.BackendStates()
	if all == nil {
		return nil
	}
	introduced := g.introduce(ctx, all)
	claims := g.claimed(all)
	want, conflicts := claims.desired(stored)
	var missing, wrong, gone, orphans []*apireg.APIService
	for name, a := range want {
		have := stored[name]
		switch {
		case have == nil:
			missing = append(missing, a)
		case apiservice.IsAutomanaged(have) && !sameRegistration(have, a):
			wrong = append(wrong, a)
		}
	}
	g.tell(claims.results(conflicts, missing, wrong))
	term, elected := g.leadership.term()
	if !elected {
		return errors.Join(introduced, g.offer(ctx, want, missing))
	}
	for name, have := range stored {
		switch {
		case want[name] != nil:
		case claims.lacks(have), claims.intrudes(have):
			gone = append(gone, have)
		case orphaned(all, have):
			orphans = append(orphans, have)
		}
	}
	return errors.Join(
		introduced,
		each(missing, func(a *apireg.APIService) error { return g.create(term, a) }),
		each(wrong, func(a *apireg.APIService) error { return g.repair(term, a) }),
		each(gone, func(a *apireg.APIService) error { return g.remove(term, a) }),
		each(orphans, func(a *apireg.APIService) error { return g.removeOrphan(term, a) }),
	)
}

// tell has others know who gets what.
func (g *registrar) tell(results map[string]result) {
	old := g.results.Swap(&results)
	if old != nil && maps.EqualFunc(*old, results, result.same) {
		return
	}
	if g.status != nil {
		g.status.Set()
	}
}

// offer creates what is missing and was not there to be created before.
func (g *registrar) offer(ctx context.Context, want map[string]*apireg.APIService, missing []*apireg.APIService) error {
	maps.DeleteFunc(g.offered, func(name string, _ bool) bool { return want[name] == nil })
	missing = slices.DeleteFunc(missing, func(a *apireg.APIService) bool { return g.offered[a.Name] })
	if err := each(missing, func(a *apireg.APIService) error { return g.create(ctx, a) }); err != nil {
		return err
	}
	offered := make(map[string]bool, len(want))
	for name := range want {
		offered[name] = true
	}
	g.offered = offered
	return nil
}

// create stores a new APIService. That it is there already is no error.
func (g *registrar) create(ctx context.Context, a *apireg.APIService) error {
	a = a.DeepCopy()
	apiservice.Set(a, apiservice.Local(), time.Now())
	if _, err := rest.CreateObject(ctx, g.services, a); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create APIService %q: %w", a.Name, err)
	}
	return nil
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
