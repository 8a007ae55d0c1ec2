package access

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"portico/resource"
	"portico/resource/loop"
	"portico/resource/rest"
)

const (
	bootstrapLabel       = "kubernetes.io/bootstrapping"
	bootstrapValue       = "rbac-defaults"
	autoupdateAnnotation = "rbac.authorization.kubernetes.io/autoupdate"

	// bootstrapWriters is the number of concurrent writes, so that etcd syncs its disk once for
	// several.
	bootstrapWriters = 8
)

// bootstrap stores the policy that every cluster has. It retries until it succeeds.
func (a *Access) bootstrap(ctx context.Context, resources *[numKinds]*rest.Resource) {
	p := bootstrapPolicy()
	// Retry returns an error only when ctx ends.
	_ = loop.Retry(ctx, loop.Backoff{Max: time.Second}, func(ctx context.Context) error {
		var at [numKinds]int64
		var errs [numKinds]error
		for _, kind := range []int{clusterRoles, clusterRoleBindings, roles, roleBindings} {
			want := p.objects[kind]
			if kind == clusterRoleBindings {
				want, errs[kind] = splitDiscovery(ctx, resources[kind], want)
			}
			if errs[kind] == nil {
				at[kind], errs[kind] = ensureAll(ctx, resources[kind], want)
			}
		}
		if err := errors.Join(errs[:]...); err != nil {
			if ctx.Err() == nil {
				a.log.Warn("storing the bootstrap policy failed", "err", err)
			}
			return err
		}
		a.mu.Lock()
		a.bootstrapped = at
		a.mu.Unlock()
		a.ready.Store(true)
		return nil
	})
}

// splitDiscovery returns want. If system:public-info-viewer is not stored, its binding in want gets
// the subjects, labels and annotations of the stored binding system:discovery, which had its rights
// before Kubernetes 1.14 (primeSplitClusterRoleBindings of kube-apiserver). So a cluster that denies
// discovery to users without credentials still does.
func splitDiscovery(ctx context.Context, r *rest.Resource, want []rest.Object) ([]rest.Object, error) {
	const from, to = "system:discovery", "system:public-info-viewer"
	if _, err := r.Store.Get(ctx, resource.Key{Name: to}, resource.At{}); !apierrors.IsNotFound(err) {
		return want, err
	}
	stored, err := rest.GetObject[*rbacv1.ClusterRoleBinding](ctx, r, resource.Key{Name: from}, resource.At{})
	if apierrors.IsNotFound(err) {
		return want, nil
	}
	i := slices.IndexFunc(want, func(o rest.Object) bool { return o.GetName() == to })
	if err != nil {
		return nil, err
	}
	split := want[i].DeepCopyObject().(*rbacv1.ClusterRoleBinding)
	split.Labels, split.Annotations, split.Subjects = stored.Labels, stored.Annotations, stored.Subjects
	if !optedOut(split) {
		merge(split, want[i])
	}
	want = slices.Clone(want)
	want[i] = split
	return want, nil
}

// ensureAll creates missing objects and merges the others. A stored binding of another role
// is deleted and created again. It returns the highest revision of the objects.
func ensureAll(ctx context.Context, r *rest.Resource, want []rest.Object) (int64, error) {
	list, err := r.Store.List(ctx, resource.ListOptions{})
	if err != nil {
		return 0, fmt.Errorf("list %s: %w", r.Resource, err)
	}
	stored := map[resource.Key]*resource.Object{}
	for _, o := range list.Items {
		stored[o.Key()] = o
	}
	var (
		mu      sync.Mutex // guards highest and failed
		highest int64
		failed  error
		wg      sync.WaitGroup
		writers = make(chan struct{}, bootstrapWriters)
	)
	for _, w := range want {
		writers <- struct{}{}
		wg.Go(func() {
			defer func() { <-writers }()
			rev, err := ensure(ctx, r, stored[resource.Key{Namespace: w.GetNamespace(), Name: w.GetName()}], w)
			mu.Lock()
			defer mu.Unlock()
			highest = max(highest, rev)
			if failed == nil {
				failed = err
			}
		})
	}
	wg.Wait()
	return highest, failed
}

// ensure creates, replaces or merges one object, unless its annotation opts out, and returns
// its revision. o is the stored object; nil if there is none.
func ensure(ctx context.Context, r *rest.Resource, o *resource.Object, want rest.Object) (int64, error) {
	if o == nil {
		return createMissing(ctx, r, want)
	}
	have, err := r.Decode(o)
	if err != nil {
		return 0, err
	}
	if optedOut(have) {
		return o.Revision, nil
	}
	if *bindingOf(have).ref != *bindingOf(want).ref {
		_, err := r.Store.Delete(ctx, o.Key(), func(cur *resource.Object) error {
			if cur.Revision != o.Revision {
				return apierrors.NewConflict(r.GroupResource(), o.Name, fmt.Errorf("it changed while it was being replaced"))
			}
			return nil
		})
		if err != nil && !apierrors.IsNotFound(err) {
			return 0, fmt.Errorf("delete %s %s: %w", r.Kind.Kind, o.Key(), err)
		}
		return createMissing(ctx, r, want)
	}
	if !merge(have, want) {
		return o.Revision, nil
	}
	now, err := rest.Modify(ctx, r, o.Key(), func(obj rest.Object) error {
		if !optedOut(obj) {
			merge(obj, want)
		}
		return nil
	})
	switch {
	case apierrors.IsNotFound(err):
		return createMissing(ctx, r, want)
	case err != nil:
		return 0, fmt.Errorf("update %s %s: %w", r.Kind.Kind, o.Key(), err)
	}
	return revisionOf(now), nil
}

func optedOut(obj rest.Object) bool { return obj.GetAnnotations()[autoupdateAnnotation] == "false" }

// createMissing creates an object. It returns revision 0 if the object exists.
func createMissing(ctx context.Context, r *rest.Resource, want rest.Object) (int64, error) {
	now, err := rest.CreateObject(ctx, r, want)
	switch {
	case apierrors.IsAlreadyExists(err):
		return 0, nil
	case err != nil:
		return 0, fmt.Errorf("create %s %s/%s: %w", r.Kind.Kind, want.GetNamespace(), want.GetName(), err)
	}
	return revisionOf(now), nil
}

// revisionOf returns the revision of a stored object.
func revisionOf(obj rest.Object) int64 {
	rev, err := strconv.ParseInt(obj.GetResourceVersion(), 10, 64)
	if err != nil {
		return 0
	}
	return rev
}
