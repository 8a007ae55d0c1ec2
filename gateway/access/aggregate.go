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

// aggregate keeps the rules of cluster roles with an aggregationRule: all rules
// of the roles that its selectors choose.
func (a *Access) aggregate(ctx context.Context, wake *loop.Signal, clusterRoles *rest.Resource) {
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
		if sameRules(role.Rules, rules) {
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
				if !slices.ContainsFunc(out, func(r rbacv1.PolicyRule) bool { return apiequality.Semantic.DeepEqual(r, rule) }) {
					out = append(out, rule)
				}
			}
		}
	}
	return out, nil
}
