package up

import (
	"errors"
	"io"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A step of more than a second is a line with the second and the reason; more lines follow when the
// reason changes, and after ten seconds.
func TestSlowStep(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		s := &stack{out: &out, log: slog.New(slog.NewTextHandler(io.Discard, nil)), began: time.Now()}
		done, fast := make(chan struct{}), make(chan struct{})
		<-time.After(2 * time.Second) // of other steps
		time.AfterFunc(14100*time.Millisecond, func() { close(done) })
		s.step("core").await(t.Context(), done, func() error {
			if time.Since(s.began) > 15*time.Second {
				return errors.New("soon")
			}
			return errors.New("not yet")
		})
		time.AfterFunc(900*time.Millisecond, func() { close(fast) })
		s.step("gateway to stop").await(t.Context(), fast, func() error { return nil })
		want := "portico: 3 s: waiting for core: not yet\nportico: 13 s: waiting for core: not yet\nportico: 16 s: waiting for core: soon\n"
		if out.String() != want {
			t.Errorf("got\n%s\nwant\n%s", &out, want)
		}
	})
}
