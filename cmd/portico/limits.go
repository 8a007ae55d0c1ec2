package main

import (
	"errors"
	"strconv"

	"github.com/spf13/pflag"

	"portico/cmd/internal/pace"
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

// limits are the values of the flags of limits. 0 means no limit.
type limits struct{ reads, writes, long, longPerUser limit }

// limit is the value of one of these flags.
type limit int

func (l *limit) String() string { return strconv.Itoa(int(*l)) }
func (l *limit) Type() string   { return "int" }
func (l *limit) Set(s string) error {
	n, err := strconv.Atoi(s)
	if err != nil || n < 0 {
		return errors.New("must be a number, not negative (0 means no limit)")
	}
	*l = limit(n)
	return nil
}

// addInFlight adds the limits of requests in flight, which have kube-apiserver's names.
func (l *limits) addInFlight(fs *pflag.FlagSet) {
	l.reads, l.writes = filter.DefaultMaxInFlight, filter.DefaultMaxMutatingInFlight
	fs.Var(&l.reads, "max-requests-inflight", "maximum `number` of reads in flight, without watches and other long-running requests; more are answered 429. One user gets three quarters at most; system:masters is not limited. 0 means no limit")
	fs.Var(&l.writes, "max-mutating-requests-inflight", "maximum `number` of writes in flight, shared in the same way. 0 means no limit")
}

// addLongRunning adds the limits of long-running requests.
func (l *limits) addLongRunning(fs *pflag.FlagSet) {
	l.long, l.longPerUser = limit(max(leastLongRunning, pace.Memory()/2/longRunningMemory)), longRunningPerUser
	fs.Var(&l.long, "max-long-running-requests", "maximum `number` of watches and other long-running requests, shared in the same way; the default is half of the memory at 64 KiB each. 0 means no limit")
	fs.Var(&l.longPerUser, "max-long-running-requests-per-user", "maximum `number` of these requests of one user, except system:masters. 0 means the user's share")
}

// inFlight returns the limits of requests in flight in the form of serve.Config, where
// 0 is the default and a negative number no limit.
func (l *limits) inFlight() (reads, writes int) {
	reads, writes = int(l.reads), int(l.writes)
	if reads == 0 {
		reads = -1
	}
	if writes == 0 {
		writes = -1
	}
	return reads, writes
}
