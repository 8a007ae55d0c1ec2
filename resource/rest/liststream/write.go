package liststream

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"

	"portico/resource"
	"portico/resource/response"
)

const (
	// pieceSize is how many bytes are sent at once: enough that the fixed cost of a write
	// does not matter, and little enough for the caches of the processor.
	pieceSize = 128 << 10
	// lookahead is how many bytes of a list that is not measured are encoded before the
	// header is sent.
	lookahead = 1 << 20
)

// encoder encodes a list item by item. It may run several times with the same result.
type encoder interface {
	// measure reports whether the list has to be encoded once before it is sent, for its
	// length and to find objects that cannot be encoded. parts: that would fetch objects
	// twice.
	measure(parts bool) bool
	// begin writes what precedes the items. items is their length in bytes if the list was
	// measured, otherwise 0.
	begin(out output, items int64) error
	item(out output, o *resource.Object, first bool) error
	// end writes what follows the items.
	end(out output, empty bool) error
}

// output receives the bytes of an encoder, which must not be kept.
type output interface {
	write(p []byte) error
	writeString(p string) error
}

// counter is an output that only counts bytes.
type counter int64

func (c *counter) write(p []byte) error       { *c += counter(len(p)); return nil }
func (c *counter) writeString(p string) error { *c += counter(len(p)); return nil }

// encodeItems encodes the items and reports whether there were none.
func encodeItems(e encoder, out output, list *Contents) (empty bool, err error) {
	empty = true
	err = list.each(func(o *resource.Object, index int64) error {
		empty = false
		return e.item(out, o, index == 0)
	})
	return empty, err
}

// measure returns the length in bytes of the items and of the whole list.
func measure(e encoder, list *Contents) (items, whole int64, err error) {
	var c counter
	empty, err := encodeItems(e, &c, list)
	if err != nil {
		return 0, 0, err
	}
	items = int64(c)
	if err := e.begin(&c, items); err != nil {
		return 0, 0, err
	}
	err = e.end(&c, empty)
	return items, int64(c), err
}

// encode encodes the whole list.
func encode(e encoder, out output, items int64, list *Contents) error {
	if err := e.begin(out, items); err != nil {
		return err
	}
	empty, err := encodeItems(e, out, list)
	if err != nil {
		return err
	}
	return e.end(out, empty)
}

// errGone is the error of a write to a client that is gone, and of a list whose request has
// ended: what answers requests that take too long answers it.
var errGone = errors.New("the client is gone")

func send(w http.ResponseWriter, r *http.Request, opts Options, e encoder, list *Contents) error {
	out := &pieces{w: w, to: w, request: r, contentType: opts.Format.Media.ContentType(), size: -1, hold: lookahead}
	items := int64(0)
	if e.measure(list.Rest != nil) {
		list.kept = map[string]*resource.List{}
		var err error
		if items, out.size, err = measure(e, list); errors.Is(err, errGone) {
			return nil
		} else if err != nil {
			return err
		}
		out.hold = pieceSize
	}
	out.buf = *buffers.Get().(*[]byte)
	defer out.release()

	err := encode(e, out, items, list)
	if err == nil {
		err = out.finish()
	}
	switch {
	case err == nil || errors.Is(err, errGone):
		return nil
	case !out.begun:
		return err
	}
	opts.Logger.Error("a list was sent incompletely", "path", r.URL.Path, "error", err)
	panic(http.ErrAbortHandler)
}

// buffers holds the buffers of pieces.
var buffers = sync.Pool{New: func() any { b := make([]byte, 0, pieceSize); return &b }}

// pieces is an output that sends the list in pieces.
type pieces struct {
	w           http.ResponseWriter
	to          io.Writer // w or gzip
	request     *http.Request
	contentType string
	gzip        *gzip.Writer
	// size is the length of the body in bytes; -1: unknown.
	size int64
	// sent is how many bytes of it were written.
	sent int64
	// hold is how many bytes are held before they are sent.
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

// flush sends the bytes held, after the header. From then on no more than a piece is held.
func (p *pieces) flush() error {
	if !p.begun {
		p.begin()
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

// begin sends the header. A list of unknown length is large.
func (p *pieces) begin() {
	p.begun = true
	h := p.w.Header()
	h.Set("Content-Type", p.contentType)
	large := p.size < 0 || p.size > response.GzipThreshold
	switch {
	case large && response.AcceptsGzip(p.request):
		h.Set("Content-Encoding", "gzip")
		h.Add("Vary", "Accept-Encoding")
		p.gzip = response.NewGzip(p.w)
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

// release returns the buffer, unless it has grown, and the compressor to their pools.
func (p *pieces) release() {
	if b := p.buf[:0]; cap(b) <= 2*pieceSize {
		buffers.Put(&b)
	}
	if p.gzip != nil {
		response.PutGzip(p.gzip)
	}
}
