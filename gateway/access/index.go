package access

import (
	"fmt"
	"iter"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"

	"portico/resource"
	"portico/resource/authz"
)

// grant is a role that a binding grants to one subject.
type grant struct {
	role *boundRole
	// reason is the reason of an authorization by this grant.
	reason string
}

// boundRole is the role of a binding.
type boundRole struct {
	rules   []rbacv1.PolicyRule
	missing error // the role does not exist
}

// holder is the subject of grants and the namespace in which they apply. Service accounts are
// users, by the user name of their tokens.
type holder struct {
	kind, name string
	namespace  string // "" is everywhere
}

// index is the whole policy, by subject. Immutable.
type index struct {
	grants map[holder][]grant
	// roles finds rules by reference, for escalation checks.
	roles        map[resource.Key][]rbacv1.PolicyRule
	clusterRoles map[string][]rbacv1.PolicyRule
}

func newIndex(s *policyState) *index {
	x := &index{
		grants: make(map[holder][]grant, len(s.objects[roleBindings])+len(s.objects[clusterRoleBindings])),
		roles:  make(map[resource.Key][]rbacv1.PolicyRule, len(s.objects[roles])), clusterRoles: make(map[string][]rbacv1.PolicyRule, len(s.objects[clusterRoles])),
	}
	for _, r := range s.objects[roles] {
		x.roles[resource.Key{Namespace: r.GetNamespace(), Name: r.GetName()}] = r.(*rbacv1.Role).Rules
	}
	for _, r := range s.objects[clusterRoles] {
		x.clusterRoles[r.GetName()] = r.(*rbacv1.ClusterRole).Rules
	}
	for _, b := range s.objects[clusterRoleBindings] {
		x.add(fmt.Sprintf("ClusterRoleBinding %q", b.GetName()), "", bindingOf(b))
	}
	for _, b := range s.objects[roleBindings] {
		x.add(fmt.Sprintf("RoleBinding %q", b.GetName()+"/"+b.GetNamespace()), b.GetNamespace(), bindingOf(b))
	}
	return x
}

// add adds a binding, called name in reasons; namespace is "" for a ClusterRoleBinding.
func (x *index) add(name, namespace string, b binding) {
	ref := *b.ref
	rules, missing := x.rulesOf(ref, namespace)
	role := &boundRole{rules: rules, missing: missing}
	allowed := fmt.Sprintf("RBAC: allowed by %s of %s %q to ", name, ref.Kind, ref.Name)
	for _, s := range *b.subjects {
		at := holder{kind: s.Kind, name: s.Name, namespace: namespace}
		called := s.Name
		if s.Kind == rbacv1.ServiceAccountKind {
			home := s.Namespace
			if home == "" {
				home = namespace
			}
			if home == "" {
				continue // a service account without a namespace does not exist
			}
			at.kind, at.name = rbacv1.UserKind, serviceaccount.MakeUsername(home, s.Name)
			called = s.Name + "/" + s.Namespace
		}
		x.grants[at] = append(x.grants[at], grant{role: role, reason: fmt.Sprintf("%s%s %q", allowed, s.Kind, called)})
	}
}

// rulesOf returns the rules of a referenced role, or an error if it does not exist.
func (x *index) rulesOf(ref rbacv1.RoleRef, namespace string) ([]rbacv1.PolicyRule, error) {
	if ref.Kind == "Role" {
		if rules, ok := x.roles[resource.Key{Namespace: namespace, Name: ref.Name}]; ok {
			return rules, nil
		}
		return nil, fmt.Errorf("role.rbac.authorization.k8s.io %q not found", ref.Name)
	}
	if rules, ok := x.clusterRoles[ref.Name]; ok {
		return rules, nil
	}
	return nil, fmt.Errorf("clusterrole.rbac.authorization.k8s.io %q not found", ref.Name)
}

// grantsOf yields the grants of a user in a namespace ("": none), first those that apply
// everywhere, as upstream.
func (x *index) grantsOf(u *resource.User, namespace string) iter.Seq[*grant] {
	return func(yield func(*grant) bool) {
		for _, at := range [2]string{"", namespace} {
			if !yieldAll(x.grants[holder{rbacv1.UserKind, u.Name, at}], yield) {
				return
			}
			for _, name := range u.Groups {
				if !yieldAll(x.grants[holder{rbacv1.GroupKind, name, at}], yield) {
					return
				}
			}
			if namespace == "" {
				return
			}
		}
	}
}

func yieldAll(list []grant, yield func(*grant) bool) bool {
	for i := range list {
		if !yield(&list[i]) {
			return false
		}
	}
	return true
}

// rules returns all rules of a user in a namespace, without duplicates of a binding.
func (x *index) rules(u *resource.User, namespace string) (rules []rbacv1.PolicyRule, missing []error) {
	seen := map[*boundRole]bool{}
	for g := range x.grantsOf(u, namespace) {
		if seen[g.role] {
			continue
		}
		seen[g.role] = true
		if g.role.missing != nil {
			missing = append(missing, g.role.missing)
		}
		rules = append(rules, g.role.rules...)
	}
	return rules, missing
}

// authorize decides about an action by the rules of its user.
func (x *index) authorize(act *resource.Action) (decision authz.Decision, reason string) {
	var missing []error
	for g := range x.grantsOf(act.User, act.Namespace) {
		if g.role.missing != nil {
			missing = append(missing, g.role.missing)
			continue
		}
		for i := range g.role.rules {
			if matches(&g.role.rules[i], act) {
				return authz.Allow, g.reason
			}
		}
	}
	if len(missing) > 0 {
		return authz.NoOpinion, fmt.Sprintf("RBAC: %v", utilerrors.NewAggregate(missing))
	}
	return authz.NoOpinion, ""
}

// matches reports whether a rule grants an action (docs/wire.md 7.6).
func matches(r *rbacv1.PolicyRule, a *resource.Action) bool {
	if !has(r.Verbs, a.Verb) {
		return false
	}
	if !a.IsResource {
		return matchesURL(r.NonResourceURLs, a.Path)
	}
	return has(r.APIGroups, a.Group) && matchesResource(r.Resources, a.Resource, a.Subresource) && matchesName(r.ResourceNames, a.Name)
}

// has reports whether a list has a value or "*".
func has(list []string, value string) bool {
	for _, v := range list {
		if v == rbacv1.VerbAll || v == value {
			return true
		}
	}
	return false
}

// matchesResource reports whether a list has a resource, as "pods", "pods/log", "*/scale" or "*".
func matchesResource(list []string, res, sub string) bool {
	for _, v := range list {
		switch {
		case v == rbacv1.ResourceAll, sub == "" && v == res:
			return true
		case sub != "":
			if of, named := strings.CutSuffix(v, sub); named && (of == "*/" || len(of) == len(res)+1 && of[:len(res)] == res && of[len(res)] == '/') {
				return true
			}
		}
	}
	return false
}

func matchesName(list []string, name string) bool {
	return len(list) == 0 || slices.Contains(list, name)
}

func matchesURL(list []string, path string) bool {
	for _, v := range list {
		if v == rbacv1.NonResourceAll || v == path || strings.HasSuffix(v, "*") && strings.HasPrefix(path, strings.TrimRight(v, "*")) {
			return true
		}
	}
	return false
}
