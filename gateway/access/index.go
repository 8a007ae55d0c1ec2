package access

import (
	"fmt"
	"iter"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"

	"portico/resource"
)

// grant is what one binding gives one subject.
type grant struct {
	binding string // as messages name it
	role    rbacv1.RoleRef
	subject rbacv1.Subject
	// namespace restricts the grant; "" is everywhere.
	namespace string
	rules     []rbacv1.PolicyRule
	missing   error // the role does not exist
}

func (g *grant) describe() string {
	subject := fmt.Sprintf("%s %q", g.subject.Kind, g.subject.Name)
	if g.subject.Kind == rbacv1.ServiceAccountKind {
		subject = fmt.Sprintf("%s %q", g.subject.Kind, g.subject.Name+"/"+g.subject.Namespace)
	}
	return fmt.Sprintf("%s of %s %q to %s", g.binding, g.role.Kind, g.role.Name, subject)
}

// index is the whole policy, ordered by who it is for. Immutable.
type index struct {
	users, groups map[string][]*grant
	// roles finds rules by reference, for escalation checks.
	roles        map[resource.Key][]rbacv1.PolicyRule
	clusterRoles map[string][]rbacv1.PolicyRule
}

func newIndex(s *policyState) *index {
	x := &index{
		users: map[string][]*grant{}, groups: map[string][]*grant{},
		roles: map[resource.Key][]rbacv1.PolicyRule{}, clusterRoles: map[string][]rbacv1.PolicyRule{},
	}
	for _, r := range s.roles {
		x.roles[resource.Key{Namespace: r.Namespace, Name: r.Name}] = r.Rules
	}
	for _, r := range s.clusterRoles {
		x.clusterRoles[r.Name] = r.Rules
	}
	for _, b := range s.clusterBinds {
		x.add(fmt.Sprintf("ClusterRoleBinding %q", b.Name), "", b.RoleRef, b.Subjects)
	}
	for _, b := range s.bindings {
		x.add(fmt.Sprintf("RoleBinding %q", b.Name+"/"+b.Namespace), b.Namespace, b.RoleRef, b.Subjects)
	}
	return x
}

func (x *index) add(binding, namespace string, role rbacv1.RoleRef, subjects []rbacv1.Subject) {
	rules, missing := x.rulesOf(role, namespace)
	for _, s := range subjects {
		g := &grant{binding: binding, role: role, subject: s, namespace: namespace, rules: rules, missing: missing}
		switch s.Kind {
		case rbacv1.UserKind:
			x.users[s.Name] = append(x.users[s.Name], g)
		case rbacv1.GroupKind:
			x.groups[s.Name] = append(x.groups[s.Name], g)
		case rbacv1.ServiceAccountKind:
			ns := s.Namespace
			if ns == "" {
				ns = namespace
			}
			name := "system:serviceaccount:" + ns + ":" + s.Name
			x.users[name] = append(x.users[name], g)
		}
	}
}

// rulesOf returns the rules of a referenced role, or an error that it is not
// there.
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

// grants yields what a user is given in a namespace ("": outside of all).
func (x *index) grants(u *resource.User, namespace string) iter.Seq[*grant] {
	return func(yield func(*grant) bool) {
		each := func(list []*grant) bool {
			for _, g := range list {
				if (g.namespace == "" || g.namespace == namespace) && !yield(g) {
					return false
				}
			}
			return true
		}
		if !each(x.users[u.Name]) {
			return
		}
		for _, name := range u.Groups {
			if !each(x.groups[name]) {
				return
			}
		}
	}
}

// rules returns every rule a user has in a namespace.
func (x *index) rules(u *resource.User, namespace string) (rules []rbacv1.PolicyRule, missing []error) {
	for g := range x.grants(u, namespace) {
		if g.missing != nil {
			missing = append(missing, g.missing)
		}
		rules = append(rules, g.rules...)
	}
	return rules, missing
}

// matches reports whether a rule grants an action (contract 7.6).
func matches(r *rbacv1.PolicyRule, a *resource.Action) bool {
	if !has(r.Verbs, a.Verb) {
		return false
	}
	if !a.IsResource {
		return matchesURL(r.NonResourceURLs, a.Path)
	}
	return has(r.APIGroups, a.Group) && matchesResource(r.Resources, a.Resource, a.Subresource) && matchesName(r.ResourceNames, a.Name)
}

// has reports whether a list names a value, or everything.
func has(list []string, value string) bool {
	for _, v := range list {
		if v == rbacv1.VerbAll || v == value {
			return true
		}
	}
	return false
}

// matchesResource compares "pods", "pods/log", "*/scale" and "*" with a target.
func matchesResource(list []string, res, sub string) bool {
	combined := res
	if sub != "" {
		combined += "/" + sub
	}
	for _, v := range list {
		if v == rbacv1.ResourceAll || v == combined || sub != "" && v == "*/"+sub {
			return true
		}
	}
	return false
}

func matchesName(list []string, name string) bool {
	if len(list) == 0 {
		return true
	}
	for _, v := range list {
		if v == name {
			return true
		}
	}
	return false
}

func matchesURL(list []string, path string) bool {
	for _, v := range list {
		if v == rbacv1.NonResourceAll || v == path || strings.HasSuffix(v, "*") && strings.HasPrefix(path, strings.TrimRight(v, "*")) {
			return true
		}
	}
	return false
}
