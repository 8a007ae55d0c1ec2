// Package access is authorization: role based access control
// (rbac.authorization.k8s.io), access reviews and token reviews, and impersonation.
//
// Decisions that shaped it:
//
//   - Authorization reads one immutable index, built from the four RBAC kinds
//     whenever one of them changes, and ordered by subject: the cost of a decision
//     depends on the bindings of the user, not on all bindings.
//   - Members of system:masters are allowed before it is read, so that an empty
//     or broken store locks no administrator out.
//   - The bootstrap roles and bindings are data (policy.go). At start missing
//     rules and subjects are added; additions of users stay.
//
// Runs in: gateway.
package access

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

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
	// Audiences are those of this API server; TokenReviews that name none ask
	// for these.
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
	kept  atomic.Pointer[kept]

	mu    sync.Mutex // guards state and bootstrapped
	state policyState
	// bootstrapped is the revision of each kind that the index must have
	// reached to hold the bootstrap policy.
	bootstrapped [4]int64
}

// The followed kinds.
const (
	kindRole = iota
	kindClusterRole
	kindBinding
	kindClusterBinding
)

// policyState is the latest of each followed kind.
type policyState struct {
	roles        []*rbacv1.Role
	clusterRoles []*rbacv1.ClusterRole
	bindings     []*rbacv1.RoleBinding
	clusterBinds []*rbacv1.ClusterRoleBinding
	// at is the revision of each kind's latest state; 0 before the first.
	at [4]int64
}

// New returns an Access that allows system:masters only, until Run has read
// the stored policy.
func New(cfg Config) *Access {
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	return &Access{cfg: cfg, log: cfg.Logger}
}

// Ready returns nil once the bootstrap policy is stored and the index holds it.
func (a *Access) Ready() error {
	switch {
	case a.index.Load() == nil:
		return errors.New("the stored policy has not been read yet")
	case !a.ready.Load():
		return errors.New("the bootstrap policy is not in place yet")
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

// Run keeps the index, the bootstrap policy and aggregated roles until ctx
// ends. find returns the resources that Kinds describes.
func (a *Access) Run(ctx context.Context, find func(gr schema.GroupResource) *rest.Resource) error {
	res := func(name string) *rest.Resource {
		return find(schema.GroupResource{Group: rbacv1.GroupName, Resource: name})
	}
	roles, clusterRoles := res("roles"), res("clusterroles")
	bindings, clusterBinds := res("rolebindings"), res("clusterrolebindings")
	a.kept.Store(&kept{roles: roles, clusterRoles: clusterRoles, bindings: bindings, clusterBinds: clusterBinds})
	aggregate := new(loop.Signal)
	var wg sync.WaitGroup
	wg.Go(func() {
		follow(ctx, a, roles, kindRole, func(s *policyState, list []*rbacv1.Role) { s.roles = list })
	})
	wg.Go(func() {
		follow(ctx, a, clusterRoles, kindClusterRole, func(s *policyState, list []*rbacv1.ClusterRole) {
			s.clusterRoles = list
			aggregate.Set()
		})
	})
	wg.Go(func() {
		follow(ctx, a, bindings, kindBinding, func(s *policyState, list []*rbacv1.RoleBinding) { s.bindings = list })
	})
	wg.Go(func() {
		follow(ctx, a, clusterBinds, kindClusterBinding, func(s *policyState, list []*rbacv1.ClusterRoleBinding) { s.clusterBinds = list })
	})
	wg.Go(func() { a.bootstrap(ctx, roles, clusterRoles, bindings, clusterBinds) })
	wg.Go(func() { a.aggregate(ctx, aggregate, clusterRoles) })
	wg.Wait()
	return ctx.Err()
}

// follow keeps one kind of the state and rebuilds the index with every change.
func follow[T rest.Object](ctx context.Context, a *Access, r *rest.Resource, kind int, set func(*policyState, []T)) {
	var known []T
	// Follow ends with ctx only, and returns its error.
	_ = loop.Follow(ctx, r.Store, loop.FollowOptions{Logger: a.log}, func(s loop.Snapshot) {
		known, _ = decodeAll(a.log, r, s.Items, known)
		a.mu.Lock()
		defer a.mu.Unlock()
		set(&a.state, known)
		a.state.at[kind] = max(s.Revision, 1)
		if !slices.Contains(a.state.at[:], 0) {
			a.index.Store(newIndex(&a.state))
		}
	})
}

// Authorize decides about an action. A user in system:masters may do
// everything; else a role must grant it.
func (a *Access) Authorize(_ context.Context, act *resource.Action) (authz.Decision, string, error) {
	if act.User == nil {
		return authz.NoOpinion, "", nil
	}
	if isMaster(act.User) {
		return authz.Allow, "", nil
	}
	idx := a.index.Load()
	if idx == nil {
		return authz.NoOpinion, "", errors.New("the access policy has not been read yet")
	}
	decision, reason := idx.authorize(act)
	return decision, reason, nil
}

func isMaster(u *resource.User) bool { return slices.Contains(u.Groups, resource.GroupMasters) }
