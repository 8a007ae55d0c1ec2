// Package authorization is the chain of authorizers that decides about every request: those of
// kube-apiserver's AuthorizationConfiguration, or of the flags that it replaces.
//
// Decisions:
//
//   - The file, its validation, webhooks with their cache, match conditions and metrics are
//     upstream's packages. This package puts the chain together and reads the file again.
//   - RBAC (gateway/access) and Node (gateway/authorization/node) outlive reloads; webhooks are made
//     again. A request keeps the chain with which it began.
//   - Members of system:masters are allowed before any authorizer is asked, so no configuration
//     locks administrators out.
//   - ABAC is left out: its file is read at start only, and RBAC or a webhook says the same.
//
// Runs in: gateway.
package authorization

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	apiserver "k8s.io/apiserver/pkg/apis/apiserver"
	authorizationcel "k8s.io/apiserver/pkg/authorization/cel"
	decisions "k8s.io/apiserver/pkg/authorization/metrics"
	reloads "k8s.io/apiserver/pkg/server/options/authorizationconfig/metrics"
	"k8s.io/apiserver/pkg/util/filesystem"

	"portico/resource"
	"portico/resource/authz"
)

// Authorizer is the chain of the present configuration. Safe for concurrent use.
type Authorizer struct {
	cfg      Config
	engines  Engines
	log      *slog.Logger
	compiler authorizationcel.Compiler
	// required are the types that the file must keep, as upstream: all but webhooks.
	required []apiserver.AuthorizerType
	current  atomic.Pointer[chain]

	// Of Run only.
	data   []byte // of the file, when it was read last
	loaded *apiserver.AuthorizationConfiguration
}

// Engines are the authorizers that are not made from the configuration alone.
type Engines struct {
	RBAC authz.Engine
	// Node is called if a configuration has the type Node at start.
	Node func() authz.Engine
	// Dial connects to webhooks; nil: directly.
	Dial utilnet.DialFunc
}

// New reads the configuration and returns its Authorizer. Run must run for the file to be read again.
func New(cfg Config, engines Engines, log *slog.Logger) (*Authorizer, error) {
	a := &Authorizer{cfg: cfg, engines: engines, log: log, compiler: authorizationcel.NewDefaultCompiler()}
	var err error
	if a.loaded, a.data, err = cfg.load(a.compiler); err != nil {
		return nil, err
	}
	for _, c := range a.loaded.Authorizers {
		if c.Type != apiserver.TypeWebhook {
			a.required = append(a.required, c.Type)
		}
	}
	if slices.Contains(a.required, typeNode) {
		node := engines.Node()
		a.engines.Node = func() authz.Engine { return node }
	}
	decisions.RegisterMetrics()
	chain, err := a.newChain(a.loaded)
	if err != nil {
		return nil, err
	}
	a.current.Store(&chain)
	return a, nil
}

// Metrics are the prefixes of upstream's metrics of authorization.
func Metrics() []string {
	return []string{"apiserver_authorization_"}
}

// link is one authorizer of a chain, with the type and the name that metrics and messages have.
type link struct {
	authz.Engine
	kind, name string
}

// chain is asked in order, until an authorizer allows or denies. Immutable.
type chain []link

// Authorize implements authz.Authorizer.
func (a *Authorizer) Authorize(ctx context.Context, act *resource.Action) (authz.Decision, string, error) {
	return authz.Constrained(ctx, a.decide, act)
}

func (a *Authorizer) decide(ctx context.Context, act *resource.Action) (authz.Decision, string, error) {
	switch {
	case act.User == nil:
		return authz.NoOpinion, "", nil
	case slices.Contains(act.User.Groups, resource.GroupMasters):
		return authz.Allow, "", nil
	}
	return a.current.Load().authorize(ctx, act)
}

func (c chain) authorize(ctx context.Context, act *resource.Action) (authz.Decision, string, error) {
	var reasons []string
	var errs []error
	for i := range c {
		l := &c[i]
		decision, reason, err := l.Authorize(ctx, act)
		switch decision {
		case authz.Allow:
			decisions.RecordAuthorizationDecision(l.kind, l.name, "allowed")
			return decision, reason, err
		case authz.Deny:
			decisions.RecordAuthorizationDecision(l.kind, l.name, "denied")
			return decision, reason, err
		}
		if reason != "" {
			reasons = append(reasons, l.name+": "+reason)
		}
		if err != nil {
			errs = append(errs, err)
		}
	}
	if len(errs) == 1 {
		return authz.NoOpinion, strings.Join(reasons, "\n"), errs[0]
	}
	return authz.NoOpinion, strings.Join(reasons, "\n"), utilerrors.NewAggregate(errs)
}

// RulesFor implements authz.Engine: the rules of all authorizers that can tell them.
func (a *Authorizer) RulesFor(ctx context.Context, u *resource.User, namespace string) (rules []rbacv1.PolicyRule, incomplete bool, err error) {
	var errs []error
	for _, l := range *a.current.Load() {
		some, unknown, err := l.RulesFor(ctx, u, namespace)
		rules, incomplete = append(rules, some...), incomplete || unknown
		if err != nil {
			errs = append(errs, err)
		}
	}
	return rules, incomplete, utilerrors.NewAggregate(errs)
}

// newChain makes the authorizers of a configuration.
func (a *Authorizer) newChain(cfg *apiserver.AuthorizationConfiguration) (chain, error) {
	var all chain
	for i := range cfg.Authorizers {
		c := &cfg.Authorizers[i]
		var engine authz.Engine
		switch c.Type {
		case apiserver.TypeWebhook:
			w, err := newWebhook(c, a.compiler, a.engines.Dial)
			if err != nil {
				return nil, err
			}
			engine = w
		case typeRBAC:
			engine = a.engines.RBAC
		case typeNode:
			engine = a.engines.Node()
		case typeAlwaysAllow:
			engine = always{decision: authz.Allow, rules: authz.Everything()}
		case typeAlwaysDeny:
			engine = always{reason: "Everything is forbidden."}
		}
		all = append(all, link{Engine: engine, kind: string(c.Type), name: c.Name})
	}
	return all, nil
}

// always decides about every action in the same way.
type always struct {
	decision authz.Decision
	reason   string
	rules    []rbacv1.PolicyRule
}

// Authorize implements authz.Authorizer.
func (a always) Authorize(context.Context, *resource.Action) (authz.Decision, string, error) {
	return a.decision, a.reason, nil
}

// RulesFor implements authz.Engine.
func (a always) RulesFor(context.Context, *resource.User, string) ([]rbacv1.PolicyRule, bool, error) {
	return a.rules, false, nil
}

// pollInterval is how often the file is read without a notification of a change, as upstream.
const pollInterval = time.Minute

// Run reads the file again when it changes, until ctx ends. A file that is wrong is logged and
// counted, and the configuration before it stays in force. Metrics have the hash of host.
func (a *Authorizer) Run(ctx context.Context, host string) error {
	if a.cfg.ConfigFile == "" {
		<-ctx.Done()
		return ctx.Err()
	}
	reloads.RegisterMetrics()
	reloads.RecordAuthorizationConfigLastConfigInfo(host, string(a.data))
	filesystem.WatchUntil(ctx, pollInterval, a.cfg.ConfigFile, func() {
		data, err := os.ReadFile(a.cfg.ConfigFile)
		if err == nil && bytes.Equal(data, a.data) {
			return
		}
		if err == nil {
			a.data = data
			err = a.reload(data)
		}
		if err != nil {
			a.log.Error("reloading the authorization configuration failed, the one before stays in use", "file", a.cfg.ConfigFile, "err", err)
			reloads.RecordAuthorizationConfigAutomaticReloadFailure(host)
			return
		}
		a.log.Info("authorization configuration reloaded", "file", a.cfg.ConfigFile)
		reloads.RecordAuthorizationConfigAutomaticReloadSuccess(host, string(data))
	}, func(err error) {
		a.log.Warn("the authorization configuration is not watched and read every minute", "file", a.cfg.ConfigFile, "err", err)
	})
	return ctx.Err()
}

// reload puts the configuration of the file into force.
func (a *Authorizer) reload(data []byte) error {
	cfg, err := parse(data, a.compiler)
	if err != nil {
		return err
	}
	var types []apiserver.AuthorizerType
	for _, c := range cfg.Authorizers {
		if types = append(types, c.Type); c.Type != apiserver.TypeWebhook && !slices.Contains(a.required, c.Type) {
			return fmt.Errorf("authorizer type %s is not allowed if it was not enabled at initial server startup", c.Type)
		}
	}
	if missing := slices.DeleteFunc(slices.Clone(a.required), func(t apiserver.AuthorizerType) bool { return slices.Contains(types, t) }); len(missing) > 0 {
		return fmt.Errorf("missing required types: %v", missing)
	}
	if reflect.DeepEqual(cfg, a.loaded) {
		return nil
	}
	chain, err := a.newChain(cfg)
	if err != nil {
		return err
	}
	a.loaded = cfg
	a.current.Store(&chain)
	return nil
}

var errNoRules = errors.New("webhook authorizer does not support user rule resolution")
