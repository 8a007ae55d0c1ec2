package access

import (
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"portico/resource"
)

// selectorsOf sets the selectors of an action from those of a review, and returns what is wrong
// with them. Wrong requirements are left out and do not fail the review: selectors only narrow a
// request.
func selectorsOf(act *resource.Action, res *authorizationv1.ResourceAttributes) (problems []string) {
	add := func(name, selector string, wrong bool) {
		switch {
		case wrong && selector != "":
			problems = append(problems, "spec.resourceAttributes."+name+" partially ignored due to parse error")
		case wrong:
			problems = append(problems, "spec.resourceAttributes."+name+" ignored due to parse error")
		}
	}
	if s := res.FieldSelector; s != nil {
		var wrong bool
		if act.FieldSelector = s.RawSelector; len(s.Requirements) > 0 {
			act.FieldSelector, wrong = fieldSelector(s.Requirements)
		} else if _, err := fields.ParseSelector(s.RawSelector); err != nil {
			act.FieldSelector, wrong = "", true
		}
		add("fieldSelector", act.FieldSelector, wrong)
	}
	if s := res.LabelSelector; s != nil {
		var wrong bool
		if act.LabelSelector = s.RawSelector; len(s.Requirements) > 0 {
			act.LabelSelector, wrong = labelSelector(s.Requirements)
		} else if _, err := labels.Parse(s.RawSelector); err != nil {
			act.LabelSelector, wrong = "", true
		}
		add("labelSelector", act.LabelSelector, wrong)
	}
	return problems
}

// fieldSelector returns the selector of requirements; wrong: some of them are left out.
func fieldSelector(requirements []metav1.FieldSelectorRequirement) (selector string, wrong bool) {
	var all []fields.Selector
	for _, r := range requirements {
		switch {
		case r.Operator == metav1.FieldSelectorOpIn && len(r.Values) == 1:
			all = append(all, fields.OneTermEqualSelector(r.Key, r.Values[0]))
		case r.Operator == metav1.FieldSelectorOpNotIn && len(r.Values) == 1:
			all = append(all, fields.OneTermNotEqualSelector(r.Key, r.Values[0]))
		default:
			wrong = true
		}
	}
	return fields.AndSelectors(all...).String(), wrong
}

// operators are those of label selectors.
var operators = map[metav1.LabelSelectorOperator]selection.Operator{
	metav1.LabelSelectorOpIn: selection.In, metav1.LabelSelectorOpNotIn: selection.NotIn,
	metav1.LabelSelectorOpExists: selection.Exists, metav1.LabelSelectorOpDoesNotExist: selection.DoesNotExist,
}

// labelSelector returns the selector of requirements; wrong: some of them are left out.
func labelSelector(requirements []metav1.LabelSelectorRequirement) (selector string, wrong bool) {
	var all []labels.Requirement
	for _, r := range requirements {
		parsed, err := labels.NewRequirement(r.Key, operators[r.Operator], r.Values)
		if err != nil {
			wrong = true
			continue
		}
		all = append(all, *parsed)
	}
	return labels.NewSelector().Add(all...).String(), wrong
}
