package routing

import (
	"regexp"
	"strings"
)

// MaxErrorText bounds an error in a condition or a status, in bytes.
const MaxErrorText = 512

// passing are the parts of errors that differ although the error is the same,
// and what stands in their place. What a server sent that is no HTTP goes, too:
// it may be anything, and is not for all who read conditions.
var passing = []struct {
	part *regexp.Regexp
	put  string
}{
	// The gateway's side of a connection.
	{regexp.MustCompile(`(?:[^\s"]+:\d+|@)->`), ""},
	// Which request of a connection failed.
	{regexp.MustCompile(`stream error: stream ID \d+; `), "stream error: "},
	// When a certificate was looked at that is not valid.
	{regexp.MustCompile(`current time \S+ is (after|before)`), "current time is $1"},
	{regexp.MustCompile(`malformed HTTP (response|version|status code) "(?:[^"\\]|\\.)*"?`), "malformed HTTP $1"},
	{regexp.MustCompile(`(malformed MIME header(?: line| initial line)?):(?s:.*)`), "$1"},
}

// StableText makes the text of an error read the same as long as it is the same:
// one that differs with every check would be written with every check. It has at
// most MaxErrorText bytes and three dots.
func StableText(text string) string {
	for i := range passing {
		text = passing[i].part.ReplaceAllString(text, passing[i].put)
	}
	if len(text) > MaxErrorText {
		text = strings.ToValidUTF8(text[:MaxErrorText], "") + "..."
	}
	return text
}

// stable returns err with a text that is stable; nil stays nil.
func stable(err error) error {
	if err == nil {
		return nil
	}
	return &stableError{err: err, text: StableText(err.Error())}
}

// stableError is an error under a text that does not change from one time to
// the next.
type stableError struct {
	err  error
	text string
}

func (e *stableError) Error() string { return e.text }
func (e *stableError) Unwrap() error { return e.err }
