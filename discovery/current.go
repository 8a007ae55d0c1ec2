package discovery

import "sync/atomic"

// Current holds the snapshot that a server serves. The zero value holds none. Safe for concurrent
// use; one goroutine at a time may Store.
type Current struct {
	// Followers are the readers of the stream that acknowledge the states that they were sent, or nil if
	// none does. It is set before the first request.
	Followers *Followers

	now atomic.Pointer[shown]
}

// shown is a stored snapshot.
type shown struct {
	snapshot *Snapshot
	openAPI  string        // see StoreWith
	serial   int64         // of the state, from 1
	replaced chan struct{} // closed when the next one is stored
}

// Fixed returns a Current that holds s.
func Fixed(s *Snapshot) *Current {
	c := &Current{}
	c.Store(s)
	return c
}

// Store replaces the snapshot and sends the changes to open streams.
func (c *Current) Store(s *Snapshot) { c.StoreWith(s, "") }

// StoreWith is Store for a server that reports changes of its OpenAPI documents in streams as well:
// openAPI is any text that differs whenever they do. The snapshot may be the same as before. It is called
// by one goroutine at a time.
func (c *Current) StoreWith(s *Snapshot, openAPI string) {
	next := &shown{s, openAPI, 1, make(chan struct{})}
	if old := c.now.Load(); old != nil {
		next.serial = old.serial + 1
		defer close(old.replaced)
	}
	c.now.Store(next)
}

// Serial returns the number of the state, which each StoreWith raises; 0 if there is none yet.
func (c *Current) Serial() int64 {
	if now := c.now.Load(); now != nil {
		return now.serial
	}
	return 0
}

// Load returns the snapshot; nil if there is none yet.
func (c *Current) Load() *Snapshot {
	if now := c.now.Load(); now != nil {
		return now.snapshot
	}
	return nil
}
