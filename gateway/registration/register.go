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
	"k8s.io/apimachinery/pkg/types"
	apireg "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico/apiservice"
	"portico/apiservice/backend"
	"portico/discovery"
	"portico/gateway/routing"
	"portico/resource"
	"portico/resource/loop"
	"portico/resource/rest"
)

const (
	// registerWriters is the number of concurrent writes: etcd syncs its disk once for
	// several.
	registerWriters = 16
	// registerRetry and registerRetryMax are the shortest and the longest pause after a
	// failure. A change of the findings ends the pause.
	registerRetry    = 100 * time.Millisecond
	registerRetryMax = 5 * time.Second
	// unclaimedGrace is how long an APIService remains that this gateway has never claimed: another gateway
	// that has newer discovery may have created it. CRD servers wait as long for the discovery of a gateway.
	unclaimedGrace = 15 * time.Second
)

// registrar stores the static Backends, an automanaged APIService for each group/version
// that the gateway or a Backend registers, and the condition Available of all APIServices.
// A gateway that is not elected creates each missing object once, so that a new definition
// does not wait for an election, and gateways with different findings do not undo each
// other's writes.
type registrar struct {
	found    Findings
	services *rest.Resource
	backends *rest.Resource
	own      []discovery.GroupVersion
	static   []*routing.StaticBackend
	wake     loop.Signal
	log      *slog.Logger
	metrics  *availabilityMetrics
	observer string // names this gateway in conditions
	// leadership is whether this gateway is elected.
	leadership leadership
	// results are the results of claims, by Backend; resultsChanged, if not nil, is set
	// when they change.
	results        atomic.Pointer[map[string]result]
	resultsChanged *loop.Signal

	// autoregistered is set when register has succeeded once.
	autoregistered atomic.Bool

	// Of the writing goroutine only:
	atStart map[string]bool // APIServices that were stored when the gateway started
	// unclaimedSince is since when each stored APIService is not claimed; the zero time, if this gateway has claimed it
	// once.
	unclaimedSince map[types.UID]time.Time
	offered        map[string]bool // APIServices that were missing, or were stored since
	introduced     map[string]bool // static Backends that are stored, or were once
	claims         *claims         // the last ones
	messages       writeLimit      // of writes that change the message of a condition only
}

// run writes until ctx ends, and repeats what fails.
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
		wait, err := g.write(ctx)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			g.log.Warn("writing APIServices failed", "err", err)
			again, pause = time.After(pause), min(pause*2, registerRetryMax)
		case wait > 0:
			again, pause = time.After(wait), registerRetry
		default:
			again, pause = nil, registerRetry
		}
	}
}

// write brings the stored objects in line with the findings. It returns after what time a delayed
// write is due, 0 if none is. A failure does not prevent other writes.
func (g *registrar) write(ctx context.Context) (again time.Duration, err error) {
	list, ok := g.found.Listed()
	if !ok {
		return 0, nil
	}
	stored := make(map[string]*apireg.APIService, len(list))
	for _, a := range list {
		stored[a.Name] = a
	}
	if g.atStart == nil {
		g.atStart = make(map[string]bool, len(list))
		for _, a := range list {
			g.atStart[a.Name] = true
		}
	}
	again, err = g.register(ctx, stored)
	if err == nil && g.found.BackendStates() != nil {
		g.autoregistered.Store(true)
	}
	known := g.found.Conditions()
	if known == nil {
		return again, err
	}
	g.metrics.set(known)
	term, elected := g.leadership.term()
	if !elected {
		return again, err
	}
	delayed, failed := g.writeConditions(term, stored, known)
	return sooner(again, delayed), errors.Join(err, failed)
}

// each calls f for each item, registerWriters at a time, and joins the errors.
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

// register creates, repairs and deletes automanaged APIServices. An APIService without the
// automanaged label belongs to a user and is not written. again is the time until the next deletion
// that is delayed, 0 if none is.
func (g *registrar) register(ctx context.Context, stored map[string]*apireg.APIService) (again time.Duration, err error) {
	all := g.found.BackendStates()
	if all == nil {
		return 0, nil
	}
	failed := g.storeStaticBackends(ctx, all)
	claims := g.claimed(all)
	desired, conflicts := claims.desired(stored)
	var missing, wrong, gone, orphans []*apireg.APIService
	for name, a := range desired {
		have := stored[name]
		switch {
		case have == nil:
			missing = append(missing, a)
		case apiservice.IsAutomanaged(have) && !sameRegistration(have, a):
			wrong = append(wrong, a)
		}
	}
	g.publish(claims.results(conflicts, missing, wrong))
	g.noteUnclaimed(stored, desired)
	term, elected := g.leadership.term()
	if !elected {
		return 0, errors.Join(failed, g.offer(ctx, desired, missing))
	}
	for name, have := range stored {
		left := unclaimedGrace - time.Since(g.unclaimedSince[have.UID])
		if claims.reserved[have.Spec.Group] {
			left = 0 // whatever servers list
		}
		switch {
		case desired[name] != nil:
		case claims.obsolete(have) && left > 0:
			again = sooner(again, left)
		case claims.obsolete(have), claims.stale(have, g.atStart):
			gone = append(gone, have)
		case orphaned(all, have):
			orphans = append(orphans, have)
		}
	}
	return again, errors.Join(
		failed,
		each(gone, func(a *apireg.APIService) error { return g.remove(term, a) }), // first: the server may list it again
		each(missing, func(a *apireg.APIService) error { return g.create(term, a) }),
		each(wrong, func(a *apireg.APIService) error { return g.repair(term, a) }),
		each(orphans, func(a *apireg.APIService) error { return g.removeOrphan(term, a) }),
	)
}

// noteUnclaimed sets unclaimedSince, whether this gateway is elected or not.
func (g *registrar) noteUnclaimed(stored, desired map[string]*apireg.APIService) {
	before := g.unclaimedSince
	g.unclaimedSince = make(map[types.UID]time.Time, len(stored))
	for name, have := range stored {
		since, seen := before[have.UID]
		switch {
		case desired[name] != nil:
			since = time.Time{}
		case !seen:
			since = time.Now()
		}
		g.unclaimedSince[have.UID] = since
	}
}

// publish sets the results of the claims.
func (g *registrar) publish(results map[string]result) {
	old := g.results.Swap(&results)
	if g.resultsChanged != nil && (old == nil || !maps.EqualFunc(*old, results, result.same)) {
		g.resultsChanged.Set()
	}
}

// offer creates the missing APIServices that this gateway did not offer before.
func (g *registrar) offer(ctx context.Context, desired map[string]*apireg.APIService, missing []*apireg.APIService) error {
	maps.DeleteFunc(g.offered, func(name string, _ bool) bool { return desired[name] == nil })
	missing = slices.DeleteFunc(missing, func(a *apireg.APIService) bool { return g.offered[a.Name] })
	if err := each(missing, func(a *apireg.APIService) error { return g.create(ctx, a) }); err != nil {
		return err
	}
	g.offered = make(map[string]bool, len(desired))
	for name := range desired {
		g.offered[name] = true
	}
	return nil
}

// create stores an APIService, unless there is one of its name.
func (g *registrar) create(ctx context.Context, a *apireg.APIService) error {
	a = a.DeepCopy()
	apiservice.Set(a, apiservice.Local(), time.Now())
	if _, err := rest.CreateObject(ctx, g.services, a); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create APIService %q: %w", a.Name, err)
	}
	return nil
}

func sameRegistration(have, desired *apireg.APIService) bool {
	return have.Spec.Service == nil &&
		have.Spec.GroupPriorityMinimum == desired.Spec.GroupPriorityMinimum &&
		have.Spec.VersionPriority == desired.Spec.VersionPriority &&
		have.Labels[apiservice.AutomanagedLabel] == desired.Labels[apiservice.AutomanagedLabel] &&
		have.Annotations[apiservice.BackendAnnotation] == desired.Annotations[apiservice.BackendAnnotation]
}

// repair restores an APIService, if it is still automanaged.
func (g *registrar) repair(ctx context.Context, desired *apireg.APIService) error {
	_, err := rest.Modify(ctx, g.services, resource.Key{Name: desired.Name}, func(a *apireg.APIService) error {
		if !apiservice.IsAutomanaged(a) {
			return nil
		}
		a.Spec = desired.Spec
		a.Labels = with(a.Labels, desired.Labels)
		a.Annotations = with(a.Annotations, desired.Annotations)
		return nil
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("repair APIService %q: %w", desired.Name, err)
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

// orphaned reports whether the Backend of an automanaged APIService does not exist.
func orphaned(all *routing.BackendStates, have *apireg.APIService) bool {
	switch have.Labels[apiservice.AutomanagedLabel] {
	case apiservice.Managed, apiservice.OnStart:
	default:
		return false
	}
	of := have.Annotations[apiservice.BackendAnnotation]
	return all.Whole && of != "" && of != backend.Reserved && all.ByName[of] == nil
}

// removeOrphan deletes an APIService unless its Backend is stored: APIServices and Backends
// are watched separately, and a Backend may be seen later than an APIService of it.
func (g *registrar) removeOrphan(ctx context.Context, a *apireg.APIService) error {
	of := a.Annotations[apiservice.BackendAnnotation]
	_, err := g.backends.Store.Get(ctx, resource.Key{Name: of}, resource.At{})
	switch {
	case err == nil:
		return nil
	case !apierrors.IsNotFound(err):
		return fmt.Errorf("get Backend %q of APIService %q: %w", of, a.Name, err)
	}
	return g.remove(ctx, a)
}

// remove deletes an automanaged APIService, unless its label or its Backend has changed.
func (g *registrar) remove(ctx context.Context, a *apireg.APIService) error {
	_, err := g.services.Store.Delete(ctx, resource.Key{Name: a.Name}, func(cur *resource.Object) error {
		obj, err := g.services.Decode(cur)
		if err != nil {
			return fmt.Errorf("decode APIService %q: %w", a.Name, err)
		}
		now := obj.(*apireg.APIService)
		if now.UID != a.UID || now.Labels[apiservice.AutomanagedLabel] != a.Labels[apiservice.AutomanagedLabel] ||
			now.Annotations[apiservice.BackendAnnotation] != a.Annotations[apiservice.BackendAnnotation] {
			return apierrors.NewConflict(g.services.GroupResource(), a.Name, errors.New("the APIService was changed"))
		}
		return nil
	})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete APIService %q: %w", a.Name, err)
	}
	return nil
}
