package etcdtest

import (
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Relay forwards connections to a server. Safe for concurrent use.
type Relay struct {
	// Requests and Responses are the two directions.
	Requests, Responses Gate
	// Between returns, by the two ends of the client's connection, a function that returns gates
	// that both directions of it pass as well. That function is called before data is passed on, and
	// concurrently. nil: none.
	Between func(client, relay net.Addr) func() []*Gate
	// Rate is the most bytes of responses that each connection passes in a second; 0 means
	// no limit.
	Rate atomic.Int64
	// Dialed counts the connections, Received the bytes of requests, also while they wait.
	Dialed, Received atomic.Int64

	network, path, to string
	listener          net.Listener
	running           sync.WaitGroup

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

// Listen starts a relay from an address to another one of the same network, unix or tcp.
func Listen(network, path, to string, between func(client, relay net.Addr) func() []*Gate) (*Relay, error) {
	l, err := net.Listen(network, path)
	if err != nil {
		return nil, err
	}
	r := &Relay{Between: between, network: network, path: path, to: to, listener: l, conns: map[net.Conn]struct{}{}}
	r.running.Go(r.accept)
	return r, nil
}

// Endpoint returns the URL of the relay of a unix socket.
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

// Close cuts all connections and accepts no other.
func (r *Relay) Close() {
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
		server, err := net.Dial(r.network, r.to)
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
		between := func() []*Gate { return nil }
		if r.Between != nil {
			between = r.Between(client.RemoteAddr(), client.LocalAddr())
		}
		r.running.Go(func() { r.pump(client, server, &r.Requests, between) })
		r.running.Go(func() { r.pump(server, client, &r.Responses, between) })
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

func (r *Relay) pump(from, to net.Conn, direction *Gate, between func() []*Gate) {
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
		if direction == &r.Requests {
			r.Received.Add(int64(n))
		}
		direction.pass()
		for _, gate := range between() {
			gate.pass()
		}
		if rate := r.Rate.Load(); rate > 0 && direction == &r.Responses {
			time.Sleep(time.Duration(n) * time.Second / time.Duration(rate))
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}
