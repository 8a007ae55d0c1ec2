package access

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	rbacvalidation "k8s.io/component-helpers/auth/rbac/validation"

	"portico/resource"
	"portico/resource/authz"
	"portico/resource/rest"
)

// A user cannot grant rights that the user does not hold. Writing a role requires all of its
// rules, or the verb escalate on it; writing a binding requires all rules of its role, or the
// verb bind on that role (docs/wire.md 7.6). Every creation and every update is checked: a
// label is a grant too, because aggregated roles select by labels. The only exception is an
// update of finalizers and owner references alone, which garbage collection needs.

// checkRole checks the writing of a Role or ClusterRole. old is nil on create. aggregates is
// set if the object has or had an aggregationRule: such a role may get any rule, so it
// requires every right.
func (a *Access) checkRole(ctx context.Context, gr schema.GroupResource, obj, old rest.Object, rules []rbacv1.PolicyRule, aggregates bool) error {
	act, idx, err := a.guard(ctx, gr, obj, old)
	if idx == nil {
		return err
	}
	// As upstream, a POST is checked for escalate without a name, so a rule with
	// resourceNames does not cover it.
	if a.allows(ctx, idx, act, "escalate", gr.Resource, act.Name) {
		return nil
	}
	if err := idx.covered(act, gr, obj.GetName(), rules); err != nil {
		return err
	}
	if aggregates && idx.covered(act, gr, obj.GetName(), authz.Everything()) != nil {
		return apierrors.NewForbidden(gr, obj.GetName(), errors.New("must have cluster-admin privileges to use the aggregationRule"))
	}
	return nil
}

// checkBinding checks the writing of a binding. old is nil on create.
func (a *Access) checkBinding(ctx context.Context, gr schema.GroupResource, obj, old rest.Object, ref rbacv1.RoleRef) error {
	act, idx, err := a.guard(ctx, gr, obj, old)
	if idx == nil {
		return err
	}
	res := "clusterroles"
	switch {
	case ref.APIGroup != rbacv1.GroupName || ref.Kind != "ClusterRole" && (ref.Kind != "Role" || act.Namespace == ""):
		return nil // validation rejects such a reference
	case ref.Kind == "Role":
		res = "roles"
	}
	if a.allows(ctx, idx, act, "bind", res, ref.Name) {
		return nil
	}
	rules, missing := idx.rulesOf(ref, act.Namespace)
	if missing != nil {
		return apierrors.NewNotFound(rbacv1.Resource(res), ref.Name)
	}
	return idx.covered(act, gr, obj.GetName(), rules)
}

// guard returns the action and the stored policy to check a write with. The index is nil if
// there is nothing to check, or with an error.
func (a *Access) guard(ctx context.Context, gr schema.GroupResource, obj, old rest.Object) (*resource.Action, *index, error) {
	act := resource.ActionFrom(ctx)
	switch {
	case act == nil || act.User == nil:
		return nil, nil, apierrors.NewForbidden(gr, obj.GetName(), errors.New("the request has no user"))
	case isMaster(act.User) || old != nil && onlyCollectionFields(obj, old):
		return act, nil, nil
	}
	idx, err := a.current(ctx)
	return act, idx, err
}

// onlyCollectionFields reports whether an update changes finalizers and owner references only.
// managedFields are ignored: every update changes them, and they grant nothing.
func onlyCollectionFields(obj, old rest.Object) bool {
	same := obj.DeepCopyObject().(rest.Object)
	same.SetFinalizers(old.GetFinalizers())
	same.SetOwnerReferences(old.GetOwnerReferences())
	same.SetManagedFields(old.GetManagedFields())
	return apiequality.Semantic.DeepEqual(same, old)
}

// allows reports whether the user of an action has the verb bind or escalate on a role; of the
// authorizers, RBAC decides by idx.
func (a *Access) allows(ctx context.Context, idx *index, act *resource.Action, verb, res, name string) bool {
	decision, _, _ := a.cfg.Chain().Authorize(context.WithValue(ctx, indexKey{}, idx), &resource.Action{
		User: act.User, Verb: verb, IsResource: true, Group: rbacv1.GroupName, Version: "v1",
		Resource: res, Namespace: act.Namespace, Name: name, InPath: name != "",
	})
	return decision == authz.Allow
}

// covered returns a 403 that lists the rules that the user does not hold. Under a constrained
// impersonation the impersonator must hold them too, with the verbs impersonate-on:MODE:VERB:
// what the constraint withholds cannot be granted.
func (x *index) covered(act *resource.Action, gr schema.GroupResource, name string, rules []rbacv1.PolicyRule) error {
	err := x.holds(act.User, act.Namespace, gr, name, rules)
	if c := act.User.Constraint; err == nil && c != nil {
		return x.holds(c.Impersonator, act.Namespace, gr, name, impersonateOn(c, rules))
	}
	return err
}

// impersonateOn returns the rules that an impersonator needs to grant rules. There is no verb for
// all verbs of a mode, so "*" needs "*".
func impersonateOn(c *resource.Constraint, rules []rbacv1.PolicyRule) []rbacv1.PolicyRule {
	out := make([]rbacv1.PolicyRule, len(rules))
	for i := range rules {
		out[i] = rules[i]
		out[i].Verbs = slices.Clone(rules[i].Verbs)
		for j, verb := range out[i].Verbs {
			if verb != rbacv1.VerbAll {
				out[i].Verbs[j] = c.Verb(verb)
			}
		}
	}
	return out
}

// holds returns a 403 that lists the rules that a user does not hold.
func (x *index) holds(u *resource.User, namespace string, gr schema.GroupResource, name string, rules []rbacv1.PolicyRule) error {
	held, missing := x.rules(u, namespace)
	covered, lacking := rbacvalidation.Covers(held, rules)
	if covered {
		return nil
	}
	lacking = joined(lacking)
	lines := make([]string, len(lacking))
	for i := range lacking {
		lines[i] = compact(&lacking[i])
	}
	slices.Sort(lines)
	text := fmt.Sprintf("user %q (groups=%q) is attempting to grant RBAC permissions not currently held:\n%s",
		u.Name, u.Groups, strings.Join(slices.Compact(lines), "\n"))
	if len(missing) > 0 {
		text += fmt.Sprintf("; resolution errors: %v", missing)
	}
	return apierrors.NewForbidden(gr, name, errors.New(text))
}

// joined joins rules with one verb that have the same target, as upstream's messages do. Rules
// for paths are not joined.
func joined(parts []rbacv1.PolicyRule) []rbacv1.PolicyRule {
	var out []rbacv1.PolicyRule
	at := map[string]int{} // target to index in out
	for _, one := range parts {
		target := one
		target.Verbs = nil
		key := compact(&target)
		i, known := at[key]
		if !known || len(one.NonResourceURLs) > 0 {
			at[key] = len(out)
			out = append(out, one)
			continue
		}
		if !slices.Contains(out[i].Verbs, one.Verbs[0]) {
			out[i].Verbs = append(out[i].Verbs, one.Verbs[0])
		}
	}
	return out
}

// compact returns a rule in the form of upstream's messages.
func compact(r *rbacv1.PolicyRule) string {
	var parts []string
	add := func(name string, list []string) {
		if len(list) > 0 {
			quoted := make([]string, len(list))
			for i, v := range list {
				quoted[i] = fmt.Sprintf("%q", v)
			}
			parts = append(parts, fmt.Sprintf("%s:[%s]", name, strings.Join(quoted, " ")))
		}
	}
	add("APIGroups", r.APIGroups)
	add("Resources", r.Resources)
	add("NonResourceURLs", r.NonResourceURLs)
	add("ResourceNames", r.ResourceNames)
	add("Verbs", r.Verbs)
	return "{" + strings.Join(parts, ", ") + "}"
}
