package main

import (
	"fmt"

	"github.com/spf13/pflag"

	"portico/cmd/internal/pace"
	"portico/resource/serve/filter"
)

// Flags of limits. Those of requests in flight have kube-apiserver's names.
const (
	flagInFlight           = "max-requests-inflight"
	flagMutatingInFlight   = "max-mutating-requests-inflight"
	flagLongRunning        = "max-long-running-requests"
	flagLongRunningPerUser = "max-long-running-requests-per-user"
)

const (
	// longRunningMemory is the memory of a long-running request in bytes, for the
	// default limit: about twice that of an idle watch.
	longRunningMemory = 64 << 10
	// longRunningPerUser is the default limit of one user.
	longRunningPerUser = 16_000
	// leastLongRunning is the smallest default limit, also where memory is unknown.
	leastLongRunning = 4096
)

// limits are the values of these flags.
type limits struct{ reads, writes, long, longPerUser int }

// addAtWork adds the limits of requests in flight.
func (l *limits) addAtWork(fs *pflag.FlagSet) {
	fs.IntVar(&l.reads, flagInFlight, filter.DefaultMaxInFlight, "maximum `number` of reads in flight, without watches and other long-running requests; more are answered 429. One user gets three quarters at most; system:masters is not limited. 0 means no limit")
	fs.IntVar(&l.writes, flagMutatingInFlight, filter.DefaultMaxMutatingInFlight, "maximum `number` of writes in flight, shared in the same way. 0 means no limit")
}

// addLongRunning adds the limits of long-running requests.
func (l *limits) addLongRunning(fs *pflag.FlagSet) {
	fs.IntVar(&l.long, flagLongRunning, defaultLongRunning(), "maximum `number` of watches and other long-running requests, shared in the same way; the default is half of the memory at 64 KiB each. 0 means no limit")
	fs.IntVar(&l.longPerUser, flagLongRunningPerUser, longRunningPerUser, "maximum `number` of these requests of one user, except system:masters. 0 means the user's share")
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
			return fmt.Errorf("--%s must not be negative (0 means no limit)", f.name)
		}
	}
	return nil
}

// atWork returns the limits of requests in flight in the form of serve.Config, where
// 0 is the default and a negative number no limit.
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
