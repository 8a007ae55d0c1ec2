package access

import (
	"slices"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico/resource"
)

// The selectors of a review become those of its action. What is wrong with them is said, and leaves
// the others.
func TestSelectorsOfReviews(t *testing.T) {
	t.Parallel()
	field := func(key string, operator metav1.FieldSelectorOperator, values ...string) metav1.FieldSelectorRequirement {
		return metav1.FieldSelectorRequirement{Key: key, Operator: operator, Values: values}
	}
	label := func(key string, operator metav1.LabelSelectorOperator, values ...string) metav1.LabelSelectorRequirement {
		return metav1.LabelSelectorRequirement{Key: key, Operator: operator, Values: values}
	}
	const in, notIn = metav1.FieldSelectorOpIn, metav1.FieldSelectorOpNotIn
	for name, c := range map[string]struct {
		raw  string
		all  []metav1.FieldSelectorRequirement
		want string
		said string
	}{
		"raw":          {raw: "a=b,c!=d", want: "a=b,c!=d"},
		"wrong raw":    {raw: "a", said: "ignored due to parse error"},
		"requirements": {all: []metav1.FieldSelectorRequirement{field("a", in, "b"), field("c", notIn, "d")}, want: "a=b,c!=d"},
		"escaped":      {all: []metav1.FieldSelectorRequirement{field("a", in, "b,c=d")}, want: `a=b\,c\=d`},
		"two values":   {all: []metav1.FieldSelectorRequirement{field("a", in, "b", "c"), field("c", in, "d")}, want: "c=d", said: "partially ignored due to parse error"},
		"no value":     {all: []metav1.FieldSelectorRequirement{field("a", notIn)}, said: "ignored due to parse error"},
		"operator":     {all: []metav1.FieldSelectorRequirement{field("a", metav1.FieldSelectorOpExists)}, said: "ignored due to parse error"},
		"neither":      {},
	} {
		act := &resource.Action{}
		got := selectorsOf(act, &authorizationv1.ResourceAttributes{FieldSelector: &authorizationv1.FieldSelectorAttributes{RawSelector: c.raw, Requirements: c.all}})
		if act.FieldSelector != c.want || act.LabelSelector != "" || strings.Join(got, ";") != saidOf("fieldSelector", c.said) {
			t.Errorf("field selector, %s: got %q and %q", name, act.FieldSelector, got)
		}
	}
	for name, c := range map[string]struct {
		raw  string
		all  []metav1.LabelSelectorRequirement
		want string
		said string
	}{
		"raw":       {raw: "a in (b,c),!d", want: "a in (b,c),!d"},
		"wrong raw": {raw: "a in", said: "ignored due to parse error"},
		"all operators": {all: []metav1.LabelSelectorRequirement{
			label("a", metav1.LabelSelectorOpIn, "x", "y"), label("b", metav1.LabelSelectorOpNotIn, "z"), label("c", metav1.LabelSelectorOpExists), label("d", metav1.LabelSelectorOpDoesNotExist),
		}, want: "a in (x,y),b notin (z),c,!d"},
		"operator": {all: []metav1.LabelSelectorRequirement{label("a", "Near", "x"), label("c", metav1.LabelSelectorOpExists)}, want: "c", said: "partially ignored due to parse error"},
		"no value": {all: []metav1.LabelSelectorRequirement{label("a", metav1.LabelSelectorOpIn)}, said: "ignored due to parse error"},
		"value":    {all: []metav1.LabelSelectorRequirement{label("a", metav1.LabelSelectorOpIn, "x,y")}, said: "ignored due to parse error"},
		"key":      {all: []metav1.LabelSelectorRequirement{label("a b", metav1.LabelSelectorOpExists)}, said: "ignored due to parse error"},
		"neither":  {},
	} {
		act := &resource.Action{}
		got := selectorsOf(act, &authorizationv1.ResourceAttributes{LabelSelector: &authorizationv1.LabelSelectorAttributes{RawSelector: c.raw, Requirements: c.all}})
		if act.LabelSelector != c.want || act.FieldSelector != "" || strings.Join(got, ";") != saidOf("labelSelector", c.said) {
			t.Errorf("label selector, %s: got %q and %q", name, act.LabelSelector, got)
		}
	}
	wrong := &authorizationv1.ResourceAttributes{
		FieldSelector: &authorizationv1.FieldSelectorAttributes{RawSelector: "a"}, LabelSelector: &authorizationv1.LabelSelectorAttributes{RawSelector: "a in"},
	}
	want := []string{saidOf("fieldSelector", "ignored due to parse error"), saidOf("labelSelector", "ignored due to parse error")}
	if got := selectorsOf(&resource.Action{}, wrong); !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
}

// saidOf is a problem of a selector; "" for none.
func saidOf(selector, problem string) string {
	if problem == "" {
		return ""
	}
	return "spec.resourceAttributes." + selector + " " + problem
}
