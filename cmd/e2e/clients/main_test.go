package clients

import (
	"fmt"
	"os"
	"testing"

	"portico/cmd/e2e"
)

// watchesPerUser is the limit of long-running requests of one user in the shared
// installation.
const watchesPerUser = 2500

func TestMain(m *testing.M) {
	beCredentialPlugin()
	beClients()
	os.Setenv("OTEL_BSP_SCHEDULE_DELAY", "100") // send spans every 100 ms instead of 5 s
	os.Exit(e2e.MainUnlessShort(m, "--profiling", fmt.Sprintf("--max-long-running-requests-per-user=%d", watchesPerUser)))
}
