package admission

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/admission/plugin/policy/generic"

	"portico/resource"
	"portico/resource/loop"
)

// paramRetry is how long after a parameter kind was not found it is looked for
// again: its definition may have been created since.
const paramRetry = time.Second

// policySet is the policies of one of the two engines with their bindings,
// compiled: P is the kind of policies, B that of bindings, E what a policy
// compiles to. Policies without a binding are not compiled.
type policySet[P, B configuration, E any] struct {
	policies *source[P]
	bindings *source[B]
	accessP  func(P) generic.PolicyAccessor
	accessB  func(B) generic.BindingAccessor
	compile  func(P) E
	params   *params
	needed   *gate // namespaces: wanted once there are policies
	logger   *slog.Logger

	known *gate
	hooks atomic.Pointer[[]generic.PolicyHook[P, B, E]]

	changed loop.Signal
	mu      sync.Mutex
	read    struct { // what the sources read last; nil: nothing yet
		policies *[]P
		bindings *[]B
	}
	// compiled and failing (why parameters of a policy were not found) are the
	// loop's own.
	compiled map[string]compiled[E]
	failing  map[string]string
}

// compiled is what became of a policy.
type compiled[E any] struct {
	uid       types.UID
	revision  string
	evaluator E
}

func newPolicySet[P, B configuration, E any](e *Engine, policies, bindings *resource.Info) *policySet[P, B, E] {
	s := &policySet[P, B, E]{params: newParams(e), needed: e.namespaces.needed, logger: e.logger, known: newGate()}
	s.policies = newSource(e, policies, func(list []P) { s.note(&list, nil) })
	s.bindings = newSource(e, bindings, func(list []B) { s.note(nil, &list) })
	return s
}

// note remembers what a source read.
func (s *policySet[P, B, E]) note(policies *[]P, bindings *[]B) {
	s.mu.Lock()
	if policies != nil {
		s.read.policies = policies
	}
	if bindings != nil {
		s.read.bindings = bindings
	}
	complete := s.read.policies != nil && s.read.bindings != nil
	s.mu.Unlock()
	if complete {
		s.changed.Set()
	}
}

// run follows the policies until ctx ends.
func (s *policySet[P, B, E]) run(ctx context.Context) {
	var wg sync.WaitGroup
	wg.Go(func() { s.policies.run(ctx) })
	wg.Go(func() { s.bindings.run(ctx) })
	s.build(ctx)
	s.params.stop()
	wg.Wait()
}

// build keeps the hooks in line with what is read.
func (s *policySet[P, B, E]) build(ctx context.Context) {
	var retry <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.changed.C():
		case <-retry:
		}
		s.mu.Lock()
		policies, bindings := *s.read.policies, *s.read.bindings
		s.mu.Unlock()
		hooks, complete := s.combine(ctx, policies, bindings)
		if len(hooks) > 0 {
			s.needed.open()
		}
		s.hooks.Store(&hooks)
		s.known.open()
		retry = nil
		if !complete {
			retry = time.After(paramRetry)
		}
	}
}

// combine makes a hook of every policy with bindings, in the order of their
// names. complete is false if a kind of parameters was not found.
func (s *policySet[P, B, E]) combine(ctx context.Context, policies []P, bindings []B) (hooks []generic.PolicyHook[P, B, E], complete bool) {
	bound := map[string][]B{}
	for _, b := range bindings {
		name := s.accessB(b).GetPolicyName().Name
		bound[name] = append(bound[name], b)
	}
	next, failing := map[string]compiled[E]{}, map[string]string{}
	search := s.params.search(ctx)
	for _, p := range policies {
		name := p.GetName()
		if len(bound[name]) == 0 {
			continue
		}
		next[name] = s.compiledOf(p)
		hook := generic.PolicyHook[P, B, E]{Policy: p, Bindings: bound[name], Evaluator: next[name].evaluator}
		if kind := s.accessP(p).GetParamKind(); kind != nil {
			found, err := search.find(paramKind{kind.APIVersion, kind.Kind})
			if err != nil {
				hook.ConfigurationError, failing[name] = err, err.Error()
			} else {
				hook.ParamInformer, hook.ParamScope = found.informer, found.mapping.Scope
				hook.DynamicClient, hook.RESTMapper = s.params.client, s.params
			}
		}
		hooks = append(hooks, hook)
	}
	search.end()
	s.complain(failing)
	s.compiled, s.failing = next, failing
	slices.SortFunc(hooks, func(a, b generic.PolicyHook[P, B, E]) int { return cmp.Compare(a.Policy.GetName(), b.Policy.GetName()) })
	return hooks, len(failing) == 0
}

// complain logs why parameters were not found, once.
func (s *policySet[P, B, E]) complain(failing map[string]string) {
	for policy, err := range failing {
		if s.failing[policy] != err {
			s.logger.Warn("find parameters of policy failed", "policy", policy, "error", err)
		}
	}
}

// compiledOf compiles a policy, unless it was before.
func (s *policySet[P, B, E]) compiledOf(p P) compiled[E] {
	c, ok := s.compiled[p.GetName()]
	if ok && c.uid == p.GetUID() && c.revision == p.GetResourceVersion() {
		return c
	}
	return compiled[E]{p.GetUID(), p.GetResourceVersion(), s.compile(p)}
}

// any reports whether there are policies to ask.
func (s *policySet[P, B, E]) any() bool { return len(s.current()) > 0 }

func (s *policySet[P, B, E]) current() []generic.PolicyHook[P, B, E] {
	if hooks := s.hooks.Load(); hooks != nil {
		return *hooks
	}
	return nil
}
