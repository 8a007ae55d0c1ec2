package gateway

import (
	"context"
	"testing"
)

// running runs a part until the test ends.
func running(t *testing.T, run func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
}
