package main

import (
	"fmt"

	"github.com/spf13/pflag"

	"portico/cmd/internal/pace"
	"portico/resource/serve"
)

// Flags of limits. Those of requests at work have the names that they have of
// kube-apiserver.
const (
	flagInFlight           = "max-requests-inflight"
	flagMutatingInFlight   = "max-mutating-requests-inflight"
	flagLongRunning        = "max-long-running-requests"
	flagLongRunningPerUser = "max-long-running-requests-per-user"
)

const (
	// longRunningMemory is what a gateway takes into account for a long-running
	// request, in bytes: about twice what a quiet watch takes.
	longRunningMemory = 64 << 10
	// longRunningPerUser is the default of one user, where memory suffices for more.
	longRunningPerUser = 16_000
	// leastLongRunning is the default where memory is little, or not known.
	leastLongRunning = 4096
)

// limits are flags of limits.
type limits struct{ reads, writes, long, longPerUser int }

// addAtWork adds the limits of requests at work.
func (l *limits) addAtWork(fs *pflag.FlagSet) {
	fs.IntVar(&l.reads, flagInFlight, serve.DefaultMaxInFlight, "most `requests` that read at work at a time, watches and other long-running ones apart; one user gets three quarters of them at most, system:masters are not limited, and others get 429. 0: no limit")
	fs.IntVar(&l.writes, flagMutatingInFlight, serve.DefaultMaxMutatingInFlight, "most `requests` that write at work at a time, shared in the same way. 0: no limit")
}

// addLongRunning adds the limits of long-running requests.
func (l *limits) addLongRunning(fs *pflag.FlagSet) {
	fs.IntVar(&l.long, flagLongRunning, defaultLongRunning(), "most watches and other long-running `requests` at a time, shared in the same way; the default is half of the memory at 64 KB each. 0: no limit")
	fs.IntVar(&l.longPerUser, flagLongRunningPerUser, longRunningPerUser, "most of those `requests` of one user, system:masters apart. 0: no limit but the user's share")
}

func defaultLongRunning() int {
	return int(max(leastLongRunning, pace.Memory()/2/longRunningMemory))
}

// check checks the limits.
func (l *limits) check() error {
	for _, f := range []struct {
		name string
		n    int
	}{{flagInFlight, l.reads}, {flagMutatingInFlight, l.writes}, {flagLongRunning, l.long}, {flagLongRunningPerUser, l.longPerUser}} {
		if f.n < 0 {
			return fmt.Errorf("--%s=%d: it must be 0 (no limit) or more", f.name, f.n)
		}
	}
	return nil
}

// atWork returns the limits of requests at work as serve.Config has them, where 0 is
// the default.
func (l *limits) atWork() (reads, writes int) {
	reads, writes = l.reads, l.writes
	if reads == 0 {
		reads = -1
	}
	if writes == 0 {
		writes = -1
	}
	return reads, writes
}

// atWorkArgs returns the flags for a child process.
func (l *limits) atWorkArgs() []string {
	return []string{fmt.Sprintf("--%s=%d", flagInFlight, l.reads), fmt.Sprintf("--%s=%d", flagMutatingInFlight, l.writes)}
}

// longRunningArgs returns the flags for a gateway.
func (l *limits) longRunningArgs() []string {
	return []string{fmt.Sprintf("--%s=%d", flagLongRunning, l.long), fmt.Sprintf("--%s=%d", flagLongRunningPerUser, l.longPerUser)}
}
