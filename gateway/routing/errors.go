package routing

import (
	"regexp"
	"strings"
)

// MaxErrorText bounds an error in a condition or a status, in bytes.
const MaxErrorText = 512

// passing are the parts of errors that differ although the error is the same, and their
// replacements. Bytes of a server that are no HTTP are removed as well: they may be anything,
// and all users read conditions.
var passing = []struct {
	part *regexp.Regexp
	put  string
}{
	// The gateway's side of a connection.
	{regexp.MustCompile(`(?:[^\s"]+:\d+|@)->`), ""},
	// The request of a connection that failed.
	{regexp.MustCompile(`stream error: stream ID \d+; `), "stream error: "},
	// The time at which a certificate was not valid.
	{regexp.MustCompile(`current time \S+ is (after|before)`), "current time is $1"},
	{regexp.MustCompile(`malformed HTTP (response|version|status code) "(?:[^"\\]|\\.)*"?`), "malformed HTTP $1"},
	{regexp.MustCompile(`(malformed MIME header(?: line| initial line)?):(?s:.*)`), "$1"},
}

// StableText removes from an error what differs each time: an error that differs with every
// check would be written with every check. The result has at most MaxErrorText bytes and
// three dots.
func StableText(text string) string {
	for i := range passing {
		text = passing[i].part.ReplaceAllString(text, passing[i].put)
	}
	if len(text) > MaxErrorText {
		text = strings.ToValidUTF8(text[:MaxErrorText], "") + "..."
	}
	return text
}

// stable returns err with its StableText; nil of nil.
func stable(err error) error {
	if err == nil {
		return nil
	}
	return &stableError{err: err, text: StableText(err.Error())}
}

// stableError is an error with another text.
type stableError struct {
	err  error
	text string
}

func (e *stableError) Error() string { return e.text }
func (e *stableError) Unwrap() error { return e.err }
