// Package access is role based access control (rbac.authorization.k8s.io), access reviews, token
// reviews, and impersonation. RBAC is one authorizer of the chain in gateway/authorization, which
// decides for reviews, impersonation, and the verbs bind and escalate.
//
// Decisions:
//
//   - Authorization reads one immutable index, built from the four RBAC kinds whenever one of
//     them changes, and ordered by subject: the cost of a decision depends on the bindings of
//     the user, not on all bindings.
//   - Members of system:masters are allowed without the index, so an empty or broken store
//     locks no administrator out.
//   - The bootstrap roles and bindings are data (policy.go). At start, missing rules and
//     subjects are added; additions of users are kept.
//
// Runs in: gateway.
package access

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"

	"portico/resource"
	"portico/resource/authn"
	"portico/resource/authz"
	"portico/resource/loop"
	"portico/resource/rest"
)

// Config of Access.
type Config struct {
	// Authenticator answers TokenReviews. Required.
	Authenticator authn.Authenticator
	// Chain returns the authorizers of this gateway, RBAC among them; nil: RBAC alone.
	Chain func() authz.Engine
	// Audiences of this API server, for TokenReviews that name none.
	Audiences []string
	// Logger, nil: slog.Default().
	Logger *slog.Logger
}

// Access authorizes requests. Safe for concurrent use.
type Access struct {
	cfg   Config
	log   *slog.Logger
	index atomic.Pointer[index]
	ready atomic.Bool // the bootstrap policy is stored
	// resources are those of Run; nil before.
	resources atomic.Pointer[[numKinds]*rest.Resource]

	mu    sync.Mutex // guards state and bootstrapped
	state policyState
	// bootstrapped is the revision of each kind at which it has the bootstrap policy.
	bootstrapped [numKinds]int64
}

// The stored kinds.
const (
	roles = iota
	clusterRoles
	roleBindings
	clusterRoleBindings
	numKinds
)

// groupResource returns the resource of a stored kind.
func groupResource(kind int) schema.GroupResource {
	return rbacv1.Resource([numKinds]string{"roles", "clusterroles", "rolebindings", "clusterrolebindings"}[kind])
}

// policyState is a state of the stored kinds.
type policyState struct {
	objects [numKinds][]rest.Object
	// at is the revision of each kind; 0: unknown.
	at [numKinds]int64
}

// New returns an Access that allows system:masters only, until Run has read the stored
// policy.
func New(cfg Config) *Access {
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	a := &Access{cfg: cfg, log: cfg.Logger}
	if cfg.Chain == nil {
		a.cfg.Chain = func() authz.Engine { return a }
	}
	return a
}

// Ready returns nil once the bootstrap policy is stored and in the index.
func (a *Access) Ready() error {
	switch {
	case a.index.Load() == nil:
		return errors.New("the stored policy has not been read yet")
	case !a.ready.Load():
		return errors.New("the bootstrap policy is not stored yet")
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for kind, rev := range a.bootstrapped {
		if a.state.at[kind] < rev {
			return errors.New("the bootstrap policy has not been read yet")
		}
	}
	return nil
}

// Run keeps the index, the bootstrap policy and aggregated roles until ctx ends. find returns
// the resources of Kinds.
func (a *Access) Run(ctx context.Context, find func(gr schema.GroupResource) *rest.Resource) error {
	var resources [numKinds]*rest.Resource
	for kind := range resources {
		resources[kind] = find(groupResource(kind))
	}
	a.resources.Store(&resources)
	var aggregate loop.Signal
	var wg sync.WaitGroup
	for kind, r := range resources {
		wg.Go(func() {
			a.follow(ctx, r, kind, func() {
				if kind == clusterRoles {
					aggregate.Set()
				}
			})
		})
	}
	wg.Go(func() { a.bootstrap(ctx, &resources) })
	wg.Go(func() { a.aggregate(ctx, &aggregate, resources[clusterRoles]) })
	wg.Wait()
	return ctx.Err()
}

// follow keeps one kind of the state and rebuilds the index with every change.
func (a *Access) follow(ctx context.Context, r *rest.Resource, kind int, changed func()) {
	var known []rest.Object
	// Follow returns only the error of ctx.
	_ = loop.Follow(ctx, r.Store, loop.FollowOptions{Logger: a.log}, func(s loop.Snapshot) {
		known = a.decodeAll(r, s.Items, known)
		a.mu.Lock()
		a.state.objects[kind], a.state.at[kind] = known, max(s.Revision, 1)
		if !slices.Contains(a.state.at[:], 0) {
			a.index.Store(newIndex(&a.state))
		}
		a.mu.Unlock()
		changed()
	})
}

// Restore authorizes requests by the policy that an earlier process read, until Run has read
// the stored one. objects returns the objects of a resource.
func (a *Access) Restore(find func(schema.GroupResource) *rest.Resource, objects func(schema.GroupResource) []*resource.Object) {
	var s policyState
	for kind := range s.objects {
		gr := groupResource(kind)
		s.objects[kind] = a.decodeAll(find(gr), objects(gr), nil)
	}
	a.index.CompareAndSwap(nil, newIndex(&s))
}

// Authorize decides about an action by RBAC: a user in system:masters may do everything, other
// users what a role grants.
func (a *Access) Authorize(ctx context.Context, act *resource.Action) (authz.Decision, string, error) {
	if act.User == nil {
		return authz.NoOpinion, "", nil
	}
	if isMaster(act.User) {
		return authz.Allow, "", nil
	}
	idx, ok := ctx.Value(indexKey{}).(*index)
	if !ok {
		idx = a.index.Load()
	}
	if idx == nil {
		return authz.NoOpinion, "", errUnread
	}
	decision, reason := idx.authorize(act)
	return decision, reason, nil
}

var errUnread = errors.New("the access policy has not been read yet")

// indexKey is the key of a context for the index to decide by, if it is not the followed one.
type indexKey struct{}

// RulesFor returns the rules that roles grant to a user.
func (a *Access) RulesFor(_ context.Context, u *resource.User, namespace string) (rules []rbacv1.PolicyRule, incomplete bool, err error) {
	idx := a.index.Load()
	if idx == nil {
		return nil, true, errUnread
	}
	rules, missing := idx.rules(u, namespace)
	return rules, false, utilerrors.NewAggregate(missing)
}

func isMaster(u *resource.User) bool { return slices.Contains(u.Groups, resource.GroupMasters) }

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
