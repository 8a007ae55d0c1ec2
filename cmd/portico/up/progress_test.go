package up

import (
	"errors"
	"io"
	"log/slog"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// A child that starts is said to be at work; what it waits for is named as its checks are.
func TestProgressOfChildren(t *testing.T) {
	t.Parallel()
	for want, reason := range map[string]error{
		"core is starting":                &os.PathError{Op: "dial", Path: "core.sock", Err: syscall.ENOENT},
		"core reads its objects":          errors.New("500 Internal Server Error: waiting for informer-sync, poststarthook/start-system-namespaces-controller"),
		"core waits for etcd, kms":        errors.New("500 Internal Server Error: waiting for etcd, kms"),
		"core is starting: no such thing": errors.New("no such thing"),
	} {
		if got := (&step{what: "core", child: true}).text(reason); got != want {
			t.Errorf("%v: got %q, want %q", reason, got, want)
		}
	}
}

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
