package custom

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	kjson "sigs.k8s.io/json"

	"portico/backends/crd/prevalidate"
)

type props = apiextensions.JSONSchemaProps

func listOf(s props) *props {
	return &props{Type: "array", Items: &apiextensions.JSONSchemaPropsOrArray{Schema: &s}}
}

func patterns(n int) (out []props) {
	for i := range n {
		out = append(out, props{Pattern: fmt.Sprintf("(x|y)*z%dq$", i)})
	}
	return out
}

func requires(n int) (out []props) {
	for i := range n {
		out = append(out, props{Required: []string{fmt.Sprint("r", i)}})
	}
	return out
}

func named(n int) map[string]props {
	out := map[string]props{}
	for i := range n {
		out[fmt.Sprint("p", i)] = props{Type: "string"}
	}
	return out
}

// costly are schemas and values that validation would take minutes or hours for, n of them, as
// many as the bound allows about.
var costly = []struct {
	name   string
	schema func() *props
	value  func(n int) any
	n      int
}{
	{"items by alternatives", func() *props {
		return listOf(props{Type: "string", AnyOf: append(patterns(2999), props{Pattern: "^xy"})})
	}, texts("xyxyxyxyxyxy"), 80},
	{"items by choices", func() *props {
		return listOf(props{Type: "string", OneOf: append(patterns(2999), props{Pattern: "^xy"})})
	}, texts("xyxyxyxyxyxy"), 80},
	{"items that none of all accepts", func() *props { return listOf(props{Type: "string", AllOf: patterns(1000)}) }, texts("xyxyxyxyxyxy"), 20},
	{"choices within choices", func() *props {
		return listOf(props{Type: "object", AnyOf: []props{{AnyOf: requires(300)}, {AllOf: requires(300)}, {Not: &props{AnyOf: requires(300)}}}})
	}, objects, 150},
	{"objects by properties", func() *props { return listOf(props{Type: "object", Properties: named(10_000)}) }, objects, 240},
	{"items by the values of an enum", func() *props {
		e := props{Type: "string"}
		for i := range 10_000 {
			e.Enum = append(e.Enum, fmt.Sprint("v", i))
		}
		return listOf(e)
	}, texts("w"), 1500},
	{"errors of an alternative", func() *props {
		strings, numbers := listOf(props{Type: "string"}), listOf(props{Type: "number"})
		return &props{AnyOf: []props{*strings, *numbers}}
	}, func(n int) any { return slices.Repeat([]any{int64(1)}, n) }, 8000},
	{"missing fields", func() *props {
		o := props{Type: "object"}
		for i := range 5000 {
			o.Required = append(o.Required, fmt.Sprint("r", i))
		}
		return listOf(o)
	}, objects, 20},
	{"a text by a pattern", func() *props { return &props{Type: "string", Pattern: strings.Repeat("a?", 5000) + "$"} }, func(n int) any { return strings.Repeat("a", n) }, 14_000},
	{"a text by formats", func() *props { return &props{Type: "string", AnyOf: slices.Repeat([]props{{Format: "email"}}, 100)} }, func(n int) any { return strings.Repeat("a", n) }, 45_000},
}

func texts(text string) func(n int) any {
	return func(n int) any { return slices.Repeat([]any{text}, n) }
}

func objects(n int) any { return slices.Repeat([]any{map[string]any{}}, n) }

// An object that would take minutes to validate is rejected before that begins, with the field and what to do.
func TestCostOfValidation(t *testing.T) {
	t.Parallel()
	for _, tc := range costly {
		l, err := newLimited(&props{Type: "object", Properties: map[string]props{"spec": *tc.schema()}})
		if err != nil {
			t.Fatal(err)
		}
		if err := l.tooCostly(nil, map[string]any{"spec": tc.value(tc.n / 2)}); err != nil {
			t.Errorf("%s: half of the bound: %v", tc.name, err)
		}
		object := map[string]any{"spec": tc.value(min(20*tc.n, 200_000))}
		errs, ok := l.create(t.Context(), nil, object)
		if ok || len(errs) != 1 || !strings.HasPrefix(errs[0].Field, "spec") || !strings.Contains(errs[0].Detail, "takes more than 150000000 steps") {
			t.Errorf("%s: %v %.300v", tc.name, ok, errs)
		}
		errs, ok = l.update(t.Context(), nil, object, map[string]any{}, nil)
		if ok || len(errs) != 1 {
			t.Errorf("%s, as an update: %v %.300v", tc.name, ok, errs)
		}
	}
	// An ordinary object has a fraction of the bound.
	for _, m := range schemasIn(t, "bakeries.yaml") {
		l, err := newLimited(m.props)
		if err != nil {
			t.Fatal(err)
		}
		c := cost{left: prevalidate.MaxSteps, patterns: &l.patterns}
		c.value(l.schema, unstructuredOf(t, read(t, "bakery.yaml")), false)
		if used := prevalidate.MaxSteps - c.left; used > prevalidate.MaxSteps/1000 || used == 0 {
			t.Errorf("an object of 3 KB takes %d steps", used)
		}
	}
}

func unstructuredOf(t *testing.T, text string) map[string]any {
	t.Helper()
	var out map[string]any
	if err := kjson.UnmarshalCaseSensitivePreserveInts(asJSON(t, text), &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// The check of bytes gives up where upstream's validator would not begin.
func TestCostOfPrevalidation(t *testing.T) {
	t.Parallel()
	s := prevalidate.Compile(&props{Type: "object", Properties: map[string]props{"spec": *listOf(props{Type: "string", AnyOf: append(patterns(299), props{Pattern: "^xy"})})}})
	for n, want := range map[int]prevalidate.Verdict{100: prevalidate.Valid, 100_000: prevalidate.Canonical} {
		object := `{"apiVersion":"v1","kind":"A","metadata":{"name":"a"},"spec":["xyxyxy"` + strings.Repeat(`,"xyxyxy"`, n) + `]}`
		if got := s.Check([]byte(object), prevalidate.Body); got != want {
			t.Errorf("%d items: verdict %v, want %v", n, got, want)
		}
	}
}

// endingContext ends when it has been asked n times whether it has.
type endingContext struct {
	context.Context
	asked atomic.Int64
	n     int64
}

func (c *endingContext) Err() error {
	if c.asked.Add(1) > c.n {
		return context.Canceled
	}
	return nil
}

// Validation ends with its request.
func TestValidationEndsWithItsRequest(t *testing.T) {
	t.Parallel()
	l, err := newLimited(listOf(props{Type: "string", AnyOf: append(patterns(100), props{Pattern: "^xy"})}))
	if err != nil {
		t.Fatal(err)
	}
	ctx := &endingContext{Context: t.Context(), n: 50}
	value := texts("xyxyxy")(5000)
	if errs, ok := l.create(t.Context(), nil, value); !ok || len(errs) > 0 {
		t.Errorf("while the request lasts: %v %v", ok, errs)
	}
	if errs, ok := l.create(ctx, nil, value); ok || len(errs) != 1 || !strings.Contains(errs[0].Detail, "validation ended with its request") {
		t.Errorf("after it: %v %v", ok, errs)
	}
	// The others are not validated: their patterns are not compiled.
	ctx = &endingContext{Context: t.Context(), n: 50}
	r := &run{limited: l, ctx: ctx}
	r.Validate(value)
	if r.errors > 0 || ctx.asked.Load() > 3*5000 {
		t.Errorf("the context was asked %d times and %d errors found", ctx.asked.Load(), r.errors)
	}
}

// The errors of an object are bounded, in number and in bytes.
func TestErrorsOfValidationAreBounded(t *testing.T) {
	t.Parallel()
	e := props{Type: "string"}
	for i := range 5000 {
		e.Enum = append(e.Enum, fmt.Sprintf("value %d %s", i, strings.Repeat("x", 10)))
	}
	for name, tc := range map[string]struct {
		schema *props
		value  any
	}{
		"numbers as texts": {listOf(props{Type: "string"}), slices.Repeat([]any{int64(1)}, 100_000)},
		"a long enum":      {listOf(e), texts("w")(500)},
	} {
		l, err := newLimited(tc.schema)
		if err != nil {
			t.Fatal(err)
		}
		errs, ok := l.create(t.Context(), nil, tc.value)
		size := 0
		for _, err := range errs {
			size += len(err.Error())
		}
		if ok || len(errs) == 0 || len(errs) > maxErrors+2 || size > 4<<20 {
			t.Errorf("%s: %v, %d errors of %d bytes", name, ok, len(errs), size)
		}
	}
}

// BenchmarkCostliestValidation measures what is just within the bound.
func BenchmarkCostliestValidation(b *testing.B) {
	for _, tc := range costly {
		b.Run(tc.name, func(b *testing.B) {
			l, err := newLimited(&props{Type: "object", Properties: map[string]props{"spec": *tc.schema()}})
			if err != nil {
				b.Fatal(err)
			}
			most := 0
			for step := tc.n; step > 0; step /= 2 { // the largest that is not refused
				for l.tooCostly(nil, map[string]any{"spec": tc.value(most + step)}) == nil && most < 4*tc.n {
					most += step
				}
			}
			object := map[string]any{"spec": tc.value(most)}
			b.ReportMetric(float64(most), "values")
			b.ReportAllocs()
			before := processorTime(b)
			for b.Loop() {
				l.create(b.Context(), nil, object)
			}
			b.ReportMetric((processorTime(b)-before).Seconds()/float64(b.N), "cpu-s/op")
		})
	}
}

// processorTime returns the processor time of this process. Waiting for a processor is no cost of ours.
func processorTime(b *testing.B) time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
