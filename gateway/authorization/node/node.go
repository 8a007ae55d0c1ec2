// Package node is the authorizer of kubelets: a user system:node:NAME of the group system:nodes
// reads what the pods of its node refer to, and writes its own objects.
//
// Decisions:
//
//   - The rules are kube-apiserver's. What they leave to admission (the content of writes) is
//     checked by the plugin NodeRestriction of the core server.
//   - The pods, volumes, attachments, slices and certificate requests of the core server are
//     watched one event at a time. Of each only what it refers to is kept.
//   - While they cannot be read, the last state counts; before the first one, the answer is 503.
//
// Runs in: gateway.
package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico/resource"
	"portico/resource/authz"
)

// Config of an Authorizer.
type Config struct {
	// Reader returns a reader of a resource of the core server. Required.
	Reader func(info *resource.Info) resource.Reader
	// Others decides about resources that do not belong to single nodes, by the role system:node.
	// Required.
	Others func(act *resource.Action) bool
	// Logger, nil: slog.Default().
	Logger *slog.Logger
}

// Authorizer authorizes kubelets. Safe for concurrent use.
type Authorizer struct {
	cfg   Config
	graph *graph
	// unread counts the resources that were not read yet.
	unread atomic.Int32
}

// New returns an Authorizer that knows no pods until Run has read them.
func New(cfg Config) *Authorizer {
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	a := &Authorizer{cfg: cfg, graph: newGraph()}
	a.unread.Store(int32(len(followed)))
	return a
}

// nameOf returns the node of a user; false for users that are no nodes.
func nameOf(u *resource.User) (string, bool) {
	name, ok := strings.CutPrefix(u.Name, "system:node:")
	return name, ok && slices.Contains(u.Groups, "system:nodes")
}

// RulesFor implements authz.Engine.
func (a *Authorizer) RulesFor(_ context.Context, u *resource.User, _ string) ([]rbacv1.PolicyRule, bool, error) {
	if _, ok := nameOf(u); ok {
		return nil, true, errors.New("node authorizer does not support user rule resolution")
	}
	return nil, false, nil
}

// Authorize implements authz.Authorizer.
func (a *Authorizer) Authorize(_ context.Context, act *resource.Action) (authz.Decision, string, error) {
	name, ok := nameOf(act.User)
	switch {
	case !ok:
		return authz.NoOpinion, "", nil
	case name == "":
		return authz.NoOpinion, fmt.Sprintf("unknown node for user %q", act.User.Name), nil
	}
	decide := rules[schema.GroupResource{Group: act.Group, Resource: act.Resource}]
	if !act.IsResource || decide == nil {
		if a.cfg.Others(act) {
			return authz.Allow, "", nil
		}
		return authz.NoOpinion, "", nil
	}
	allowed, related, reason := decide(name, act)
	switch {
	case allowed:
		return authz.Allow, "", nil
	case related == nil:
		return authz.NoOpinion, reason, nil
	case act.Name == "":
		return authz.NoOpinion, "No Object name found", nil
	case a.graph.concerns(name, *related):
		return authz.Allow, "", nil
	case a.unread.Load() > 0:
		return authz.NoOpinion, "", resource.Unavailable("the pods of nodes have not been read yet", 1)
	}
	return authz.NoOpinion, fmt.Sprintf("no relationship found between node '%s' and this object", name), nil
}
