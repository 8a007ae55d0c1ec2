package history_test

import (
	"testing"

	"portico/internal/testing/history"
)

func TestMemory(t *testing.T) {
	for seed := range uint64(2) {
		history.Run(t, overMemory(t), history.Config{Seed: seed, Steps: 300, Disturbances: 4})
	}
}

func TestCacheOverMemory(t *testing.T) {
	for seed := range uint64(2) {
		history.Run(t, cacheOverMemory(t), history.Config{Seed: seed, Steps: 300, Disturbances: 4})
	}
}

func TestForgetfulCache(t *testing.T) {
	history.Run(t, forgetfulCache(t), history.Config{Seed: 1, Steps: 300})
}

func TestCacheOverEtcd(t *testing.T) {
	history.Run(t, cacheOverEtcd(t), history.Config{Seed: 1, Steps: 300, Disturbances: 4})
}

func TestTwoCaches(t *testing.T) {
	history.Run(t, twoCaches(t), history.Config{Seed: 1, Steps: 300, Disturbances: 4})
}

func TestOverHTTP(t *testing.T) {
	history.Run(t, overHTTP(t), history.Config{Seed: 1, Steps: 300, Disturbances: 4})
}

// A write acknowledged by one server is in every later read through the other one, although
// both get events late. Without the wait for the revision, or without the read from the
// store after a time-out, hundreds of reads are wrong.
func TestLaggingCaches(t *testing.T) {
	history.Run(t, laggingCaches(t), history.Config{Seed: 1, Steps: 400})
}
