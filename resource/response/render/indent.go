package render

import (
	"bytes"
	"encoding/json"
	"fmt"
	"unicode/utf8"
)

// Indentation takes two bytes a level for every line, so that a deep object with many
// members may grow a thousandfold. An object is not indented if it would be more than
// MaxGrowth times as long and longer than FreeGrowth bytes.
const (
	MaxGrowth  = 8
	FreeGrowth = 1 << 20
)

// Lines is where an indented text has line breaks.
type Lines uint8

const (
	// JSONLines are between the tokens of JSON.
	JSONLines Lines = iota
	// YAMLLines are in long strings, too: at spaces and at line breaks.
	YAMLLines
)

// TooLong reports whether data, which is valid JSON, is too long when it is indented.
func TooLong(data []byte, l Lines) bool {
	return indentedSize(data, l) > max(int64(len(data))*MaxGrowth, FreeGrowth)
}

// indentedSize returns an upper bound of the length of data when it is indented.
func indentedSize(data []byte, l Lines) int64 {
	size, depth := int64(len(data)), int64(0)
	inText := false
	for i := 0; i < len(data); i++ {
		c := data[i]
		switch {
		case c == '"':
			inText = !inText
		case !inText:
			switch c {
			case '{', '[':
				depth++
				size += 1 + 2*depth
			case ',':
				size += 1 + 2*depth
			case '}', ']':
				depth--
				size += 1 + 2*depth
			case ':':
				size++
			}
		case c == '\\':
			i++
			if l == YAMLLines {
				size += 1 + 2*depth
			}
		case l == YAMLLines && breaks(data[i:]):
			size += 1 + 2*depth
		}
	}
	return size
}

// breaks reports whether YAML may break a line at the beginning of text.
func breaks(text []byte) bool {
	return text[0] == ' ' || bytes.HasPrefix(text, []byte("\u0085")) ||
		bytes.HasPrefix(text, []byte("\u2028")) || bytes.HasPrefix(text, []byte("\u2029"))
}

// AppendIndented appends data indented by two spaces, and its lines after the first by
// prefix; in one line if that would be too long.
func AppendIndented(buf *bytes.Buffer, data []byte, prefix string) error {
	if TooLong(data, JSONLines) {
		if err := json.Compact(buf, data); err != nil {
			return fmt.Errorf("compact JSON: %w", err)
		}
		return nil
	}
	if err := json.Indent(buf, data, prefix, "  "); err != nil {
		return fmt.Errorf("indent JSON: %w", err)
	}
	return nil
}

// FlowYAML converts JSON to YAML of one line, which is JSON but for the characters that
// YAML requires to be escaped.
func FlowYAML(data []byte) ([]byte, error) {
	var buf bytes.Buffer
	if err := json.Compact(&buf, data); err != nil {
		return nil, fmt.Errorf("encode YAML: %w", err)
	}
	out := make([]byte, 0, buf.Len()+1)
	for rest := buf.Bytes(); len(rest) > 0; {
		r, n := utf8.DecodeRune(rest)
		if unprintable(r) {
			out = fmt.Appendf(out, `\u%04x`, r)
		} else {
			out = append(out, rest[:n]...)
		}
		rest = rest[n:]
	}
	return append(out, '\n'), nil
}

// unprintable reports whether a character needs an escape in YAML, or is a line break
// there, but not in JSON.
func unprintable(r rune) bool {
	return r >= 0x7f && r <= 0x9f || r == '\u2028' || r == '\u2029' || r == '\ufeff' || r == '\ufffe' || r == '\uffff'
}
