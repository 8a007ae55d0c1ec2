// Package await waits in tests.
//
// Runs in: tests.
package await

import (
	"testing"
	"time"
)

// Timeout is how long Until waits: longer than a busy machine takes for anything, and shorter
// than the intervals of what happens without being waited for.
const Timeout = 20 * time.Second

// Until waits until ok returns true, and fails the test after Timeout. It must be called by the
// goroutine of the test.
func Until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(Timeout); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", Timeout, what)
		}
	}
}
