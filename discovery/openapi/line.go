package openapi

import (
	"errors"
	"sync"
	"time"
)

const (
	// fetchesPerServer is how many documents of a server are fetched at a time: one
	// that hangs holds up nobody but those who want its own.
	fetchesPerServer = 4
	// fetchWait is how long a fetch waits for those before it.
	fetchWait = 5 * time.Second
)

// errBusy says that a document was not fetched because too many others of its
// server are.
var errBusy = errors.New("its server has not answered yet with others")

// lines bound the fetches of each server. The zero value is ready; safe for
// concurrent use.
type lines struct {
	mu sync.Mutex
	of map[string]*line // by owner, of those with fetches
}

// line is of one server.
type line struct {
	places chan struct{}
	users  int // under way, or waiting
}

// fetch runs a fetch of a server when it is its turn.
func (l *lines) fetch(owner string, fetch func() ([]byte, error)) ([]byte, error) {
	at := l.join(owner)
	defer l.leave(owner, at)
	timer := time.NewTimer(fetchWait)
	defer timer.Stop()
	select {
	case at.places <- struct{}{}:
	case <-timer.C:
		return nil, errBusy
	}
	defer func() { <-at.places }()
	return fetch()
}

func (l *lines) join(owner string) *line {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.of == nil {
		l.of = map[string]*line{}
	}
	at := l.of[owner]
	if at == nil {
		at = &line{places: make(chan struct{}, fetchesPerServer)}
		l.of[owner] = at
	}
	at.users++
	return at
}

func (l *lines) leave(owner string, at *line) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if at.users--; at.users == 0 {
		delete(l.of, owner)
	}
}
