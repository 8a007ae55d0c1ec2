package accept

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/runtime/schema"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/kube-openapi/pkg/validation/validate"
)

// judgeText judges a text.
func (w *walker) judgeText(n *node) answer {
	raw, escaped := w.knownText()
	if n.kinds&aText == 0 {
		return no
	}
	r := n.rules
	if r == nil {
		return yes
	}
	if escaped {
		w.scratch = unescape(w.scratch[:0], raw)
		raw = w.scratch
	}
	if r.enum != nil {
		if _, ok := r.enum.texts[string(raw)]; !ok {
			return no
		}
	}
	if r.minLength != nil || r.maxLength != nil {
		length := int64(utf8.RuneCount(raw))
		if r.minLength != nil && length < *r.minLength || r.maxLength != nil && length > *r.maxLength {
			return no
		}
	}
	if r.pattern != nil && !r.pattern.Match(raw) {
		return no
	}
	if r.format != nil && !(r.formatName == "date-time" && isTime(raw)) && !r.format.Validates(r.formatName, string(raw)) {
		return no
	}
	return yes
}

// unescape appends a text without its escapes.
func unescape(dst, raw []byte) []byte {
	for i := 0; i < len(raw); i++ {
		if raw[i] != '\\' {
			dst = append(dst, raw[i])
			continue
		}
		i++
		if raw[i] == 'u' {
			r, _ := hexRune(raw[i+1:])
			dst = utf8.AppendRune(dst, r)
			i += 4
			continue
		}
		dst = append(dst, unescaped(raw[i]))
	}
	return dst
}

// unescaped is what a letter behind a backslash stands for.
func unescaped(c byte) byte {
	if i := strings.IndexByte("bfnrt", c); i >= 0 {
		return "\b\f\n\r\t"[i]
	}
	return c
}

// judgeNumber judges a number. One that is whole may be what is written of a
// number with a fraction of 0 or an exponent, which upstream holds to the same
// schema by other arithmetic: both must agree.
func (w *walker) judgeNumber(n *node) answer {
	text := w.word()
	if slices.Contains(text, '.') {
		return n.judgeFraction(text)
	}
	if n.kinds&aWhole == 0 {
		return no
	}
	value, all := wholeOf(text), yes
	if len(text) > maxDigits && n.kinds&aFraction == 0 {
		all = unsure // as a fraction it is too large to count as whole
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
	whole := r.number.judgeWhole(value)
	if whole != r.number.judge(float64(value)) {
		whole = unsure
	}
	return min(all, whole)
}

// wholeOf reads a whole number, which has few enough digits.
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

func (r *numberRules) judgeWhole(value int64) answer {
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

// judgeFraction judges a number that is not whole.
func (n *node) judgeFraction(text []byte) answer {
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
	return r.number.judge(value)
}

// judge judges a number of any kind.
func (r *numberRules) judge(value float64) answer {
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

// judgeIdentity judges what an embedded resource says of itself, of which it
// reports whether it is a part that must be there. The value is not consumed.
func (w *walker) judgeIdentity(key []byte) (a answer, required bool) {
	name := string(key)
	if name == "metadata" {
		return unsure, false
	}
	if name != "apiVersion" && name != "kind" {
		return yes, false
	}
	at := w.pos
	defer func() { w.pos = at }()
	if w.peek() != '"' {
		return no, true
	}
	raw, escaped := w.knownText()
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
