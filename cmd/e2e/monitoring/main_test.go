// Package monitoring has tests of deploy/monitoring: rules and dashboards beside the metrics of an
// installation.
//
// Runs in: tests.
package monitoring

import (
	"os"
	"testing"

	"portico/cmd/e2e"
)

func TestMain(m *testing.M) { os.Exit(e2e.MainUnlessShort(m)) }
