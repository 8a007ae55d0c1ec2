package discovery

import "sync/atomic"

// Current is the snapshot that a server shows at the moment. The zero Current
// has none yet. Safe for concurrent use; one goroutine at a time may Store.
type Current struct {
	now atomic.Pointer[shown]
}

// shown is a snapshot and the way to hear of the one after it.
type shown struct {
	snapshot *Snapshot
	openAPI  string // see StoreWith
	replaced chan struct{}
}

// Fixed returns a Current that always shows s.
func Fixed(s *Snapshot) *Current {
	c := &Current{}
	c.Store(s)
	return c
}

// Store replaces the snapshot and wakes everybody who follows.
func (c *Current) Store(s *Snapshot) { c.StoreWith(s, "") }

// StoreWith is Store of a server that also tells those who follow when its
// OpenAPI documents change: openAPI is any text that differs whenever they do.
// What is stored may differ from before in that alone.
func (c *Current) StoreWith(s *Snapshot, openAPI string) {
	old := c.now.Swap(&shown{s, openAPI, make(chan struct{})})
	if old != nil {
		close(old.replaced)
	}
}

// Load returns the snapshot; nil if there is none yet.
func (c *Current) Load() *Snapshot {
	if now := c.now.Load(); now != nil {
		return now.snapshot
	}
	return nil
}
