package rest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"unicode/utf8"
)

// Indentation costs two bytes a level for every line, so that a deep object
// with many members may grow a thousandfold by it. What would be more than
// maxGrowth times as long, and longer than freeGrowth bytes, is sent without.
const (
	maxGrowth  = 8
	freeGrowth = 1 << 20
)

// lines says where an indented text has line breaks.
type lines uint8

const (
	// jsonLines: between the tokens of JSON.
	jsonLines lines = iota
	// yamlLines: in long texts as well, at spaces and at breaks of their own.
	yamlLines
)

// tooLong reports whether data, which is valid JSON, gets out of proportion
// when it is indented.
func tooLong(data []byte, l lines) bool {
	return indentedSize(data, l) > max(int64(len(data))*maxGrowth, freeGrowth)
}

// indentedSize returns how long data gets when it is indented, or somewhat
// more.
func indentedSize(data []byte, l lines) int64 {
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
			if l == yamlLines {
				size += 1 + 2*depth
			}
		case l == yamlLines && breaks(data[i:]):
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

// appendIndented appends data, indented by two spaces and behind its first
// line by prefix; in one line where that would be too long.
func appendIndented(buf *bytes.Buffer, data []byte, prefix string) error {
	if tooLong(data, jsonLines) {
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

// flowYAML turns JSON into YAML of one line, which is JSON except for the
// characters that YAML wants escaped.
func flowYAML(data []byte) ([]byte, error) {
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

// unprintable reports whether JSON may have the character as it is, where YAML
// may not or takes it for a line break.
func unprintable(r rune) bool {
	return r >= 0x7f && r <= 0x9f || r == '\u2028' || r == '\u2029' || r == '\ufeff' || r == '\ufffe' || r == '\uffff'
}
