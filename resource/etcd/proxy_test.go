package etcd

import (
	"net"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// proxy relays between clients and a server's socket. A test can pause either direction, as
// a network that loses packets does, and close all connections.
type proxy struct {
	path, to     string // unix sockets: its own and the server's
	requests     gate   // towards the server
	answers      gate   // towards the client
	mu           sync.Mutex
	listener     net.Listener // nil while cut off
	conns        map[net.Conn]struct{}
	pumps        sync.WaitGroup
	dialed, sent int // connections made and bytes passed on to the server
	// rate is how many bytes of answers pass in a second, on each connection; 0:
	// as many as there are.
	rate atomic.Int64
}

// gate blocks pass while it is closed.
type gate struct {
	mu   sync.Mutex
	shut chan struct{} // closed when the gate opens again; nil while it is open
}

func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut == nil {
		g.shut = make(chan struct{})
	}
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut != nil {
		close(g.shut)
		g.shut = nil
	}
}

func (g *gate) pass() {
	g.mu.Lock()
	shut := g.shut
	g.mu.Unlock()
	if shut != nil {
		<-shut
	}
}

func newProxy(tb testing.TB, path, to string) *proxy {
	tb.Helper()
	p := &proxy{path: path, to: to, conns: map[net.Conn]struct{}{}}
	p.mend(tb)
	tb.Cleanup(p.cut)
	return p
}

// pause pauses both directions; resume ends that.
func (p *proxy) pause() {
	p.requests.close()
	p.answers.close()
}

func (p *proxy) resume() {
	p.requests.open()
	p.answers.open()
}

// cut closes all connections and rejects new ones until mend.
func (p *proxy) cut() {
	p.mu.Lock()
	if p.listener != nil {
		p.listener.Close()
		p.listener = nil
	}
	for c := range p.conns {
		c.Close()
	}
	p.mu.Unlock()
	p.resume()
	p.pumps.Wait()
}

func (p *proxy) mend(tb testing.TB) {
	tb.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener != nil {
		return
	}
	os.Remove(p.path)
	l, err := net.Listen("unix", p.path)
	if err != nil {
		tb.Fatal(err)
	}
	p.listener = l
	p.pumps.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			p.connect(l, c)
		}
	})
}

// connect joins a client's connection with one to the server.
func (p *proxy) connect(l net.Listener, client net.Conn) {
	server, err := net.Dial("unix", p.to)
	if err != nil {
		client.Close()
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener != l { // cut meanwhile
		client.Close()
		server.Close()
		return
	}
	p.dialed++
	p.conns[client], p.conns[server] = struct{}{}, struct{}{}
	p.pumps.Go(func() { p.pump(client, server, &p.requests) })
	p.pumps.Go(func() { p.pump(server, client, &p.answers) })
}

func (p *proxy) pump(from, to net.Conn, through *gate) {
	defer func() {
		from.Close()
		to.Close()
		p.mu.Lock()
		delete(p.conns, from)
		delete(p.conns, to)
		p.mu.Unlock()
	}()
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		through.pass()
		if rate := p.rate.Load(); rate > 0 && through == &p.answers {
			time.Sleep(time.Duration(n) * time.Second / time.Duration(rate))
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
		if through == &p.requests {
			p.mu.Lock()
			p.sent += n
			p.mu.Unlock()
		}
	}
}

// traffic returns the number of connections and the bytes of requests.
func (p *proxy) traffic() (dialed, sent int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dialed, p.sent
}
