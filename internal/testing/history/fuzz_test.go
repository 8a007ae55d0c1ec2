package history_test

import (
	"testing"

	"portico/internal/testing/history"
)

// stacks are the systems that histories are played on.
func stacks() []func(*testing.T) history.System {
	return []func(*testing.T) history.System{
		overMemory, cacheOverMemory, forgetfulCache, cacheOverEtcd, twoCaches, laggingCaches, overHTTP,
	}
}

// maxSteps bounds the steps of a fuzzer.
const maxSteps = 4000

// FuzzHistory plays a history of any seed on any stack, with a disturbance for every
// hundred writes.
func FuzzHistory(f *testing.F) {
	for i := range stacks() {
		f.Add(uint64(i), uint16(0), uint8(i))
	}
	f.Fuzz(func(t *testing.T, seed uint64, steps uint16, stack uint8) {
		all := stacks()
		n := 100 + int(steps)%maxSteps
		history.Run(t, all[int(stack)%len(all)](t), history.Config{Seed: seed, Steps: n, Disturbances: n / 100})
	})
}
