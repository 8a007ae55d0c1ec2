package admission

import (
	"context"
	"errors"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/admission/plugin/policy/generic"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/client-go/informers"

	"portico/resource/rest"
)

// policies is one of upstream's two policy engines with its policies and bindings. H is the
// hook of a policy: the policy, its bindings and what it compiles to.
type policies[H any] struct {
	name, phase        string // in metrics
	policies, bindings *informer
	source             generic.Source[H]
	synced             *gate // open once the first state was compiled
	// dispatcher evaluates hooks for a write.
	dispatcher func(*review) generic.Dispatcher[H]
	skipDelete bool
}

func newValidatingPolicies(e *Engine, list, bindings *informer) *policies[validating.PolicyHook] {
	dispatcher := validating.NewDispatcher(e.authorizer, generic.NewPolicyMatcher(e.matcher))
	return &policies[validating.PolicyHook]{
		name: validating.PluginName, phase: phaseValidate, policies: list, bindings: bindings, synced: newGate(),
		source: generic.NewPolicySource(list, bindings, validating.NewValidatingAdmissionPolicyAccessor, validating.NewValidatingAdmissionPolicyBindingAccessor,
			compileValidating, noInformers{}, e.parameters, e.mapper),
		dispatcher: func(*review) generic.Dispatcher[validating.PolicyHook] { return dispatcher },
	}
}

func newMutatingPolicies(e *Engine, list, bindings *informer) *policies[mutating.PolicyHook] {
	return &policies[mutating.PolicyHook]{
		name: mutating.PluginName, phase: phaseAdmit, policies: list, bindings: bindings, synced: newGate(),
		source: generic.NewPolicySource(list, bindings, mutating.NewMutatingAdmissionPolicyAccessor, mutating.NewMutatingAdmissionPolicyBindingAccessor,
			compileMutating, noInformers{}, e.parameters, e.mapper),
		// A dispatcher has no state, so each write can have one with the schema of its kind.
		dispatcher: func(r *review) generic.Dispatcher[mutating.PolicyHook] {
			return mutating.NewDispatcher(e.authorizer, e.matcher, typeConverters{r.write.Kind})
		},
		skipDelete: true, // a deletion has no object to mutate
	}
}

// run follows the policies until ctx ends. Upstream compiles changes once a second.
func (p *policies[H]) run(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { p.policies.run(ctx) })
	wg.Go(func() { p.bindings.run(ctx) })
	for _, i := range []*informer{p.policies, p.bindings} {
		select {
		case <-i.synced.opened:
		case <-ctx.Done():
			return
		}
	}
	wg.Go(func() {
		if wait.PollUntilContextCancel(ctx, 10*time.Millisecond, true, func(context.Context) (bool, error) { return p.source.HasSynced(), nil }) == nil {
			p.synced.open()
		}
	})
	_ = p.source.Run(ctx) // the error of ctx
}

// call evaluates all policies that match the write.
func (p *policies[H]) call(ctx context.Context, r *review) error {
	hooks := p.source.Hooks()
	if len(hooks) == 0 || p.skipDelete && r.write.Operation == rest.Delete {
		return nil
	}
	begun := time.Now()
	err := p.dispatcher(r).Dispatch(ctx, r.attributes(), r.objects, hooks)
	observe(ctx, begun, p.name, p.phase, r.write.Operation, err)
	return err
}

// noInformers is a factory without typed informers: parameters of all kinds are followed as
// unstructured objects.
type noInformers struct {
	informers.SharedInformerFactory
}

// ForResource implements informers.SharedInformerFactory.
func (noInformers) ForResource(schema.GroupVersionResource) (informers.GenericInformer, error) {
	return nil, errors.New("there are no typed informers")
}

// typeConverters gives apply configurations the schema of one kind: that of its field
// ownership. Without a schema, structure is deduced from the objects: maps are merged, and
// lists cannot be changed.
type typeConverters struct{ kind *rest.Kind }

// GetTypeConverter implements patch.TypeConverterManager.
func (t typeConverters) GetTypeConverter(schema.GroupVersionKind) managedfields.TypeConverter {
	if t.kind.Ownership == nil {
		return managedfields.NewDeducedTypeConverter()
	}
	converter, err := t.kind.Ownership()
	if err != nil {
		return nil
	}
	return converter
}

// Run implements patch.TypeConverterManager. It has nothing to do.
func (typeConverters) Run(context.Context) {}
