package flow

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	flowv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/apis/flowcontrol/bootstrap"

	"portico/internal/testing/await"
	"portico/internal/testing/memstore"
	"portico/resource"
	"portico/resource/rest"
)

// bench stores both kinds in memory.
func bench(t testing.TB) (f *Flow, levels, schemas *rest.Resource) {
	t.Helper()
	f = New(Config{Seats: 100})
	kinds, err := f.Kinds()
	if err != nil {
		t.Fatal(err)
	}
	storage := memstore.New()
	for _, k := range kinds {
		r := &rest.Resource{Kind: k, Store: storage.Store(&k.Info)}
		if k.Resource == "flowschemas" {
			schemas = r
		} else {
			levels = r
		}
	}
	return f, levels, schemas
}

// systemLevel is a limited level with queues.
func systemLevel() *flowv1.PriorityLevelConfiguration {
	l := bootstrap.SuggestedPriorityLevelConfigurationSystem.DeepCopy()
	l.Annotations = nil // it is not removed
	return l
}

func load[T rest.Object](t *testing.T, r *rest.Resource, name string) (out T, ok bool) {
	t.Helper()
	o, err := r.Store.Get(t.Context(), resource.Key{Name: name}, resource.At{})
	if err != nil {
		return out, false
	}
	obj, err := r.Decode(o)
	if err != nil {
		t.Fatal(err)
	}
	return obj.(T), true
}

// Run creates the objects that every cluster has, and the condition Dangling of a schema
// follows its level.
func TestRun(t *testing.T) {
	t.Parallel()
	f, levels, schemas := bench(t)
	find := func(gr schema.GroupResource) *rest.Resource {
		if gr.Resource == "flowschemas" {
			return schemas
		}
		return levels
	}
	if _, err := f.Open(find); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- f.Run(ctx, find) }()
	defer func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Run ended with %v", err)
		}
	}()
	is := func(name string, want flowv1.ConditionStatus) func() bool {
		return func() bool {
			s, ok := load[*flowv1.FlowSchema](t, schemas, name)
			return ok && len(s.Status.Conditions) == 1 && s.Status.Conditions[0].Type == flowv1.FlowSchemaConditionDangling && s.Status.Conditions[0].Status == want
		}
	}
	for _, s := range bootstrapSchemas() {
		await.Until(t, s.Name+" is there", is(s.Name, flowv1.ConditionFalse))
	}
	for _, want := range bootstrapLevels() {
		got, ok := load[*flowv1.PriorityLevelConfiguration](t, levels, want.Name)
		if !ok || !reflect.DeepEqual(got.Spec, want.Spec) {
			t.Errorf("level %s: %+v", want.Name, got)
		}
	}
	own := &flowv1.FlowSchema{}
	own.Name, own.Spec.PriorityLevelConfiguration.Name, own.Spec.MatchingPrecedence = "own", "lost", 1000
	if _, err := rest.CreateObject(ctx, schemas, own); err != nil {
		t.Fatal(err)
	}
	await.Until(t, "own is dangling", is("own", flowv1.ConditionTrue))
	level := systemLevel()
	level.Name = "lost"
	if _, err := rest.CreateObject(ctx, levels, level); err != nil {
		t.Fatal(err)
	}
	await.Until(t, "own is found", is("own", flowv1.ConditionFalse))
	if _, err := levels.Store.Delete(ctx, resource.Key{Name: "lost"}, nil); err != nil {
		t.Fatal(err)
	}
	await.Until(t, "own is dangling again", is("own", flowv1.ConditionTrue))
}

// ensure gives mandatory objects back their spec, and suggested ones unless their annotation says
// otherwise, or is absent from one that was changed. It deletes what is no longer suggested.
func TestEnsure(t *testing.T) {
	t.Parallel()
	_, levels, schemas := bench(t)
	const annotation = flowv1.AutoUpdateAnnotationKey
	changed := func(name, auto string, generation int64) *flowv1.FlowSchema {
		s := bootstrap.SuggestedFlowSchemaKubeScheduler.DeepCopy()
		s.Name, s.Generation, s.Annotations, s.Spec.MatchingPrecedence = name, generation, map[string]string{annotation: auto}, 7
		return s
	}
	for _, s := range []*flowv1.FlowSchema{
		changed("catch-all", "false", 3), changed("probes", "true", 3), changed("system-nodes", "false", 3), changed("service-accounts", "", 1),
		changed("global-default", "", 2), changed("removed", "true", 1), changed("own", "", 1),
	} {
		generation := s.Generation
		if _, err := rest.CreateObject(t.Context(), schemas, s); err != nil { // with generation 1
			t.Fatal(err)
		}
		if _, err := rest.Modify(t.Context(), schemas, resource.Key{Name: s.Name}, func(have *flowv1.FlowSchema) error {
			have.Generation = generation
			if s.Annotations[annotation] == "" {
				have.Annotations = nil
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	shares := int32(5)
	exempt := bootstrap.MandatoryPriorityLevelConfigurationExempt.DeepCopy()
	exempt.Spec.Exempt.NominalConcurrencyShares = &shares
	if _, err := rest.CreateObject(t.Context(), levels, exempt); err != nil {
		t.Fatal(err)
	}
	if err := ensure(t.Context(), levels, schemas); err != nil {
		t.Fatal(err)
	}
	want := map[string]*flowv1.FlowSchema{}
	for _, s := range bootstrapSchemas() {
		want[s.Name] = s
	}
	for name, now := range map[string]string{
		"catch-all": "true", "exempt": "true", "probes": "true", "system-nodes": "false", "service-accounts": "true", "global-default": "false", "own": "",
	} {
		s, ok := load[*flowv1.FlowSchema](t, schemas, name)
		if !ok || s.Annotations[annotation] != now || (now == "true") != (want[name] != nil && reflect.DeepEqual(s.Spec, want[name].Spec)) {
			t.Errorf("%s, of which the annotation is to be %q: %+v", name, now, s)
		}
	}
	if s, ok := load[*flowv1.FlowSchema](t, schemas, "removed"); ok {
		t.Errorf("not removed: %+v", s)
	}
	if l, _ := load[*flowv1.PriorityLevelConfiguration](t, levels, "exempt"); *l.Spec.Exempt.NominalConcurrencyShares != shares {
		t.Errorf("the shares of exempt are %d", *l.Spec.Exempt.NominalConcurrencyShares)
	}
	before, _ := load[*flowv1.FlowSchema](t, schemas, "probes")
	if err := ensure(t.Context(), levels, schemas); err != nil {
		t.Fatal(err)
	}
	if after, _ := load[*flowv1.FlowSchema](t, schemas, "probes"); after.ResourceVersion != before.ResourceVersion {
		t.Error("an object that is as it should be was written")
	}
}

// The objects that every cluster has are valid and need no defaults.
func TestBootstrapIsValid(t *testing.T) {
	t.Parallel()
	names := map[string]bool{}
	for _, l := range bootstrapLevels() {
		names[l.Name] = true
		before := l.DeepCopy()
		defaultLevel(&l.Spec)
		if errs := validateLevel(l); len(errs) > 0 || !reflect.DeepEqual(before, l) {
			t.Errorf("level %s: %v, defaulted to %+v", l.Name, errs, l.Spec)
		}
	}
	for _, s := range bootstrapSchemas() {
		if errs := validateSchema(s); len(errs) > 0 || !names[s.Spec.PriorityLevelConfiguration.Name] {
			t.Errorf("schema %s: %v", s.Name, errs)
		}
	}
}

// Each mistake in a schema is one error.
func TestValidateSchema(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(*flowv1.FlowSchema){
		"": func(*flowv1.FlowSchema) {},
		"spec.matchingPrecedence: Invalid value: 0":      func(s *flowv1.FlowSchema) { s.Spec.MatchingPrecedence = 0 },
		"spec.matchingPrecedence: Invalid value: 10001":  func(s *flowv1.FlowSchema) { s.Spec.MatchingPrecedence = 10001 },
		"spec.priorityLevelConfiguration.name: Required": func(s *flowv1.FlowSchema) { s.Spec.PriorityLevelConfiguration.Name = "" },
		"spec.distinguisherMethod.type: Unsupported":     func(s *flowv1.FlowSchema) { s.Spec.DistinguisherMethod = &flowv1.FlowDistinguisherMethod{Type: "x"} },
		"spec.rules[0].subjects: Required":               func(s *flowv1.FlowSchema) { s.Spec.Rules[0].Subjects = nil },
		"spec.rules[0]: Required": func(s *flowv1.FlowSchema) {
			s.Spec.Rules[0].ResourceRules, s.Spec.Rules[0].NonResourceRules = nil, nil
		},
	} {
		s := bootstrap.SuggestedFlowSchemaKubeScheduler.DeepCopy()
		change(s)
		errs := validateSchema(s)
		if want == "" && len(errs) > 0 || want != "" && (len(errs) != 1 || !strings.HasPrefix(errs[0].Error(), want)) {
			t.Errorf("want %q, got %v", want, errs)
		}
	}
}

// Each mistake in a level is one error.
func TestValidateLevel(t *testing.T) {
	t.Parallel()
	type level = flowv1.PriorityLevelConfiguration
	queue := func(l *level) *flowv1.QueuingConfiguration { return l.Spec.Limited.LimitResponse.Queuing }
	n := func(i int32) *int32 { return &i }
	for want, change := range map[string]func(*level){
		"":                                                    func(*level) {},
		"spec.type: Unsupported":                              func(l *level) { l.Spec.Type = "x" },
		"spec.limited: Required":                              func(l *level) { l.Spec.Limited = nil },
		"spec.limited: Forbidden":                             func(l *level) { l.Name, l.Spec.Type = "exempt", flowv1.PriorityLevelEnablementExempt },
		"spec.type: Invalid":                                  func(l *level) { l.Spec.Type, l.Spec.Limited = flowv1.PriorityLevelEnablementExempt, nil },
		"spec.exempt: Forbidden":                              func(l *level) { l.Spec.Exempt = &flowv1.ExemptPriorityLevelConfiguration{} },
		"spec.limited.nominalConcurrency":                     func(l *level) { l.Spec.Limited.NominalConcurrencyShares = n(-1) },
		"spec.limited.lendablePercent":                        func(l *level) { l.Spec.Limited.LendablePercent = n(101) },
		"spec.limited.limitResponse.type":                     func(l *level) { l.Spec.Limited.LimitResponse.Type = "" },
		"spec.limited.limitResponse.queuing: Forbidden":       func(l *level) { l.Spec.Limited.LimitResponse.Type = flowv1.LimitResponseTypeReject },
		"spec.limited.limitResponse.queuing: Required":        func(l *level) { l.Spec.Limited.LimitResponse.Queuing = nil },
		"spec.limited.limitResponse.queuing.queueLengthLimit": func(l *level) { queue(l).QueueLengthLimit = 0 },
		"spec.limited.limitResponse.queuing.handSize":         func(l *level) { queue(l).HandSize = queue(l).Queues + 1 },
	} {
		l := systemLevel()
		change(l)
		errs := validateLevel(l)
		if want == "" && len(errs) > 0 || want != "" && (len(errs) != 1 || !strings.HasPrefix(errs[0].Error(), want)) {
			t.Errorf("want %q, got %v", want, errs)
		}
	}
}

// The specs of mandatory objects are fixed; those of the others are not.
func TestMandatorySpecsAreFixed(t *testing.T) {
	t.Parallel()
	for _, s := range bootstrapSchemas() {
		s.Spec.MatchingPrecedence = 77
		mandatory := s.Name == "exempt" || s.Name == "catch-all"
		errs := validateSchema(s)
		if (len(errs) == 1) != mandatory || len(errs) == 1 && !strings.HasSuffix(errs[0].Error(), "spec of '"+s.Name+"' must equal the fixed value") {
			t.Errorf("schema %s: %v", s.Name, errs)
		}
	}
	shares := int32(99)
	for _, l := range bootstrapLevels() {
		// The shares of the level exempt may change.
		locked := l.Name == "catch-all"
		if l.Spec.Exempt != nil {
			l.Spec.Exempt.NominalConcurrencyShares = &shares
		} else {
			l.Spec.Limited.NominalConcurrencyShares = &shares
		}
		if errs := validateLevel(l); (len(errs) == 1) != locked {
			t.Errorf("level %s: %v", l.Name, errs)
		}
	}
	exempt := bootstrap.MandatoryPriorityLevelConfigurationExempt.DeepCopy()
	exempt.Spec = systemLevel().Spec
	if errs := validateLevel(exempt); len(errs) == 0 {
		t.Error("the exempt level may become limited")
	}
}

// An update of the status changes neither metadata nor the spec.
func TestStatusUpdateKeepsTheRest(t *testing.T) {
	kinds, err := new(Flow).Kinds()
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range kinds {
		read := func(text string) rest.Object {
			t.Helper()
			obj, _, err := k.Codec.Decode([]byte(text), "", k.GVK("v1"), true)
			if err != nil {
				t.Fatal(err)
			}
			return obj.(rest.Object)
		}
		old := read(`{"metadata":{"name":"a","labels":{"a":"b"}}}`)
		obj := read(`{"metadata":{"name":"a","labels":{"c":"d"},"annotations":{"e":"f"}},"status":{"conditions":[{"type":"Dangling"}]}}`)
		status := k.Subresources[0].Strategy
		status.PrepareUpdate(t.Context(), obj, old)
		if got := obj.GetLabels(); got["a"] != "b" || len(got) != 1 || obj.GetAnnotations() != nil || !slices.Contains(status.Resets, "metadata") {
			t.Errorf("%s: labels %v, annotations %v", k.Kind, got, obj.GetAnnotations())
		}
	}
}
