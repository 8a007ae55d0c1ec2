package conversion

import (
	"os"
	"testing"

	"portico/cmd/e2e"
)

func TestMain(m *testing.M) { os.Exit(e2e.MainUnlessShort(m)) }
