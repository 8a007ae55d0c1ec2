package watchcache

import (
	"context"
	"slices"
	"sync"

	"portico/resource"
	"portico/resource/loop"
)

const (
	// headerBatch is the number of events that Headers sends at a time.
	headerBatch = 1000
	// maxHeaders is the number of events that wait for a slow receiver of Headers. One that
	// has more starts again with the whole state.
	maxHeaders = 100_000
)

// HeaderEvent is an event of Headers.
type HeaderEvent struct {
	// Type is Added or Modified for an object that exists, Deleted for one that does not,
	// and Synced with the end of the whole state.
	Type resource.EventType
	// Header is that of the object, of its last state if it is deleted; nil with Synced.
	Header *resource.Header
}

// observer has the events that a call of Headers has not sent yet.
type observer struct {
	mu      sync.Mutex
	pending []HeaderEvent
	// lost is set if there were too many events or the storage was restored: the receiver
	// needs the whole state again.
	lost   bool
	signal loop.Signal
}

func (o *observer) add(events ...HeaderEvent) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.pending = append(o.pending, events...); len(o.pending) > maxHeaders {
		o.pending, o.lost = nil, true
	}
	o.signal.Set()
}

func (o *observer) take() (events []HeaderEvent, lost bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	events, o.pending = o.pending, nil
	return events, o.lost
}

// Headers calls send with the headers of all objects of the cache, of whatever resource, then
// with a Synced event, then with the changes. It returns when ctx ends or send fails. If
// it had to leave out changes, it sends the whole state again: objects that are not in
// it are deleted.
func (c *Cache) Headers(ctx context.Context, send func([]HeaderEvent) error) error {
	if err := c.WaitReady(ctx); err != nil {
		return err
	}
	for {
		if err := c.headers(ctx, send); err != nil {
			return err
		}
	}
}

// headers sends the state and the changes until some are lost.
func (c *Cache) headers(ctx context.Context, send func([]HeaderEvent) error) error {
	o := &observer{}
	c.mu.Lock()
	s := c.now.Load()
	c.observers = append(c.observers, o)
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.observers = slices.DeleteFunc(c.observers, func(other *observer) bool { return other == o })
	}()
	if err := sendState(s, send); err != nil {
		return err
	}
	for {
		events, lost := o.take()
		if lost {
			return nil
		}
		for batch := range slices.Chunk(events, headerBatch) {
			if err := send(batch); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-c.ended:
			return context.Canceled
		case <-o.signal.C():
		}
	}
}

func sendState(s *snapshot, send func([]HeaderEvent) error) (err error) {
	batch := make([]HeaderEvent, 0, headerBatch)
	s.walk("", "", func(it item) bool {
		batch = append(batch, HeaderEvent{resource.Added, &it.obj.Header})
		if len(batch) == headerBatch {
			err = send(batch)
			batch = batch[:0]
		}
		return err == nil
	})
	if err != nil {
		return err
	}
	return send(append(batch, HeaderEvent{Type: resource.Synced}))
}

// observe gives a change to the observers. mu is held.
func (c *Cache) observe(prev, cur *resource.Object) {
	if len(c.observers) == 0 {
		return
	}
	var events []HeaderEvent
	if prev != nil && (cur == nil || cur.UID != prev.UID) {
		events = append(events, HeaderEvent{resource.Deleted, &prev.Header})
	}
	if cur != nil {
		events = append(events, HeaderEvent{resource.Modified, &cur.Header})
	}
	for _, o := range c.observers {
		o.add(events...)
	}
}

// loseObservers makes the observers start again. mu is held.
func (c *Cache) loseObservers() {
	for _, o := range c.observers {
		o.mu.Lock()
		o.pending, o.lost = nil, true
		o.signal.Set()
		o.mu.Unlock()
	}
}
