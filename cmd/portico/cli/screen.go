package cli

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"io"
	"unicode"
	"unicode/utf8"
)

// Screen is a writer for people and their terminals: everything that commands print passes one.
// It shows control characters other than tabs and line feeds, and bytes that are not UTF-8, as
// \uXXXX, which JSON reads back: text of servers, objects and files must not control a terminal.
// Escape sequences of this program, which Colored and Clear return, pass.
type Screen struct{ io.Writer }

// Raw returns the writer below a Screen, for data that is no text, or w if it is no Screen.
func Raw(w io.Writer) io.Writer {
	if s, ok := w.(Screen); ok {
		return s.Writer
	}
	return w
}

// own follows the escape character of this program's sequences. Other text cannot contain it.
var own = rand.Text()

// sequence returns an escape sequence that passes a Screen.
func sequence(text string) string { return "\x1b" + own + text }

// Write implements io.Writer.
func (s Screen) Write(p []byte) (int, error) {
	if _, err := s.Writer.Write(shown(p)); err != nil {
		return 0, err
	}
	return len(p), nil
}

// shown returns text as a Screen shows it; text itself if there is nothing to replace.
func shown(text []byte) []byte {
	var out []byte
	kept := 0 // what precedes it is in out
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRune(text[i:])
		invalid := r == utf8.RuneError && size == 1
		if !invalid && (!unicode.IsControl(r) || r == '\n' || r == '\t') {
			i += size
			continue
		}
		out = append(out, text[kept:i]...)
		switch {
		case r == '\x1b' && bytes.HasPrefix(text[i+1:], []byte(own)):
			out, size = append(out, '\x1b'), 1+len(own)
		case invalid:
			out = fmt.Appendf(out, `\u%04x`, text[i])
		default:
			out = fmt.Appendf(out, `\u%04x`, r)
		}
		i += size
		kept = i
	}
	if kept == 0 {
		return text
	}
	return append(out, text[kept:]...)
}
