package faults

import (
	"flag"
	"os"
	"runtime"
	"strconv"
	"testing"

	"portico/cmd/e2e"
	"portico/cmd/e2e/etcdprocess"
)

func TestMain(m *testing.M) {
	etcdprocess.Be()
	// All tests wait at the same time: the longest one waits for most of it.
	flag.Set("test.parallel", strconv.Itoa(6*runtime.NumCPU()))
	os.Exit(e2e.MainUnlessShort(m))
}
