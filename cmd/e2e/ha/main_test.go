package ha

import (
	"flag"
	"os"
	"runtime"
	"strconv"
	"testing"

	"portico/cmd/e2e"
)

func TestMain(m *testing.M) {
	// An installation has nine processes and their clients: more than one for each processor starve each other.
	flag.Set("test.parallel", strconv.Itoa(runtime.NumCPU()))
	os.Exit(e2e.MainUnlessShort(m))
}
