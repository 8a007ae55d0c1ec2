package server

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"

	"github.com/spf13/pflag"

	"portico/cmd/internal/pace"
	"portico/resource/fairshare"
	"portico/resource/serve/filter"
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

// Limits are the values of the flags of limits. 0 means no limit.
type Limits struct {
	fair                             bool
	reads, writes, long, longPerUser uint
}

// AddInFlight adds the limits of requests in flight and priority and fairness, which have
// kube-apiserver's names.
func (l *Limits) AddInFlight(fs *pflag.FlagSet) {
	fs.UintVar(&l.reads, "max-requests-inflight", filter.DefaultMaxInFlight, "maximum `number` of reads in flight; the sum of both limits is the number of seats of priority and fairness. Without it, the reads that are no watches or other long-running requests: more are answered 429, one user gets two thirds at most, and 0 means no limit")
	fs.UintVar(&l.writes, "max-mutating-requests-inflight", filter.DefaultMaxMutatingInFlight, "maximum `number` of writes in flight, in the same way")
	fs.BoolVar(&l.fair, "enable-priority-and-fairness", true, "queue requests by FlowSchemas and PriorityLevelConfigurations; without it, those beyond the two limits are refused")
}

// AddLongRunning adds the limits of long-running requests.
func (l *Limits) AddLongRunning(fs *pflag.FlagSet) {
	fs.UintVar(&l.long, "max-long-running-requests", uint(max(leastLongRunning, pace.Memory()/2/longRunningMemory)), "maximum `number` of watches and other long-running requests, shared in the same way; the default is half of the memory at 64 KiB each. 0 means no limit")
	fs.UintVar(&l.longPerUser, "max-long-running-requests-per-user", longRunningPerUser, "maximum `number` of these requests of one user, except system:masters. 0 means the user's share")
}

// setLimit returns what sets a limit to the value of a flag.
func setLimit(limit *fairshare.Limit) func(string) error {
	return func(value string) error {
		n, err := strconv.ParseUint(value, 10, 31)
		if err != nil {
			return fmt.Errorf("%q: must be a whole number", value)
		}
		limit.Set(int(n))
		return nil
	}
}

// checkSeats refuses limits that leave no seats.
func checkSeats(fs *pflag.FlagSet) error {
	fair, _ := fs.GetBool("enable-priority-and-fairness") // false where there is no such flag
	reads, _ := fs.GetUint("max-requests-inflight")
	if writes, _ := fs.GetUint("max-mutating-requests-inflight"); fair && reads+writes == 0 {
		return errors.New("--max-requests-inflight=0, --max-mutating-requests-inflight=0: their sum is the number of seats and must be positive; " +
			"with --enable-priority-and-fairness=false requests have no limit then")
	}
	return nil
}

// inFlight returns the limits of requests in flight in the form of serve.Config, where
// 0 is the default and a negative number no limit.
func (l *Limits) inFlight() (reads, writes int) {
	orNone := func(limit uint) int { return cmp.Or(int(limit), -1) }
	return orNone(l.reads), orNone(l.writes)
}
