package custom

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"k8s.io/client-go/third_party/forked/golang/template"
	"k8s.io/client-go/util/jsonpath"
)

const (
	// MaxPathLength bounds a path of a column, in bytes. The parser calls itself for every
	// character: 1.4 MB of them overflow the stack, which ends the process.
	MaxPathLength = 4096
	// maxPathFactor bounds how often a path may visit the same value (factorOf).
	maxPathFactor = 100
)

// errBudget is the error of a path that visits too many values.
var errBudget = errors.New("the path visits too many values")

// CheckPath returns an error for a path of a column that an object of a few bytes can make
// visit any number of values: those below a value are visited again for each ".." after
// the first, and everything after a union once for each member. A path that cannot be
// parsed is left to be ignored, as upstream does.
func CheckPath(text string) error {
	if len(text) > MaxPathLength {
		return fmt.Errorf("must have at most %d bytes", MaxPathLength)
	}
	path, err := jsonpath.Parse("", "{"+text+"}")
	if err != nil {
		return nil
	}
	descents, factor := factorOf(path.Root)
	switch {
	case descents > 1:
		return errors.New(`must have at most one ".."`)
	case factor > maxPathFactor:
		return fmt.Errorf("the numbers of members of its unions, multiplied, are %d and may be %d", factor, maxPathFactor)
	}
	return nil
}

// factorOf returns how many ".." are in a node, and how many paths its unions stand for.
func factorOf(n jsonpath.Node) (descents, factor int) {
	factor = 1
	within := func(lists ...*jsonpath.ListNode) {
		for _, l := range lists {
			for _, n := range l.Nodes {
				d, f := factorOf(n)
				descents, factor = descents+d, factor*f
			}
		}
	}
	switch n := n.(type) {
	case *jsonpath.ListNode:
		within(n)
	case *jsonpath.FilterNode:
		within(n.Left, n.Right)
	case *jsonpath.RecursiveNode:
		descents = 1
	case *jsonpath.UnionNode:
		within(n.Nodes...)
		factor *= len(n.Nodes)
	}
	return descents, factor
}

// evaluation evaluates parsed paths like k8s.io/client-go/util/jsonpath with missing keys
// allowed, and visits a bounded number of values. As there, an error in any part of a path
// is an error of the whole. Wildcards visit the members of a map in the order of their names,
// there in any order. The identifiers range and end are errors, which there change the path.
type evaluation struct{ left int }

// first returns the first result of a path; ok is false if there is none.
func (e *evaluation) first(path *jsonpath.Parser, object any) (value any, ok bool, err error) {
	for i, n := range path.Root.Nodes {
		found, err := e.node([]any{object}, n)
		if err != nil {
			return nil, false, err
		}
		if i == 0 && len(found) > 0 {
			value, ok = found[0], true
		}
	}
	return value, ok, nil
}

// visit counts values, and fails if they are too many.
func (e *evaluation) visit(n int) error {
	if e.left -= n; e.left < 0 {
		return errBudget
	}
	return nil
}

// node applies one node of a path to values. With an error it returns what a filter that
// asks whether there are results takes for them.
func (e *evaluation) node(in []any, n jsonpath.Node) ([]any, error) {
	if err := e.visit(1 + len(in)); err != nil {
		return nil, err
	}
	switch n := n.(type) {
	case *jsonpath.ListNode:
		return e.list(in, n)
	case *jsonpath.TextNode:
		return []any{n.Text}, nil
	case *jsonpath.IntNode:
		return slices.Repeat([]any{n.Value}, len(in)), nil
	case *jsonpath.FloatNode:
		return slices.Repeat([]any{n.Value}, len(in)), nil
	case *jsonpath.BoolNode:
		return slices.Repeat([]any{n.Value}, len(in)), nil
	case *jsonpath.FieldNode:
		return membersNamed(in, n.Value), nil
	case *jsonpath.ArrayNode:
		return e.array(in, n)
	case *jsonpath.FilterNode:
		return e.filter(in, n)
	case *jsonpath.WildcardNode:
		return e.children(in)
	case *jsonpath.RecursiveNode:
		return e.descend(nil, in)
	case *jsonpath.UnionNode:
		return e.union(in, n)
	}
	return in, fmt.Errorf("%v is not supported", n)
}

func (e *evaluation) list(in []any, n *jsonpath.ListNode) (out []any, err error) {
	out = in
	for _, n := range n.Nodes {
		if out, err = e.node(out, n); err != nil {
			return out, err
		}
	}
	return out, nil
}

func membersNamed(in []any, name string) []any {
	var out []any
	for _, value := range in {
		if m, ok := value.(map[string]any); ok {
			if member, ok := m[name]; ok {
				out = append(out, member)
			}
		}
	}
	return out
}

// array selects elements by index or slice.
func (e *evaluation) array(in []any, n *jsonpath.ArrayNode) (out []any, err error) {
	for _, value := range in {
		if value == nil {
			continue
		}
		items, ok := value.([]any)
		if !ok {
			return in, errors.New("the value is no array")
		}
		begin, end, step := n.Params[0], n.Params[1], 1
		if begin.Value < 0 {
			begin.Value += len(items)
		}
		if !end.Known {
			end.Value = len(items)
		}
		if end.Value < 0 || end.Value == 0 && end.Derived {
			end.Value += len(items)
		}
		if begin.Value == end.Value {
			return out, nil
		}
		if begin.Value < 0 || begin.Value >= len(items) || end.Value > len(items) || begin.Value > end.Value {
			return in, fmt.Errorf("there is no element %d to %d of %d", begin.Value, end.Value, len(items))
		}
		if n.Params[2].Known {
			if step = n.Params[2].Value; step <= 0 {
				return in, errors.New("the step is not positive")
			}
		}
		for i := begin.Value; i < end.Value; i += step {
			out = append(out, items[i])
		}
		if err := e.visit(end.Value - begin.Value); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// filter selects elements by a comparison, or by whether there are results.
func (e *evaluation) filter(in []any, n *jsonpath.FilterNode) (out []any, err error) {
	for _, value := range in {
		items, ok := value.([]any)
		if !ok {
			return in, errors.New("the value is no array")
		}
		for _, item := range items {
			left, err := e.list([]any{item}, n.Left)
			switch {
			case errors.Is(err, errBudget):
				return nil, err
			case n.Operator == "exists":
				if len(left) > 0 {
					out = append(out, item)
				}
				continue
			case err != nil:
				return in, err
			case len(left) == 0:
				continue
			case len(left) > 1:
				return in, errors.New("more than one value is compared")
			}
			right, err := e.list([]any{item}, n.Right)
			switch {
			case err != nil || len(right) > 1:
				return in, cmpError(err)
			case len(right) == 0:
				continue
			}
			pass, err := compare(n.Operator, left[0], right[0])
			if err != nil {
				return out, err
			}
			if pass {
				out = append(out, item)
			}
		}
	}
	return out, nil
}

func cmpError(err error) error {
	if err == nil {
		err = errors.New("a value is compared with more than one")
	}
	return err
}

func compare(operator string, a, b any) (bool, error) {
	switch operator {
	case "<":
		return template.Less(a, b)
	case ">":
		return template.Greater(a, b)
	case "==":
		return template.Equal(a, b)
	case "!=":
		return template.NotEqual(a, b)
	case "<=":
		return template.LessEqual(a, b)
	case ">=":
		return template.GreaterEqual(a, b)
	}
	return false, fmt.Errorf("there is no operator %s", operator)
}

// children returns the members of objects and the elements of arrays; of a text
// they are its bytes.
func (e *evaluation) children(in []any) (out []any, err error) {
	for _, value := range in {
		n := 0
		switch value := value.(type) {
		case map[string]any:
			n = len(value)
		case []any:
			n = len(value)
		case string:
			n = len(value)
		}
		if err := e.visit(n); err != nil {
			return nil, err
		}
		switch value := value.(type) {
		case map[string]any:
			for _, name := range slices.Sorted(maps.Keys(value)) {
				out = append(out, value[name])
			}
		case []any:
			out = append(out, value...)
		case string:
			for i := range len(value) {
				out = append(out, value[i])
			}
		}
	}
	return out, nil
}

// descend appends the values that have children, and those below, each before its children.
func (e *evaluation) descend(out, in []any) ([]any, error) {
	for _, value := range in {
		children, err := e.children([]any{value})
		if err != nil {
			return nil, err
		}
		if len(children) == 0 {
			continue
		}
		if out, err = e.descend(append(out, value), children); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (e *evaluation) union(in []any, n *jsonpath.UnionNode) (out []any, err error) {
	for _, member := range n.Nodes {
		found, err := e.list(in, member)
		if err == nil {
			err = e.visit(len(found))
		}
		if err != nil {
			return in, err
		}
		out = append(out, found...)
	}
	return out, nil
}
