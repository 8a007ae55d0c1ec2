package process

import (
	"context"
	"sync"

	"portico/resource/loop"
)

// Tasks runs at most one task for each key (the uid of an object that is being deleted),
// repeated until it succeeds. Safe for concurrent use.
type Tasks struct {
	slots   chan struct{}
	backoff loop.Backoff

	running sync.Map // of keys
	wg      sync.WaitGroup
}

// NewTasks returns Tasks of which at most limit work at a time. One that waits for its next
// attempt does not count.
func NewTasks(limit int, backoff loop.Backoff) *Tasks {
	return &Tasks{slots: make(chan struct{}, limit), backoff: backoff}
}

// Start runs task in a goroutine until it returns nil or ctx ends. It does nothing while
// the task of that key runs. Call it from one goroutine, before Wait.
func (t *Tasks) Start(ctx context.Context, key string, task func(context.Context) error) {
	if _, running := t.running.LoadOrStore(key, nil); running {
		return
	}
	t.wg.Go(func() {
		defer t.running.Delete(key)
		// Retry ends when the task has succeeded, or with ctx.
		_ = loop.Retry(ctx, t.backoff, func(ctx context.Context) error {
			select {
			case t.slots <- struct{}{}:
			case <-ctx.Done():
				return ctx.Err()
			}
			defer func() { <-t.slots }()
			return task(ctx)
		})
	})
}

// Running reports whether the task of a key has not ended.
func (t *Tasks) Running(key string) bool {
	_, running := t.running.Load(key)
	return running
}

// Wait waits until all tasks have ended.
func (t *Tasks) Wait() { t.wg.Wait() }
