package prevalidate

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/runtime/schema"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/kube-openapi/pkg/validation/validate"

	"portico/resource/jsonscan"
)

// validText validates a string.
func (w *walker) validText(n *node) answer {
	text := w.unquoted()
	if n.kinds&aText == 0 {
		return no
	}
	r := n.rules
	if r == nil {
		return yes
	}
	if r.enum != nil {
		if _, ok := r.enum.texts[string(text)]; !ok {
			return no
		}
	}
	if r.minLength != nil || r.maxLength != nil {
		length := int64(utf8.RuneCount(text))
		if r.minLength != nil && length < *r.minLength || r.maxLength != nil && length > *r.maxLength {
			return no
		}
	}
	if r.pattern != nil && !r.pattern.Match(text) {
		return no
	}
	if r.format != nil && !(r.formatName == "date-time" && isTime(text)) && !r.format.Validates(r.formatName, string(text)) {
		return no
	}
	return yes
}

// validNumber validates a number. An integer may be the encoding of a number that
// was sent with a fraction of 0 or an exponent, which upstream validates by other
// arithmetic: both must agree.
func (w *walker) validNumber(n *node) answer {
	text, integer, _ := w.Number()
	if !integer {
		return n.validFraction(text)
	}
	if n.kinds&aWhole == 0 {
		return no
	}
	value, all := wholeOf(text), yes
	if len(text) > maxDigits && n.kinds&aFraction == 0 {
		all = unsure // as a float64 it is too large to count as an integer
	}
	r := n.rules
	if r == nil {
		return all
	}
	if r.enum != nil && !slices.Contains(r.enum.whole, value) {
		all = no
		if len(r.enum.texts) > 0 || r.enum.others {
			all = unsure // upstream converts what it compares
		}
	}
	if r.number == nil {
		return all
	}
	whole := r.number.validWhole(value)
	if whole != r.number.valid(float64(value)) {
		whole = unsure
	}
	return min(all, whole)
}

// wholeOf returns the value of an integer of at most maxWhole digits.
func wholeOf(text []byte) (value int64) {
	for _, c := range text {
		if c != '-' {
			value = value*10 + int64(c-'0')
		}
	}
	if text[0] == '-' {
		return -value
	}
	return value
}

func (r *numberRules) validWhole(value int64) answer {
	switch {
	case r.blurred:
		return unsure
	case r.narrow && (value < math.MinInt32 || value > math.MaxInt32):
		return no
	case r.minimum != nil && validate.MinimumInt("", "", value, int64(*r.minimum), r.exclusiveMinimum) != nil:
		return no
	case r.maximum != nil && validate.MaximumInt("", "", value, int64(*r.maximum), r.exclusiveMaximum) != nil:
		return no
	case r.multipleOf != nil && validate.MultipleOfInt("", "", value, int64(*r.multipleOf)) != nil:
		return no
	}
	return yes
}

// validFraction validates a number with a fraction.
func (n *node) validFraction(text []byte) answer {
	r := n.rules
	switch {
	case n.kinds&aFraction == 0:
		return no
	case r == nil:
		return yes
	case r.enum != nil:
		return unsure
	case r.number == nil:
		return yes
	}
	value, err := strconv.ParseFloat(string(text), 64)
	if err != nil {
		return unsure
	}
	return r.number.valid(value)
}

// valid validates a number of any kind.
func (r *numberRules) valid(value float64) answer {
	switch {
	case r.blurred:
		return unsure
	case r.narrow && (value < math.MinInt32 || value > math.MaxInt32):
		return no
	case r.minimum != nil && validate.Minimum("", "", value, *r.minimum, r.exclusiveMinimum) != nil:
		return no
	case r.maximum != nil && validate.Maximum("", "", value, *r.maximum, r.exclusiveMaximum) != nil:
		return no
	case r.multipleOf != nil && validate.MultipleOf("", "", value, *r.multipleOf) != nil:
		return no
	}
	return yes
}

// validIdentity validates apiVersion and kind of an embedded resource, and reports
// whether key is one of these. The value is not consumed.
func (w *walker) validIdentity(key jsonscan.Key) (a answer, required bool) {
	name := string(key.Raw)
	if name == "metadata" {
		return unsure, false
	}
	if name != "apiVersion" && name != "kind" {
		return yes, false
	}
	at := w.Pos
	defer func() { w.Pos = at }()
	if w.Peek() != '"' {
		return no, true
	}
	raw, escaped, _ := w.String()
	text := string(raw)
	switch {
	case escaped:
		return unsure, true
	case text == "":
		return no, true
	case name == "kind":
		return answerOf(len(utilvalidation.IsDNS1035Label(strings.ToLower(text))) == 0), true
	}
	_, err := schema.ParseGroupVersion(text)
	return answerOf(err == nil), true
}
