package filter

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A lifted deadline does not end the context, and one that has passed cannot be lifted;
// derived contexts have the cause.
func TestLiftableDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reason := errors.New("a reason")
		for name, c := range map[string]struct {
			do         func(l *liftableDeadline, end context.CancelCauseFunc)
			err, cause error
		}{
			"lifted":   {func(l *liftableDeadline, _ context.CancelCauseFunc) { l.lift() }, nil, nil},
			"too late": {func(l *liftableDeadline, _ context.CancelCauseFunc) { <-l.Done(); l.lift() }, context.DeadlineExceeded, context.DeadlineExceeded},
			"nobody":   {func(*liftableDeadline, context.CancelCauseFunc) {}, context.DeadlineExceeded, context.DeadlineExceeded},
			"ended":    {func(l *liftableDeadline, end context.CancelCauseFunc) { l.lift(); end(reason) }, context.Canceled, reason},
			"over":     {func(l *liftableDeadline, _ context.CancelCauseFunc) { l.lift(); l.cancel() }, context.Canceled, context.Canceled},
		} {
			outer, end := context.WithCancelCause(t.Context())
			l := newLiftableDeadline(outer, time.Second)
			inner, cancel := context.WithTimeout(l, time.Hour)
			c.do(l, end)
			<-time.After(time.Minute)
			if l.Err() != c.err || inner.Err() != c.err || context.Cause(inner) != c.cause {
				t.Errorf("%s: %v, then %v for %v", name, l.Err(), inner.Err(), context.Cause(inner))
			}
			if _, has := l.Deadline(); has == strings.Contains("lifted ended over", name) {
				t.Errorf("%s: has a deadline: %v", name, has)
			}
			cancel()
			l.cancel()
			end(nil)
		}
	})
}
