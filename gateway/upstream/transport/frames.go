package transport

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"sync"
)

// Frame types and the parts of frames (RFC 9113, 4.1, 6 and 11).
const (
	frameHeader        = 9
	frameHeaders  byte = 0x1
	frameSettings byte = 0x4
	frameGoAway   byte = 0x7

	flagACK byte = 0x1

	// goAwayPayload is how much of the payload of GOAWAY is looked at, in bytes: the last
	// stream (RFC 9113, 6.8).
	goAwayPayload = 4
)

// preface begins what a client sends (RFC 9113, 3.4).
const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

// frames follows the frames of an HTTP/2 connection in both directions: which request
// is the last that was written, and which is the last that the server took. net/http
// reports the second by the text of errors only.
type frames struct {
	in, out frameScanner

	mu sync.Mutex
	// lastStream is the last stream of which HEADERS were written.
	lastStream uint32
	// goAway is the last stream that the server takes, if it sent GOAWAY.
	goAway       uint32
	goesAway     bool
	settings     bool // the server's SETTINGS have been received
	acknowledged bool // and its acknowledgement of the client's
	began        bool // something has been received
	http1        bool // it was HTTP/1.1
	err          error
	// ready is closed when the SETTINGS are in effect, or cannot be: err is why.
	ready    chan struct{}
	setReady func() // closes ready, once
}

func newFrames() *frames {
	ready := make(chan struct{})
	return &frames{ready: ready, setReady: sync.OnceFunc(func() { close(ready) }), out: frameScanner{skip: len(preface)}}
}

// beforeRead is called before every read of net/http, which has then processed all
// frames before.
func (f *frames) beforeRead() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.settings && f.acknowledged {
		f.setReady()
	}
}

// received is called with what has been read.
func (f *frames) received(p []byte, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.began && len(p) > 0 {
		f.began, f.http1 = true, bytes.HasPrefix(p, []byte("HTTP/"))
	}
	f.in.scan(p, func(kind, flags byte, _ uint32, payload []byte) {
		switch {
		case kind == frameSettings && flags&flagACK != 0:
			f.acknowledged = true
		case kind == frameSettings:
			f.settings = true
		case kind == frameGoAway && len(payload) == goAwayPayload:
			last := binary.BigEndian.Uint32(payload) &^ (1 << 31)
			if !f.goesAway || last < f.goAway {
				f.goesAway, f.goAway = true, last
			}
		}
	})
	if err != nil {
		if f.err = err; !f.began && err == io.EOF {
			f.err = io.ErrUnexpectedEOF
		}
		f.setReady()
	}
}

// close is called when the connection is closed.
func (f *frames) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err == nil {
		f.err = net.ErrClosed
	}
	f.setReady()
}

// sending is called with what is about to be written.
func (f *frames) sending(p []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.out.scan(p, func(kind, _ byte, stream uint32, _ []byte) {
		if kind == frameHeaders {
			f.lastStream = max(f.lastStream, stream)
		}
	})
}

// last returns the last stream of which HEADERS were written.
func (f *frames) last() uint32 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.lastStream
}

// excluded reports whether the server has said that it takes no stream after one.
func (f *frames) excluded(after uint32) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.goesAway && f.goAway <= after
}

// frameScanner finds the frames in a stream of bytes that comes in pieces.
type frameScanner struct {
	skip    int // bytes before the next frame
	header  []byte
	payload []byte
}

// scan calls frame for every frame with a complete header, and for GOAWAY the last
// stream as well.
func (s *frameScanner) scan(p []byte, frame func(kind, flags byte, stream uint32, payload []byte)) {
	for {
		n := min(s.skip, len(p))
		s.skip, p = s.skip-n, p[n:]
		if s.skip > 0 {
			return
		}
		n = min(frameHeader-len(s.header), len(p))
		s.header, p = append(s.header, p[:n]...), p[n:]
		if len(s.header) < frameHeader {
			return
		}
		length, kind := int(s.header[0])<<16|int(s.header[1])<<8|int(s.header[2]), s.header[3]
		want := 0
		if kind == frameGoAway {
			want = min(length, goAwayPayload)
		}
		n = min(want-len(s.payload), len(p))
		s.payload, p = append(s.payload, p[:n]...), p[n:]
		if len(s.payload) < want {
			return
		}
		frame(kind, s.header[4], binary.BigEndian.Uint32(s.header[5:])&^(1<<31), s.payload)
		s.skip, s.header, s.payload = length-want, s.header[:0], s.payload[:0]
	}
}
