package custom

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"portico/backends/crd/prevalidate"
)

const (
	// propertySteps is a property of a schema, which upstream's validator copies for each
	// object, whether it has the field or not.
	propertySteps = 60
	// enumSteps is a value of an enum, or the name of a required field.
	enumSteps = 8
	// bytesPerStep bytes of a text are a step of counting its characters.
	bytesPerStep = 16
	// ownErrors is how many errors a value can have by one schema, besides the errors of required
	// fields, of alternatives and of the values within.
	ownErrors = 2
)

// cost estimates the steps of upstream's validator (prevalidate.MaxSteps). Alternatives are
// the reason: a schema of 1 MB can have 30,000 in each item of an array, and an object
// 200,000 items. The estimate takes about a fiftieth of what it estimates.
type cost struct {
	left int
	// patterns are the numbers of instructions of patterns.
	patterns *sync.Map
	path     []string // where nothing was left, innermost first
}

// tooCostly returns an error if a value takes too many steps to validate.
func (l *limited) tooCostly(path *field.Path, value any) *field.Error {
	c := cost{left: prevalidate.MaxSteps, patterns: &l.patterns}
	c.value(l.schema, value, false)
	if c.left >= 0 {
		return nil
	}
	slices.Reverse(c.path)
	if at := strings.TrimPrefix(strings.Join(c.path, ""), "."); at != "" {
		path = path.Child(at)
	}
	return field.Forbidden(path, fmt.Sprintf("checking the object up to here takes more than %d steps, and may take no more: "+
		"each value counts once for each schema in anyOf, oneOf, allOf and not, each object once for each property of its schema, and each text by the length of the pattern; "+
		"send fewer or shorter values, or simplify the schema", prevalidate.MaxSteps))
}

// value spends the steps of a value, and returns how many errors it can have. Errors of
// the values within count in an alternative only: elsewhere they are counted while they are found
// (run.errors).
func (c *cost) value(s *spec.Schema, value any, alternative bool) (errs int) {
	c.left -= prevalidate.ValueSteps
	errs = ownErrors + c.alternatives(s, value)
	if len(s.Enum) > 0 {
		c.left -= len(s.Enum) * (enumSteps + sizeOf(value)/valueSize)
	}
	within := 0
	switch value := value.(type) {
	case string:
		c.text(s, value)
	case []any:
		within = c.items(s, value, alternative)
	case map[string]any:
		c.left -= propertySteps*len(s.Properties) + enumSteps*len(s.Required)
		for _, name := range s.Required {
			if _, ok := value[name]; !ok {
				errs++
			}
		}
		within = c.members(s, value, alternative)
	}
	if alternative {
		errs += within
	}
	// Each error is compared with those before it.
	c.left -= errs * errs / 2
	return errs
}

// alternatives spends the steps of a value by the schemas of which all, some or none must
// accept it.
func (c *cost) alternatives(s *spec.Schema, value any) (errs int) {
	for i := 0; i < len(s.AllOf) && c.left >= 0; i++ {
		errs += c.value(&s.AllOf[i], value, true) + 1
	}
	for _, some := range [][]spec.Schema{s.AnyOf, s.OneOf} {
		most := 0
		for i := 0; i < len(some) && c.left >= 0; i++ {
			most = max(most, c.value(&some[i], value, true)+1)
		}
		errs += most
	}
	if s.Not != nil {
		c.value(s.Not, value, true)
		errs++
	}
	return errs
}

func (c *cost) text(s *spec.Schema, text string) {
	if s.Pattern != "" {
		n, ok := c.patterns.Load(s.Pattern)
		if !ok {
			n = prevalidate.Instructions(s.Pattern)
			c.patterns.Store(s.Pattern, n)
		}
		c.left -= prevalidate.PatternSteps(n.(int), len(text))
	}
	if s.Format != "" {
		c.left -= prevalidate.FormatSteps * len(text)
	}
	c.left -= len(text) / bytesPerStep
}

func (c *cost) items(s *spec.Schema, items []any, alternative bool) (errs int) {
	if s.Items == nil || s.Items.Schema == nil {
		return 0
	}
	for i, item := range items {
		if errs += c.value(s.Items.Schema, item, alternative); c.left < 0 {
			c.path = append(c.path, fmt.Sprintf("[%d]", i))
			break
		}
	}
	return errs
}

func (c *cost) members(s *spec.Schema, members map[string]any, alternative bool) (errs int) {
	for name, member := range members {
		prop, ok := s.Properties[name]
		switch {
		case ok:
			errs += c.value(&prop, member, alternative)
		case s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil:
			errs += c.value(s.AdditionalProperties.Schema, member, alternative)
		}
		if c.left < 0 {
			c.path = append(c.path, "."+name)
			break
		}
	}
	return errs
}
