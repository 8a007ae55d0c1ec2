package etcdtest

import (
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Relay forwards the connections of a unix socket to a server. Safe for concurrent use.
type Relay struct {
	// Requests and Responses are the two directions.
	Requests, Responses Gate
	// Rate is the most bytes of responses that each connection passes in a second; 0 means
	// no limit.
	Rate atomic.Int64
	// Dialed counts the connections.
	Dialed atomic.Int64

	path, to string
	listener net.Listener
	running  sync.WaitGroup

	mu    sync.Mutex
	off   bool // cut
	conns map[net.Conn]struct{}
}

// Gate stops one direction, as a network does that loses packets.
type Gate struct {
	shut atomic.Bool
	mu   sync.RWMutex // locked while it is shut
}

// Shut makes data wait until Open.
func (g *Gate) Shut() {
	if g.shut.CompareAndSwap(false, true) {
		g.mu.Lock()
	}
}

// Open lets data pass.
func (g *Gate) Open() {
	if g.shut.CompareAndSwap(true, false) {
		g.mu.Unlock()
	}
}

func (g *Gate) pass() {
	g.mu.RLock()
	defer g.mu.RUnlock()
}

func newRelay(path, to string) (*Relay, error) {
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	r := &Relay{path: path, to: to, listener: l, conns: map[net.Conn]struct{}{}}
	r.running.Go(r.accept)
	return r, nil
}

// Endpoint returns the URL of the relay.
func (r *Relay) Endpoint() string { return "unix://" + r.path }

// Pause shuts both directions; connections stay open until Cut. Resume opens both.
func (r *Relay) Pause() {
	r.Requests.Shut()
	r.Responses.Shut()
}

// Resume ends a Pause.
func (r *Relay) Resume() {
	r.Requests.Open()
	r.Responses.Open()
}

// Cut closes all connections, and new ones until Mend. It opens both directions.
func (r *Relay) Cut() {
	r.mu.Lock()
	r.off = true
	for c := range r.conns {
		c.Close()
	}
	r.mu.Unlock()
	r.Resume()
}

// Mend accepts connections again.
func (r *Relay) Mend() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.off = false
}

func (r *Relay) close() {
	r.Cut()
	r.listener.Close()
	r.running.Wait()
}

func (r *Relay) accept() {
	for {
		client, err := r.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("unix", r.to)
		if err != nil {
			client.Close()
			continue
		}
		if !r.add(client, server) {
			client.Close()
			server.Close()
			continue
		}
		r.Dialed.Add(1)
		r.running.Go(func() { r.pump(client, server, &r.Requests) })
		r.running.Go(func() { r.pump(server, client, &r.Responses) })
	}
}

// add records connections; false while they are cut.
func (r *Relay) add(conns ...net.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.off {
		return false
	}
	for _, c := range conns {
		r.conns[c] = struct{}{}
	}
	return true
}

func (r *Relay) pump(from, to net.Conn, through *Gate) {
	defer func() {
		from.Close()
		to.Close()
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.conns, from)
	}()
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		through.pass()
		if rate := r.Rate.Load(); rate > 0 && through == &r.Responses {
			time.Sleep(time.Duration(n) * time.Second / time.Duration(rate))
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}
