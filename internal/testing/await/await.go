// Package await waits in tests. A wait ends when its test has no time left, not after a time of its
// own: how long something takes on a busy machine is not what a test is about.
//
// Runs in: tests.
package await

import (
	"flag"
	"testing"
	"time"
)

// started is when the program of the test began, about which the time of -timeout begins as well.
var started = time.Now()

// unbounded is the time that a program has which has no -timeout.
const unbounded = 10 * time.Minute

// Patience returns how long a wait that begins now may take: until shortly before go test ends the
// program (-timeout, 10 minutes by default), so that the wait can still fail with what it waited for
// and the test can clean up.
func Patience() time.Duration {
	timeout := unbounded
	if f := flag.Lookup("test.timeout"); f != nil {
		if set, _ := f.Value.(flag.Getter).Get().(time.Duration); set > 0 {
			timeout = set
		}
	}
	return max(time.Second, timeout-min(timeout/10, 30*time.Second)-time.Since(started))
}

// Until waits until ok returns true, and fails the test if it does not within Patience. It must be
// called by the goroutine of the test.
func Until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(Patience()); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not before the test's time is over: %s", what)
		}
	}
}
