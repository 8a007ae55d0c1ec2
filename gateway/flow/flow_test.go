package flow

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	flowv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico/internal/testing/memstore"
	"portico/resource"
	"portico/resource/rest"
)

// bench keeps both kinds in memory.
func bench(t *testing.T) (f *Flow, levels, schemas *rest.Resource) {
	t.Helper()
	f = New(Config{})
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

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within 20 s: %s", what)
		}
	}
}

// What every cluster has is there and valid as it is, the conditions tell the
// schemas whose level is missing, and follow the levels.
func TestRun(t *testing.T) {
	f, levels, schemas := bench(t)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- f.Run(ctx, func(gr schema.GroupResource) *rest.Resource {
			if gr.Resource == "flowschemas" {
				return schemas
			}
			return levels
		})
	}()
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
		eventually(t, s.Name+" is there", is(s.Name, flowv1.ConditionFalse))
	}
	for _, want := range bootstrapLevels() {
		got, ok := load[*flowv1.PriorityLevelConfiguration](t, levels, want.Name)
		if !ok || !reflect.DeepEqual(got.Spec, want.Spec) {
			t.Errorf("level %s: %+v", want.Name, got)
		}
	}
	if _, err := rest.CreateObject(ctx, schemas, schemaOf("own", "lost", 1000, nil)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "own is dangling", is("own", flowv1.ConditionTrue))
	level := bootstrapLevels()[2]
	level.Name = "lost"
	if _, err := rest.CreateObject(ctx, levels, level); err != nil {
		t.Fatal(err)
	}
	eventually(t, "own is found", is("own", flowv1.ConditionFalse))
	if _, err := levels.Store.Delete(ctx, resource.Key{Name: "lost"}, nil); err != nil {
		t.Fatal(err)
	}
	eventually(t, "own is dangling again", is("own", flowv1.ConditionTrue))
}

// Later only what is mandatory comes back, and nothing is overwritten.
func TestEnsure(t *testing.T) {
	_, levels, schemas := bench(t)
	if err := ensure(t.Context(), levels, schemas, false); err != nil {
		t.Fatal(err)
	}
	for _, r := range []*rest.Resource{levels, schemas} {
		list, err := r.Store.List(t.Context(), resource.ListOptions{})
		if err != nil || len(list.Items) != 2 || list.Items[0].Name != "catch-all" || list.Items[1].Name != "exempt" {
			t.Errorf("%s: %v, %v", r.Resource, list, err)
		}
	}
	own := bootstrapLevels()[4]
	shares := int32(7)
	own.Spec.Limited.NominalConcurrencyShares = &shares
	if _, err := rest.CreateObject(t.Context(), levels, own); err != nil {
		t.Fatal(err)
	}
	if err := ensure(t.Context(), levels, schemas, true); err != nil {
		t.Fatal(err)
	}
	if got, _ := load[*flowv1.PriorityLevelConfiguration](t, levels, own.Name); *got.Spec.Limited.NominalConcurrencyShares != 7 {
		t.Errorf("overwritten: %+v", got.Spec)
	}
}

func TestBootstrapIsValid(t *testing.T) {
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

func TestValidateSchema(t *testing.T) {
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
		s := schemaOf("s", "l", 1, nil, rule([]flowv1.Subject{userSubject("u")}, anyResource(), anyURL()))
		change(s)
		errs := validateSchema(s)
		if want == "" && len(errs) > 0 || want != "" && (len(errs) != 1 || !strings.HasPrefix(errs[0].Error(), want)) {
			t.Errorf("want %q, got %v", want, errs)
		}
	}
}

func TestValidateLevel(t *testing.T) {
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
		l := bootstrapLevels()[4]
		change(l)
		errs := validateLevel(l)
		if want == "" && len(errs) > 0 || want != "" && (len(errs) != 1 || !strings.HasPrefix(errs[0].Error(), want)) {
			t.Errorf("want %q, got %v", want, errs)
		}
	}
}

// The specs of mandatory objects are locked; those of the others are not.
func TestLockedSpecs(t *testing.T) {
	for _, s := range bootstrapSchemas() {
		s.Spec.MatchingPrecedence++
		errs := validateSchema(s)
		if s.Name == "catch-all" {
			s.Spec.MatchingPrecedence -= 2 // 10001 is out of range
			errs = validateSchema(s)
		}
		if (len(errs) == 1) != mandatory(s.Name) || len(errs) == 1 && !strings.HasSuffix(errs[0].Error(), "spec of '"+s.Name+"' must equal the fixed value") {
			t.Errorf("schema %s: %v", s.Name, errs)
		}
	}
	shares := int32(99)
	for _, l := range bootstrapLevels() {
		// Shares of the exempt level are the administrator's.
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
	exempt := bootstrapLevels()[0]
	exempt.Spec = bootstrapLevels()[4].Spec
	if errs := validateLevel(exempt); len(errs) == 0 {
		t.Error("the exempt level may become limited")
	}
}
