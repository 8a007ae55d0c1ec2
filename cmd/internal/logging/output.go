package logging

import (
	"fmt"
	"io"
	"sync/atomic"
	"time"
)

// blockedLimit is how long a Write may be blocked before Check fails. kube-apiserver's check log has the same limit for a
// flush.
const blockedLimit = 2 * time.Minute

// Output writes the log of a process and measures how long the current Write has been blocked, for example by a pipe that
// nothing reads. Write must not be called concurrently; a slog.Handler serializes its calls of Write. Check is safe for
// concurrent use.
type Output struct {
	w     io.Writer
	began atomic.Int64 // of the Write in progress, in nanoseconds since 1970; 0 between two
}

// NewOutput returns an Output that writes to w.
func NewOutput(w io.Writer) *Output { return &Output{w: w} }

// Write implements io.Writer.
func (o *Output) Write(p []byte) (int, error) {
	o.began.Store(time.Now().UnixNano())
	defer o.began.Store(0)
	return o.w.Write(p)
}

// Check returns an error if a Write has been blocked for longer than two minutes.
func (o *Output) Check() error {
	if began := o.began.Load(); began != 0 && time.Since(time.Unix(0, began)) > blockedLimit {
		return fmt.Errorf("a write to the log has been blocked for more than %v", blockedLimit)
	}
	return nil
}
