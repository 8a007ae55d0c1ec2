package await

import (
	"os"
	"testing"
	"time"
)

// barsEnv makes the bars count. A machine that is busy or slow misses them for reasons of its own, so
// that go test does not set it; .ci/long bars does.
const barsEnv = "PORTICO_TEST_BARS"

// Bar compares how long something took with the longest that it may take on a quiet machine. The test
// fails beyond it if PORTICO_TEST_BARS is set in the environment, and logs it else.
func Bar(t testing.TB, what string, took, bar time.Duration) {
	t.Helper()
	if took <= bar {
		return
	}
	if os.Getenv(barsEnv) == "" {
		t.Logf("%s took %v; the bar on a quiet machine is %v", what, took, bar)
		return
	}
	t.Errorf("%s took %v, more than %v", what, took, bar)
}
