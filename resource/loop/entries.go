package loop

import (
	"context"
	"iter"
	"maps"
	"sync"
)

// Life is the time in which an entry of Entries is wanted.
type Life struct {
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
}

// Context ends when the entry is retired. Use context.AfterFunc with it for
// what must be closed then.
func (l *Life) Context() context.Context { return l.ctx }

// Go runs f in a goroutine that retiring the entry waits for; f returns when
// its context ends. Call it while the entry is made, or from another f.
func (l *Life) Go(f func(ctx context.Context)) {
	l.wg.Go(func() { f(l.ctx) })
}

// Entries keeps one live value (a transport, a cache, a running loop) for each
// key of the newest snapshot. A value is reused as long as its key is wanted,
// so the key holds everything that the value's identity depends on.
//
// Values are retired by one protocol: swap, cancel, wait. Sync returns the new
// set; the caller publishes it, so that the old values are not used anew; then it calls
// retire, which ends their Lifes and waits for their goroutines.
//
// Entries belongs to one goroutine. The maps it returns are never changed and
// may be shared.
type Entries[K comparable, V any] struct {
	ctx  context.Context
	live map[K]V
	life map[K]*Life
}

// NewEntries returns an empty set whose entries all end with ctx, at the
// latest.
func NewEntries[K comparable, V any](ctx context.Context) *Entries[K, V] {
	return &Entries[K, V]{ctx: ctx, life: map[K]*Life{}}
}

// Sync makes the set hold exactly the wanted keys: what is there is kept, what
// is missing is made. Keys may repeat. It returns the new set, and the function
// that retires what is no longer wanted.
func (e *Entries[K, V]) Sync(want iter.Seq[K], start func(life *Life, key K) V) (live map[K]V, retire func()) {
	next := make(map[K]V, len(e.live))
	for key := range want {
		if _, done := next[key]; done {
			continue
		}
		value, ok := e.live[key]
		if !ok {
			life := &Life{}
			life.ctx, life.cancel = context.WithCancel(e.ctx)
			e.life[key] = life
			value = start(life, key)
		}
		next[key] = value
	}
	var old []*Life
	for key := range e.live {
		if _, ok := next[key]; !ok {
			old = append(old, e.life[key])
			delete(e.life, key)
		}
	}
	e.live = next
	return next, func() { end(old) }
}

// Close retires every entry and waits for all of them.
func (e *Entries[K, V]) Close() {
	old := make([]*Life, 0, len(e.life))
	for life := range maps.Values(e.life) {
		old = append(old, life)
	}
	e.live, e.life = nil, map[K]*Life{}
	end(old)
}

// end cancels all of them before it waits for any.
func end(lives []*Life) {
	for _, l := range lives {
		l.cancel()
	}
	for _, l := range lives {
		l.wg.Wait()
	}
}
