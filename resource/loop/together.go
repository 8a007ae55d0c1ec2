package loop

import (
	"context"
	"sync"
)

// Together runs all functions until the first of them ends, then ends the
// others, waits for them, and returns what the first returned.
func Together(ctx context.Context, run ...func(ctx context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	var once sync.Once
	var first error
	for _, f := range run {
		wg.Go(func() {
			err := f(ctx)
			once.Do(func() { first = err })
			cancel()
		})
	}
	wg.Wait()
	return first
}
