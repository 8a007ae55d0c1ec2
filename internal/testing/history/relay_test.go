package history_test

import (
	"io"
	"net"
	"sync"
)

// relay forwards connections from one unix socket to another, and can cut all of them;
// bytes in flight may arrive.
type relay struct {
	listener net.Listener
	target   string
	running  sync.WaitGroup

	mu   sync.Mutex
	cut  bool
	open map[net.Conn]bool
}

func newRelay(socket, target string) (*relay, error) {
	l, err := net.Listen("unix", socket)
	if err != nil {
		return nil, err
	}
	r := &relay{listener: l, target: target, open: map[net.Conn]bool{}}
	r.running.Go(r.accept)
	return r, nil
}

func (r *relay) accept() {
	for {
		conn, err := r.listener.Accept()
		if err != nil {
			return
		}
		to, err := net.Dial("unix", r.target)
		if err != nil || !r.add(conn, to) {
			conn.Close()
			if err == nil {
				to.Close()
			}
			continue
		}
		r.running.Go(func() { r.pass(conn, to) })
		r.running.Go(func() { r.pass(to, conn) })
	}
}

func (r *relay) pass(from, to net.Conn) {
	_, _ = io.Copy(to, from) // it ends when one of them does
	from.Close()
	to.Close()
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.open, from)
}

// add records connections; false if they are cut.
func (r *relay) add(conns ...net.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cut {
		return false
	}
	for _, c := range conns {
		r.open[c] = true
	}
	return true
}

// set cuts all connections until it is reset.
func (r *relay) set(cut bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cut = cut
	if !cut {
		return
	}
	for c := range r.open {
		c.Close()
	}
}

// Close closes the relay.
func (r *relay) Close() {
	r.set(true)
	r.listener.Close()
	r.running.Wait()
}
