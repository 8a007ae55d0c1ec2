package main

import (
	"fmt"

	"github.com/spf13/pflag"

	"portico/resource/serve"
)

// Flags of limits, which have the names that they have of kube-apiserver.
const (
	flagInFlight         = "max-requests-inflight"
	flagMutatingInFlight = "max-mutating-requests-inflight"
)

// addLimits adds the limits of requests at work.
func addLimits(fs *pflag.FlagSet, reads, writes *int) {
	fs.IntVar(reads, flagInFlight, serve.DefaultMaxInFlight, "most `requests` that read at work at a time, watches and other long-running ones apart; one user gets three quarters of them at most, system:masters are not limited, and others get 429. 0: no limit")
	fs.IntVar(writes, flagMutatingInFlight, serve.DefaultMaxMutatingInFlight, "most `requests` that write at work at a time, shared in the same way. 0: no limit")
}

// checkLimits checks the limits of requests at work.
func checkLimits(reads, writes int) error {
	for _, f := range []struct {
		name string
		n    int
	}{{flagInFlight, reads}, {flagMutatingInFlight, writes}} {
		if f.n < 0 {
			return fmt.Errorf("--%s %d: it must be 0 (no limit) or more", f.name, f.n)
		}
	}
	return nil
}

// completeLimits checks the limits and turns them into those of a serve.Config, where 0
// is the default.
func completeLimits(reads, writes *int) error {
	if err := checkLimits(*reads, *writes); err != nil {
		return err
	}
	for _, n := range []*int{reads, writes} {
		if *n == 0 {
			*n = -1
		}
	}
	return nil
}
