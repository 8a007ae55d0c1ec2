package cli

import (
	"io"
	"os"
)

// Color is a color of a terminal.
type Color string

const (
	Red    Color = "[31m"
	Green  Color = "[32m"
	Yellow Color = "[33m"
	Bold   Color = "[1m"
)

// Clear returns what clears a terminal.
func Clear() string { return sequence("[H") + sequence("[2J") }

// IsTerminal reports whether w is the Screen of a terminal that knows escape sequences.
func IsTerminal(w io.Writer) bool {
	s, _ := w.(Screen)
	f, ok := s.Writer.(*os.File)
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
		return sequence(string(c)) + text + sequence("[0m")
	}
}
