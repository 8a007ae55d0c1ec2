package cli

import (
	"io"
	"os"
)

// Color is a color of a terminal.
type Color string

const (
	Red    Color = "\x1b[31m"
	Green  Color = "\x1b[32m"
	Yellow Color = "\x1b[33m"
	Bold   Color = "\x1b[1m"
)

// IsTerminal reports whether w is a terminal that knows escape sequences.
func IsTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok || os.Getenv("TERM") == "dumb" {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// Colored returns a function that colors text for w. It returns the text unchanged if w is no
// terminal or $NO_COLOR is set (no-color.org).
func Colored(w io.Writer) func(Color, string) string {
	if !IsTerminal(w) || os.Getenv("NO_COLOR") != "" {
		return func(_ Color, text string) string { return text }
	}
	return func(c Color, text string) string {
		if c == "" || text == "" {
			return text
		}
		return string(c) + text + "\x1b[0m"
	}
}
