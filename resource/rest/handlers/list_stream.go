package handlers

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"

	"portico/resource"
)

// A list is sent in pieces: large enough that the fixed cost of a write does not matter,
// small enough for the processor's caches. Of a list whose members are encoded for this
// answer alone, the first lookahead bytes are built before any is sent.
const (
	pieceSize = 128 << 10
	lookahead = 1 << 20
)

// listEncoder makes a list member by member. It may be run several times, with
// the same result.
type listEncoder interface {
	// measured says when the list is run through once before it is sent.
	measured() measuring
	// begin writes what precedes the members; members is how many bytes item
	// will write in all, 0 if that is not known yet.
	begin(out output, members int64) error
	item(out output, o *resource.Object, first bool) error
	// end writes what follows them; empty: there were none.
	end(out output, empty bool) error
}

// measuring says when a list is measured, which finds out its length, and
// whether all of its members can be made.
type measuring uint8

const (
	// whenAtHand: unless its objects would have to be fetched twice.
	whenAtHand measuring = iota
	// never: its members are made for this answer alone, which is dear.
	never
	// always: it cannot begin without its length.
	always
)

// output takes what an encoder writes. The bytes are not kept.
type output interface {
	write(p []byte) error
	writeString(p string) error
}

// counter is an output that only counts.
type counter struct{ n int64 }

func (c *counter) write(p []byte) error       { c.n += int64(len(p)); return nil }
func (c *counter) writeString(p string) error { c.n += int64(len(p)); return nil }

// measure returns how many bytes the members have, and the whole list.
func measure(e listEncoder, list *contents) (members, whole int64, err error) {
	var c counter
	empty := true
	err = list.each(func(o *resource.Object, first bool) error {
		empty = false
		return e.item(&c, o, first)
	})
	if err != nil {
		return 0, 0, err
	}
	members = c.n
	if err := e.begin(&c, members); err != nil {
		return 0, 0, err
	}
	return members, c.n, e.end(&c, empty)
}

// encodeList writes the whole list.
func encodeList(e listEncoder, out output, members int64, list *contents) error {
	if err := e.begin(out, members); err != nil {
		return err
	}
	empty := true
	err := list.each(func(o *resource.Object, first bool) error {
		empty = false
		return e.item(out, o, first)
	})
	if err != nil {
		return err
	}
	return e.end(out, empty)
}

// stream answers with a list, built and sent a piece at a time, so that no more than a
// piece of it is in memory twice. A list that cannot be encoded is an error Status: a list
// of stored bytes is measured first, and of any other the beginning is built before it is
// sent. If the rest fails the connection is closed, so that the client notices.
func (a *API) stream(w http.ResponseWriter, r *http.Request, contentType string, e listEncoder, list *contents) error {
	out := &pieces{w: w, to: w, request: r, contentType: contentType, size: -1, hold: lookahead}
	members := int64(0)
	if m := e.measured(); m == always || m == whenAtHand && list.rest == nil {
		list.kept = map[string]*resource.List{}
		var err error
		if members, out.size, err = measure(e, list); err != nil {
			return err
		}
		out.hold = pieceSize
	}
	out.buf = a.pieces.get()
	defer func() { a.pieces.put(out.buf) }()
	defer func() {
		if out.gzip != nil {
			a.gzips.put(out.gzip)
		}
	}()
	out.compress = func() *gzip.Writer { return a.gzips.get(w) }

	err := encodeList(e, out, members, list)
	if err == nil {
		err = out.finish()
	}
	switch {
	case err == nil || errors.Is(err, errGone):
		return nil
	case !out.begun:
		return err
	}
	a.logger.Error("a list was cut short", "path", r.URL.Path, "error", err)
	panic(http.ErrAbortHandler)
}

// pieces collects what is written and sends it in pieces.
type pieces struct {
	w           http.ResponseWriter
	to          io.Writer // w, or gzip
	request     *http.Request
	contentType string
	compress    func() *gzip.Writer
	gzip        *gzip.Writer
	// size is that of the whole body; -1 while it is not known.
	size int64
	// sent is how much of it was written.
	sent int64
	// hold is how many bytes are held before the first is sent.
	hold  int
	buf   []byte
	begun bool
}

func (p *pieces) write(data []byte) error {
	if len(p.buf)+len(data) > p.hold {
		if err := p.flush(); err != nil {
			return err
		}
		if len(data) >= p.hold {
			return p.send(data)
		}
	}
	p.buf = append(p.buf, data...)
	return nil
}

func (p *pieces) writeString(data string) error {
	if len(p.buf)+len(data) > p.hold {
		return p.write([]byte(data))
	}
	p.buf = append(p.buf, data...)
	return nil
}

// flush sends what is held. Once the body has begun nothing is gained by
// holding more than a piece.
func (p *pieces) flush() error {
	if !p.begun {
		p.begin(p.size < 0 || p.size > gzipThreshold)
	}
	p.hold = pieceSize
	data := p.buf
	p.buf = p.buf[:0]
	return p.send(data)
}

func (p *pieces) send(data []byte) error {
	p.sent += int64(len(data))
	for len(data) > 0 {
		n := min(len(data), pieceSize)
		if _, err := p.to.Write(data[:n]); err != nil {
			return errGone
		}
		data = data[n:]
	}
	return nil
}

// begin sends the header. large: the body is worth compressing.
func (p *pieces) begin(large bool) {
	p.begun = true
	h := p.w.Header()
	h.Set("Content-Type", p.contentType)
	switch {
	case large && AcceptsGzip(p.request):
		h.Set("Content-Encoding", "gzip")
		h.Add("Vary", "Accept-Encoding")
		p.gzip = p.compress()
		p.to = p.gzip
	case p.size >= 0:
		h.Set("Content-Length", strconv.FormatInt(p.size, 10))
	}
	p.w.WriteHeader(http.StatusOK)
}

// finish sends the rest.
func (p *pieces) finish() error {
	if !p.begun && p.size < 0 {
		p.size = int64(len(p.buf))
	}
	if err := p.flush(); err != nil {
		return err
	}
	if p.size >= 0 && p.sent != p.size {
		return fmt.Errorf("the list was measured as %d bytes and has %d", p.size, p.sent)
	}
	if p.gzip != nil && p.gzip.Close() != nil {
		return errGone
	}
	return nil
}

// piecePool lends the buffers of pieces.
type piecePool struct{ pool sync.Pool }

func (p *piecePool) get() []byte {
	if b, ok := p.pool.Get().(*[]byte); ok {
		return *b
	}
	return make([]byte, 0, pieceSize)
}

// put takes a buffer back; one that has grown is dropped.
func (p *piecePool) put(b []byte) {
	if cap(b) > 2*pieceSize {
		return
	}
	b = b[:0]
	p.pool.Put(&b)
}
