package faults

import (
	"os"
	"testing"

	"portico/cmd/e2e"
	"portico/cmd/e2e/etcdprocess"
)

func TestMain(m *testing.M) {
	etcdprocess.Be()
	os.Exit(e2e.MainUnlessShort(m))
}
