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
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"

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
