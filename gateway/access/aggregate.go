package access

import (
	"context"
	"fmt"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"portico/resource"
	"portico/resource/loop"
	"portico/resource/rest"
)

// aggregate keeps the rules of ClusterRoles with an aggregationRule: all rules of the roles
// that its selectors match.
func (a *Access) aggregate(ctx context.Context, wake *loop.Signal, r *rest.Resource) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-wake.C():
		}
		if loop.Retry(ctx, loop.Backoff{}, func(ctx context.Context) error {
			err := a.aggregateOnce(ctx, r)
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
	all := a.state.objects[clusterRoles] // slices of the state are replaced, never changed
	a.mu.Unlock()
	for _, obj := range all {
		role := obj.(*rbacv1.ClusterRole)
		if role.AggregationRule == nil {
			continue
		}
		rules, err := collected(role, all)
		if err != nil {
			a.log.Error("an aggregationRule has an invalid selector", "clusterrole", role.Name, "err", err)
			continue
		}
		if apiequality.Semantic.DeepEqual(role.Rules, rules) {
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

// collected returns the rules of the roles that an aggregated role selects, without
// duplicates, in the order of the roles' names.
func collected(role *rbacv1.ClusterRole, all []rest.Object) ([]rbacv1.PolicyRule, error) {
	var out []rbacv1.PolicyRule
	for i := range role.AggregationRule.ClusterRoleSelectors {
		sel, err := metav1.LabelSelectorAsSelector(&role.AggregationRule.ClusterRoleSelectors[i])
		if err != nil {
			return nil, err
		}
		for _, other := range all {
			if other.GetName() == role.Name || !sel.Matches(labels.Set(other.GetLabels())) {
				continue
			}
			for _, rule := range other.(*rbacv1.ClusterRole).Rules {
				if !slices.ContainsFunc(out, func(r rbacv1.PolicyRule) bool { return apiequality.Semantic.DeepEqual(r, rule) }) {
					out = append(out, rule)
				}
			}
		}
	}
	return out, nil
}
