package access

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico/resource"
	"portico/resource/authz"
	"portico/resource/rest"
)

// Nobody may grant what he has not. A role may be written by who holds all its
// rules, or the verb escalate on it; a binding by who holds all rules of its
// role, or the verb bind on that (contract 7.6).

// checkRole guards the writing of a role or cluster role.
func (a *Access) checkRole(ctx context.Context, gr schema.GroupResource, obj rest.Object, rules, old []rbacv1.PolicyRule, had bool) error {
	act := resource.ActionFrom(ctx)
	if act == nil || act.User == nil || had && reflect.DeepEqual(rules, old) || slices.Contains(act.User.Groups, resource.GroupMasters) {
		return nil
	}
	if a.allowed(ctx, act.User, "escalate", gr.Resource, act.Namespace, obj.GetName()) {
		return nil
	}
	return a.covered(act, gr, obj.GetName(), rules)
}

// checkBinding guards the writing of a binding of either kind.
func (a *Access) checkBinding(ctx context.Context, gr schema.GroupResource, obj rest.Object, ref rbacv1.RoleRef, changed bool) error {
	act := resource.ActionFrom(ctx)
	if act == nil || act.User == nil || !changed || slices.Contains(act.User.Groups, resource.GroupMasters) {
		return nil
	}
	res := "clusterroles"
	if ref.Kind == "Role" {
		res = "roles"
	}
	if a.allowed(ctx, act.User, "bind", res, act.Namespace, ref.Name) {
		return nil
	}
	idx := a.index.Load()
	if idx == nil {
		return resource.Unavailable("the access policy has not been read yet", 1)
	}
	rules, err := idx.rulesOf(ref, act.Namespace)
	if err != nil {
		return apierrors.NewNotFound(schema.GroupResource{Group: rbacv1.GroupName, Resource: res}, ref.Name)
	}
	return a.covered(act, gr, obj.GetName(), rules)
}

func (a *Access) allowed(ctx context.Context, u *resource.User, verb, res, namespace, name string) bool {
	decision, _, err := a.Authorize(ctx, &resource.Action{
		User: u, Verb: verb, IsResource: true, Group: rbacv1.GroupName, Version: "v1",
		Resource: res, Namespace: namespace, Name: name, InPath: true,
	})
	return err == nil && decision == authz.Allow
}

// covered returns a 403 that lists the rules which the user does not hold.
func (a *Access) covered(act *resource.Action, gr schema.GroupResource, name string, rules []rbacv1.PolicyRule) error {
	idx := a.index.Load()
	if idx == nil {
		return resource.Unavailable("the access policy has not been read yet", 1)
	}
	held, missing := idx.rules(act.User, act.Namespace)
	var parts []rbacv1.PolicyRule
	for _, r := range rules {
		for _, one := range split(r) {
			if !slices.ContainsFunc(held, func(h rbacv1.PolicyRule) bool { return covers(&h, &one) }) {
				parts = append(parts, one)
			}
		}
	}
	if len(parts) == 0 {
		return nil
	}
	var lacking []string
	for _, r := range joined(parts) {
		lacking = append(lacking, compact(&r))
	}
	slices.Sort(lacking)
	text := fmt.Sprintf("user %q (groups=%q) is attempting to grant RBAC permissions not currently held:\n%s",
		act.User.Name, act.User.Groups, strings.Join(slices.Compact(lacking), "\n"))
	if len(missing) > 0 {
		text += fmt.Sprintf("; resolution errors: %v", missing)
	}
	return apierrors.NewForbidden(gr, name, errors.New(text))
}

// split cuts a rule into rules of one verb and one target each, so that
// different rules may cover different parts of it.
func split(r rbacv1.PolicyRule) []rbacv1.PolicyRule {
	var out []rbacv1.PolicyRule
	for _, verb := range r.Verbs {
		for _, group := range r.APIGroups {
			for _, res := range r.Resources {
				one := rbacv1.PolicyRule{Verbs: []string{verb}, APIGroups: []string{group}, Resources: []string{res}}
				if len(r.ResourceNames) == 0 {
					out = append(out, one)
				}
				for _, name := range r.ResourceNames {
					named := one
					named.ResourceNames = []string{name}
					out = append(out, named)
				}
			}
		}
		for _, url := range r.NonResourceURLs {
			out = append(out, rbacv1.PolicyRule{Verbs: []string{verb}, NonResourceURLs: []string{url}})
		}
	}
	return out
}

// covers reports whether a held rule includes a split one.
func covers(held, one *rbacv1.PolicyRule) bool {
	if !has(held.Verbs, one.Verbs[0]) {
		return false
	}
	if len(one.NonResourceURLs) > 0 {
		return slices.ContainsFunc(held.NonResourceURLs, func(h string) bool {
			return h == one.NonResourceURLs[0] || strings.HasSuffix(h, "*") && strings.HasPrefix(one.NonResourceURLs[0], strings.TrimRight(h, "*"))
		})
	}
	if !has(held.APIGroups, one.APIGroups[0]) {
		return false
	}
	res, sub, _ := strings.Cut(one.Resources[0], "/")
	if !matchesResource(held.Resources, res, sub) {
		return false
	}
	if len(held.ResourceNames) == 0 {
		return true
	}
	return len(one.ResourceNames) > 0 && slices.Contains(held.ResourceNames, one.ResourceNames[0])
}

// joined puts the verbs of split rules with the same target into one rule, as
// upstream's messages show them. Paths stay as they are, also as upstream has it.
func joined(parts []rbacv1.PolicyRule) []rbacv1.PolicyRule {
	var out []rbacv1.PolicyRule
	at := map[string]int{} // target to place in out
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

// compact writes a rule as upstream's messages do.
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
