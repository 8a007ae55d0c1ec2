package upstream

import "strings"

// maxErrorText is how much an error says, in bytes, of what a server sent: net/http's
// have all of a line that they do not understand, and go to the log, to the client
// and to who asks for the state of endpoints.
const maxErrorText = 1024

// brief bounds the text of an error.
func brief(err error) error {
	if err == nil {
		return nil
	}
	text := err.Error()
	if len(text) <= maxErrorText {
		return err
	}
	return &briefError{err: err, text: strings.ToValidUTF8(text[:maxErrorText], "") + "..."}
}

// briefError is an error that says less.
type briefError struct {
	err  error
	text string
}

func (e *briefError) Error() string { return e.text }
func (e *briefError) Unwrap() error { return e.err }
