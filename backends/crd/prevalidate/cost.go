package prevalidate

import (
	"regexp/syntax"
	"strings"
)

// The checks of an object are estimated in steps, of 10 to 30 ns. An object that takes more
// than MaxSteps is not checked: it would take 2 to 5 s of processor time or more.
const (
	MaxSteps = 150_000_000
	// ValueSteps is a value, checked by one schema. FormatSteps is a byte of a text, checked
	// by a format.
	ValueSteps  = 200
	FormatSteps = 30
)

// PatternSteps returns the steps of matching a text with a pattern of so many instructions.
func PatternSteps(instructions, length int) int { return instructions * (length + 1) }

// Instructions returns about how many instructions a pattern is compiled to; 0 for one that cannot be compiled.
func Instructions(pattern string) int {
	if !strings.Contains(pattern, "{") {
		return len(pattern)
	}
	parsed, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return 0 // validation says so
	}
	return instructions(parsed)
}

func instructions(parsed *syntax.Regexp) int {
	n := 0
	switch {
	case parsed.Op == syntax.OpLiteral:
		n = len(parsed.Rune)
	case len(parsed.Sub) == 0:
		n = 1
	}
	for _, sub := range parsed.Sub {
		n += instructions(sub)
	}
	if parsed.Op == syntax.OpRepeat {
		n *= max(parsed.Min, parsed.Max, 1)
	}
	return n
}
