package history_test

import (
	"testing"

	"portico/internal/testing/history"
)

// stacks are the systems on which histories are played.
func stacks() []func(*testing.T) history.System {
	return []func(*testing.T) history.System{cacheOverMemory, forgetfulCache, twoCaches, laggingCaches, overHTTP}
}

// maxSteps bounds the steps of a fuzzer.
const maxSteps = 4000

// Every response of every stack is right, in a history of any seed with a disturbance for
// every hundred writes.
func FuzzHistory(f *testing.F) {
	steps := 300
	if testing.Short() {
		steps = 0
	}
	for i := range stacks() {
		f.Add(uint64(1), uint16(steps), uint8(i))
	}
	f.Add(uint64(2), uint16(5*steps), uint8(0))
	f.Fuzz(func(t *testing.T, seed uint64, steps uint16, stack uint8) {
		t.Parallel()
		all := stacks()
		n := 100 + int(steps)%maxSteps
		history.Run(t, all[int(stack)%len(all)](t), history.Config{Seed: seed, Steps: n, Disturbances: n / 100})
	})
}
