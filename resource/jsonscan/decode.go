package jsonscan

import (
	"bytes"
	"math"
	"strconv"
	"unicode/utf8"
)

// maxDecodeDepth is how deep Decode follows nested values.
const maxDecodeDepth = 200

// Decode returns the value of a JSON text as sigs.k8s.io/json decodes it into an
// empty interface: whole numbers are int64, other numbers float64. It takes a third
// of the time. It returns false for text that is not JSON, and for some that is:
// with a duplicate key, a number with an exponent or beyond 64 bits, or values
// nested deeper than 200 levels; the caller then asks sigs.k8s.io/json, which words
// the error. Strings are parts of one copy of data, which stays in memory as long
// as any of them: clone those that are kept.
func Decode(data []byte) (any, bool) {
	d := &decoder{text: string(data)}
	d.Reset(data)
	d.MaxDepth = maxDecodeDepth
	value, ok := d.value()
	return value, ok && d.End()
}

// decoder makes values. Its methods return false where Decode gives up.
type decoder struct {
	Scanner
	// text is a copy of Data that strings are part of.
	text string
}

func (d *decoder) value() (any, bool) {
	switch d.Peek() {
	case '{':
		return d.object()
	case '[':
		return d.array()
	case '"':
		raw, escaped, ok := d.String()
		return d.string(raw, escaped), ok
	case 't':
		return true, d.Literal("true")
	case 'f':
		return false, d.Literal("false")
	case 'n':
		return nil, d.Literal("null")
	}
	return d.number()
}

// string returns the value of a string that was read last.
func (d *decoder) string(raw []byte, escaped bool) string {
	if escaped || !utf8.Valid(raw) {
		return string(Unquote(raw, escaped))
	}
	end := d.Pos - 1
	return d.text[end-len(raw) : end]
}

func (d *decoder) object() (any, bool) {
	object := map[string]any{}
	for key := range d.Members {
		var name string
		if key.Escaped || !utf8.Valid(key.Raw) {
			name = string(key.Text())
		} else {
			name = d.text[key.Start+1 : key.Start+1+len(key.Raw)]
		}
		if _, duplicate := object[name]; duplicate {
			return nil, false
		}
		value, ok := d.value()
		if !ok {
			return nil, false
		}
		object[name] = value
	}
	return object, d.Err() == nil
}

func (d *decoder) array() (any, bool) {
	array := []any{}
	for range d.Elements {
		item, ok := d.value()
		if !ok {
			return nil, false
		}
		array = append(array, item)
	}
	return array, d.Err() == nil
}

func (d *decoder) number() (any, bool) {
	raw, integer, ok := d.Number()
	if !ok {
		return nil, false
	}
	token := d.text[d.Pos-len(raw) : d.Pos]
	if integer {
		n, err := strconv.ParseInt(token, 10, 64)
		return n, err == nil
	}
	if bytes.ContainsAny(raw, "eE") {
		return nil, false
	}
	f, err := strconv.ParseFloat(token, 64)
	return f, err == nil && !math.IsInf(f, 0)
}
