package openapi

import (
	"errors"
	"sync"
	"time"
)

const (
	// fetchesPerServer is how many documents of a server are fetched at a time: a server
	// that hangs delays requests for its own documents only.
	fetchesPerServer = 4
	// fetchWait is how long a fetch waits for a slot.
	fetchWait = 5 * time.Second
)

// errBusy is the error of a fetch that got no slot in time.
var errBusy = errors.New("its server has not answered yet with others")

// fetchQueues bound the fetches of each server. The zero value is ready; safe for
// concurrent use.
type fetchQueues struct {
	mu sync.Mutex
	of map[string]*fetchQueue // by owner, of those in use
}

// fetchQueue is that of one server.
type fetchQueue struct {
	slots chan struct{}
	users int // fetches that run or wait
}

// fetch runs a fetch of a server in one of its slots.
func (q *fetchQueues) fetch(owner string, fetch func() ([]byte, error)) ([]byte, error) {
	at := q.acquire(owner)
	defer q.release(owner, at)
	timer := time.NewTimer(fetchWait)
	defer timer.Stop()
	select {
	case at.slots <- struct{}{}:
	case <-timer.C:
		return nil, errBusy
	}
	defer func() { <-at.slots }()
	return fetch()
}

func (q *fetchQueues) acquire(owner string) *fetchQueue {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.of == nil {
		q.of = map[string]*fetchQueue{}
	}
	at := q.of[owner]
	if at == nil {
		at = &fetchQueue{slots: make(chan struct{}, fetchesPerServer)}
		q.of[owner] = at
	}
	at.users++
	return at
}

func (q *fetchQueues) release(owner string, at *fetchQueue) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if at.users--; at.users == 0 {
		delete(q.of, owner)
	}
}
