package historytest_test

import (
	"testing"

	"portico/resource/historytest"
)

func TestMemory(t *testing.T) {
	for seed := range uint64(2) {
		historytest.Run(t, overMemory(t), historytest.Config{Seed: seed, Steps: 300, Disturbances: 4})
	}
}

func TestCacheOverMemory(t *testing.T) {
	for seed := range uint64(2) {
		historytest.Run(t, cacheOverMemory(t), historytest.Config{Seed: seed, Steps: 300, Disturbances: 4})
	}
}

func TestForgetfulCache(t *testing.T) {
	historytest.Run(t, forgetfulCache(t), historytest.Config{Seed: 1, Steps: 300})
}

func TestEtcd(t *testing.T) {
	historytest.Run(t, overEtcd(t), historytest.Config{Seed: 1, Steps: 300, Disturbances: 3})
}

func TestCacheOverEtcd(t *testing.T) {
	historytest.Run(t, cacheOverEtcd(t), historytest.Config{Seed: 1, Steps: 300, Disturbances: 4})
}

func TestTwoCaches(t *testing.T) {
	historytest.Run(t, twoCaches(t), historytest.Config{Seed: 1, Steps: 300, Disturbances: 4})
}

func TestOverHTTP(t *testing.T) {
	historytest.Run(t, overHTTP(t), historytest.Config{Seed: 1, Steps: 300, Disturbances: 4})
}

// What was acknowledged through one server is in every read through the other
// that begins later, though both hear of it late. Without the wait for the
// revision, or the read from the store when it takes too long, hundreds are wrong.
func TestLaggingCaches(t *testing.T) {
	historytest.Run(t, laggingCaches(t), historytest.Config{Seed: 1, Steps: 400})
}
