package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

const (
	// streamRoom and laneRoom are how much may come that was not asked for: of one
	// answer, and of all.
	streamRoom = 1 << 20
	laneRoom   = 1 << 30
	// defaultStreams is how many requests may be under way unless a server says
	// otherwise.
	defaultStreams = 100
)

// lane2 is an HTTP/2 connection that sends one and the same request again and
// again. One goroutine reads; any may send.
type lane2 struct {
	conn  net.Conn
	fr    *http2.Framer
	chunk []byte
	in    bytes.Buffer // what came of a frame that is not whole
	took  int64        // of laneRoom
	dec   *hpack.Decoder
	ended func(began time.Time, bytes int64) error
	code  string // the status of the answer that is being read
	want  string

	mu          sync.Mutex
	bw          *bufio.Writer
	first, more []byte // the request, the first time and when both sides know its fields
	next        uint32
	open        map[uint32]exchange2
	limit       int         // of open; 0 before the server has said something
	waiting     []time.Time // to be sent when there is room
	answered    func()      // of each answer's header; may be nil
}

type exchange2 struct {
	began time.Time
	bytes int64
}

// newLane2 opens the connection. ended is called by read for each answer that
// has come to its end.
func newLane2(conn net.Conn, f fields, ended func(began time.Time, bytes int64) error) (*lane2, error) {
	l := &lane2{
		conn: conn, chunk: make([]byte, 32<<10), bw: bufio.NewWriterSize(conn, 8<<10),
		next: 1, open: map[uint32]exchange2{}, ended: ended, want: "200",
	}
	l.fr = http2.NewFramer(l.bw, &l.in)
	l.fr.SetReuseFrames()
	l.dec = hpack.NewDecoder(4096, func(f hpack.HeaderField) {
		if f.Name == ":status" {
			l.code = f.Value
		}
	})
	var block bytes.Buffer
	enc := hpack.NewEncoder(&block)
	for _, part := range []*[]byte{&l.first, &l.more} {
		block.Reset()
		for _, field := range f {
			if err := enc.WriteField(hpack.HeaderField{Name: field[0], Value: field[1]}); err != nil {
				return nil, err
			}
		}
		*part = bytes.Clone(block.Bytes())
	}
	_, err := io.WriteString(l.bw, http2.ClientPreface)
	return l, errors.Join(err,
		l.fr.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: streamRoom}, http2.Setting{ID: http2.SettingEnablePush}),
		l.fr.WriteWindowUpdate(0, laneRoom), l.bw.Flush())
}

// room reports whether the server takes one more request now.
func (l *lane2) room() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.open) < l.limit
}

// send sends the request once more, as one that was to begin at a time; later,
// if the server does not take more at once. It goes with the next flush.
func (l *lane2) send(at time.Time) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.open) >= l.limit {
		l.waiting = append(l.waiting, at)
		return nil
	}
	return l.write(at)
}

func (l *lane2) flush() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.bw.Flush()
}

// settle takes a server's settings; mu is held.
func (l *lane2) settle(frame *http2.SettingsFrame) error {
	if streams, ok := frame.Value(http2.SettingMaxConcurrentStreams); ok {
		l.limit = int(streams)
	} else if l.limit == 0 {
		l.limit = defaultStreams
	}
	if err := l.fr.WriteSettingsAck(); err != nil {
		return err
	}
	return l.catchUp()
}

// catchUp sends what waits, as far as there is room; mu is held.
func (l *lane2) catchUp() error {
	for len(l.waiting) > 0 && len(l.open) < l.limit {
		if err := l.write(l.waiting[0]); err != nil {
			return err
		}
		l.waiting = l.waiting[1:]
	}
	return nil
}

// write writes the request; mu is held.
func (l *lane2) write(at time.Time) error {
	block := l.more
	if l.next == 1 {
		block = l.first
	}
	l.open[l.next] = exchange2{began: at}
	err := l.fr.WriteHeaders(http2.HeadersFrameParam{StreamID: l.next, BlockFragment: block, EndStream: true, EndHeaders: true})
	l.next += 2
	return err
}

// read reads until the connection ends.
func (l *lane2) read() error {
	for {
		if err := l.readSome(); err != nil {
			return err
		}
		if err := l.flush(); err != nil {
			return err
		}
	}
}

// receive reads until errAgain.
func (l *lane2) receive() error {
	for {
		if err := l.readSome(); err != nil {
			return err
		}
	}
}

// readSome takes what comes in one piece.
func (l *lane2) readSome() error {
	n, err := l.conn.Read(l.chunk)
	l.in.Write(l.chunk[:n])
	for l.whole() {
		frame, err := l.fr.ReadFrame()
		if err != nil {
			return err
		}
		if err := l.take(frame); err != nil {
			return err
		}
	}
	return err
}

// whole reports whether a whole frame has come.
func (l *lane2) whole() bool {
	const header = 9
	b := l.in.Bytes()
	return len(b) >= header && len(b) >= header+(int(b[0])<<16|int(b[1])<<8|int(b[2]))
}

func (l *lane2) take(frame http2.Frame) error {
	id := frame.Header().StreamID
	switch frame := frame.(type) {
	case *http2.HeadersFrame:
		l.code = ""
		if _, err := l.dec.Write(frame.HeaderBlockFragment()); err != nil {
			return err
		}
		if l.code != l.want || !frame.HeadersEnded() {
			return fmt.Errorf("answered %s", l.code)
		}
		if l.answered != nil {
			l.answered()
		}
		return l.came(id, 0, frame.StreamEnded())
	case *http2.DataFrame:
		l.took += int64(frame.Length)
		if l.took > laneRoom/2 {
			if err := l.reply(func() error { return l.fr.WriteWindowUpdate(0, uint32(l.took)) }); err != nil {
				return err
			}
			l.took = 0
		}
		return l.came(id, int64(len(frame.Data())), frame.StreamEnded())
	case *http2.SettingsFrame:
		if !frame.IsAck() {
			return l.reply(func() error { return l.settle(frame) })
		}
	case *http2.PingFrame:
		if !frame.IsAck() {
			data := frame.Data
			return l.reply(func() error { return l.fr.WritePing(true, data) })
		}
	case *http2.RSTStreamFrame:
		return fmt.Errorf("an answer was broken off: %v", frame.ErrCode)
	case *http2.GoAwayFrame:
		return errBye
	}
	return nil
}

func (l *lane2) reply(write func() error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return write()
}

// came notes a part of an answer.
func (l *lane2) came(id uint32, bytes int64, end bool) error {
	l.mu.Lock()
	x, open := l.open[id]
	if !open {
		l.mu.Unlock()
		return fmt.Errorf("stream %d was answered and is not open", id)
	}
	x.bytes += bytes
	if !end {
		l.open[id] = x
		l.mu.Unlock()
		return nil
	}
	delete(l.open, id)
	err := l.catchUp()
	l.mu.Unlock()
	if err != nil {
		return err
	}
	return l.ended(x.began, x.bytes)
}
