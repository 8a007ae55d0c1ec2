package access

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"portico/resource"
	"portico/resource/loop"
	"portico/resource/rest"
)

const (
	bootstrapLabel       = "kubernetes.io/bootstrapping"
	bootstrapValue       = "rbac-defaults"
	autoupdateAnnotation = "rbac.authorization.kubernetes.io/autoupdate"
)

// bootstrap stores the policy that every cluster has, again until it is there,
// and then returns.
func (a *Access) bootstrap(ctx context.Context, roles, clusterRoles, bindings, clusterBinds *rest.Resource) {
	p := bootstrapPolicy()
	// Retry returns an error only when ctx ends.
	_ = loop.Retry(ctx, loop.Backoff{Max: time.Second}, func(ctx context.Context) error {
		err := firstError(
			func() error { return ensureAll(ctx, clusterRoles, p.clusterRoles, mergeClusterRole) },
			func() error { return ensureAll(ctx, clusterBinds, p.clusterBindings, mergeClusterBinding) },
			func() error { return ensureAll(ctx, roles, p.roles, mergeRole) },
			func() error { return ensureAll(ctx, bindings, p.bindings, mergeBinding) },
		)
		if err != nil && ctx.Err() == nil {
			a.log.Warn("storing the bootstrap policy failed", "err", err)
		}
		if err == nil {
			a.ready.Store(true)
		}
		return err
	})
}

func firstError(steps ...func() error) error {
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// ensureAll creates what is missing and adds to the rest what they lack.
func ensureAll[T rest.Object](ctx context.Context, r *rest.Resource, want []T, merge func(have, want T) bool) error {
	list, err := r.Store.List(ctx, resource.ListOptions{})
	if err != nil {
		return fmt.Errorf("list %s: %w", r.Resource, err)
	}
	stored := map[resource.Key]*resource.Object{}
	for _, o := range list.Items {
		stored[o.Key()] = o
	}
	for _, w := range want {
		key := resource.Key{Namespace: w.GetNamespace(), Name: w.GetName()}
		if stored[key] == nil {
			if _, err := rest.CreateObject(ctx, r, w); err != nil && !apierrors.IsAlreadyExists(err) {
				return fmt.Errorf("create %s %s: %w", r.Kind.Kind, key, err)
			}
			continue
		}
		if err := ensure(ctx, r, stored[key], w, merge); err != nil {
			return err
		}
	}
	return nil
}

// ensure adds what a stored object lacks, unless its owner opted out.
func ensure[T rest.Object](ctx context.Context, r *rest.Resource, o *resource.Object, want T, merge func(have, want T) bool) error {
	have, err := r.Decode(o)
	if err != nil {
		return err
	}
	if have.GetAnnotations()[autoupdateAnnotation] == "false" || !merge(have.(T), want) {
		return nil
	}
	_, err = rest.Modify(ctx, r, o.Key(), func(obj T) error {
		if obj.GetAnnotations()[autoupdateAnnotation] != "false" {
			merge(obj, want)
		}
		return nil
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("update %s %s: %w", r.Kind.Kind, o.Key(), err)
	}
	return nil
}

// The merge functions add to have what want has more, and report whether that
// was anything. What have has more stays.

func mergeMeta(have, want metav1.Object) bool {
	l, changedL := added(have.GetLabels(), want.GetLabels())
	n, changedN := added(have.GetAnnotations(), want.GetAnnotations())
	have.SetLabels(l)
	have.SetAnnotations(n)
	return changedL || changedN
}

func added(have, want map[string]string) (map[string]string, bool) {
	out, changed := maps.Clone(have), false
	for k, v := range want {
		if _, ok := out[k]; !ok {
			if out == nil {
				out = map[string]string{}
			}
			out[k], changed = v, true
		}
	}
	return out, changed
}

func mergeRules(have *[]rbacv1.PolicyRule, want []rbacv1.PolicyRule) bool {
	changed := false
	for _, w := range want {
		missing := slices.ContainsFunc(split(w), func(one rbacv1.PolicyRule) bool {
			return !slices.ContainsFunc(*have, func(h rbacv1.PolicyRule) bool { return covers(&h, &one) })
		})
		if missing {
			*have, changed = append(*have, w), true
		}
	}
	return changed
}

func mergeSubjects(have *[]rbacv1.Subject, want []rbacv1.Subject) bool {
	changed := false
	for _, w := range want {
		if !slices.Contains(*have, w) {
			*have, changed = append(*have, w), true
		}
	}
	return changed
}

func mergeClusterRole(have, want *rbacv1.ClusterRole) bool {
	changed := mergeMeta(have, want)
	if want.AggregationRule != nil { // its rules belong to aggregation
		if have.AggregationRule == nil {
			have.AggregationRule, changed = want.AggregationRule, true
		}
		return changed
	}
	return mergeRules(&have.Rules, want.Rules) || changed
}

func mergeRole(have, want *rbacv1.Role) bool {
	changed := mergeMeta(have, want)
	return mergeRules(&have.Rules, want.Rules) || changed
}

func mergeClusterBinding(have, want *rbacv1.ClusterRoleBinding) bool {
	changed := mergeMeta(have, want)
	return mergeSubjects(&have.Subjects, want.Subjects) || changed
}

func mergeBinding(have, want *rbacv1.RoleBinding) bool {
	changed := mergeMeta(have, want)
	return mergeSubjects(&have.Subjects, want.Subjects) || changed
}

// aggregate keeps the rules of cluster roles with an aggregationRule: all rules
// of the roles that its selectors choose.
func (a *Access) aggregate(ctx context.Context, wake *loop.Nudge, clusterRoles *rest.Resource) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-wake.C():
		}
		if loop.Retry(ctx, loop.Backoff{}, func(ctx context.Context) error {
			err := a.aggregateOnce(ctx, clusterRoles)
			if err != nil && ctx.Err() == nil {
				a.log.Warn("aggregating cluster roles failed", "err", err)
			}
			return err
		}) != nil {
			return
		}
	}
}

func (a *Access) aggregateOnce(ctx context.Context, r *rest.Resource) error {
	a.mu.Lock()
	all := slices.Clone(a.state.clusterRoles)
	a.mu.Unlock()
	for _, role := range all {
		if role.AggregationRule == nil {
			continue
		}
		rules, err := collected(role, all)
		if err != nil {
			a.log.Error("an aggregationRule has a bad selector", "clusterrole", role.Name, "err", err)
			continue
		}
		if reflect.DeepEqual(role.Rules, rules) || len(role.Rules) == 0 && len(rules) == 0 {
			continue
		}
		_, err = rest.Modify(ctx, r, resource.Key{Name: role.Name}, func(cur *rbacv1.ClusterRole) error {
			if cur.AggregationRule != nil {
				cur.Rules = rules
			}
			return nil
		})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("write aggregated ClusterRole %q: %w", role.Name, err)
		}
	}
	return nil
}

// collected returns the rules of the roles that an aggregated role chooses,
// each once, in the order of the roles' names.
func collected(role *rbacv1.ClusterRole, all []*rbacv1.ClusterRole) ([]rbacv1.PolicyRule, error) {
	var out []rbacv1.PolicyRule
	for i := range role.AggregationRule.ClusterRoleSelectors {
		sel, err := metav1.LabelSelectorAsSelector(&role.AggregationRule.ClusterRoleSelectors[i])
		if err != nil {
			return nil, err
		}
		for _, other := range all {
			if other.Name == role.Name || !sel.Matches(labels.Set(other.Labels)) {
				continue
			}
			for _, rule := range other.Rules {
				if !slices.ContainsFunc(out, func(r rbacv1.PolicyRule) bool { return reflect.DeepEqual(r, rule) }) {
					out = append(out, rule)
				}
			}
		}
	}
	return out, nil
}
