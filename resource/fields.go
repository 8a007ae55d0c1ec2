package resource

import (
	"encoding/binary"
	"slices"
)

// fieldTexts are the values of one reader's selectable fields in an object:
// for each of its names the length of the value and one, then the value; 0 for
// a field that is not there. As a map they would take several times as much for
// as long as the object lives.
type fieldTexts struct {
	by   any
	text string
}

// Field returns the value of a selectable field of the object, and whether it
// has that field. What was extracted of an object is kept with it for the next
// selector with the same By. It is safe for concurrent use; Extract may run more
// than once.
func (s Selector) Field(o *Object, name string) (string, bool) {
	switch {
	case name == "metadata.name":
		return o.Name, true
	case name == "metadata.namespace":
		return o.Namespace, true
	case s.Extract == nil:
		return "", false
	}
	at := slices.Index(s.Names, name)
	if at < 0 {
		value, ok := s.Extract(o)[name]
		return value, ok
	}
	kept := o.fields.Load()
	if kept == nil || kept.by != s.By {
		kept = &fieldTexts{s.By, packFields(s.Names, s.Extract(o))}
		o.fields.Store(kept)
	}
	return unpackField(kept.text, at)
}

// packFields makes one text of the values of the names.
func packFields(names []string, values map[string]string) string {
	var packed []byte
	for _, name := range names {
		value, ok := values[name]
		if !ok {
			packed = append(packed, 0)
			continue
		}
		packed = append(binary.AppendUvarint(packed, uint64(len(value))+1), value...)
	}
	return string(packed)
}

// unpackField returns the value at an index of what packFields made.
func unpackField(packed string, at int) (string, bool) {
	for {
		size, n := textUvarint(packed)
		packed = packed[n:]
		if at == 0 {
			return packed[:max(size, 1)-1], size > 0
		}
		packed = packed[max(size, 1)-1:]
		at--
	}
}

// textUvarint is binary.Uvarint of a text that begins with one.
func textUvarint(text string) (value, n int) {
	for shift := 0; ; shift += 7 {
		c := text[n]
		n++
		value |= int(c&0x7f) << shift
		if c < 0x80 {
			return value, n
		}
	}
}
