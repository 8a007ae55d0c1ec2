// Package watchstream writes the events of a watch to a client: as an HTTP response body or
// as WebSocket messages, in JSON, CBOR or protobuf, as objects or tables.
//
// The frame of an event is encoded once for all watches of one form, compressed if they are,
// and sent without a copy if nothing else is pending. Frames that are pending together are
// sent in one write.
//
// Runs in: gateway, core, crd.
package watchstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"portico/resource"
	"portico/resource/response"
	"portico/resource/rest"
	"portico/resource/rest/form"
)

const (
	// frameBytes is how many bytes of frames are collected within a batch before they are
	// sent.
	frameBytes = 64 << 10
	// frameOverhead is an upper bound of what a frame adds to its object, in bytes.
	frameOverhead = 64
	// frameCache is how many bytes of frames are kept.
	frameCache = 4 << 20
	// writeGrace is how long a write to a client that does not read may block after the end
	// of the watch.
	writeGrace = 30 * time.Second
)

// Server is what the watches of an API share. Safe for concurrent use. Metrics are its
// metrics.
type Server struct {
	Metrics *Metrics
	forms   *form.Cache
	frames  *form.Shared[frameKey]
	logger  *slog.Logger
	// buffers holds *[]byte for frames. Most watches are idle and have none.
	buffers sync.Pool
}

// NewServer returns a Server that takes the forms of objects from a cache.
func NewServer(forms *form.Cache, logger *slog.Logger) *Server {
	return &Server{Metrics: newMetrics(), forms: forms, frames: form.NewShared[frameKey](frameCache), logger: logger}
}

// Options describe one watch.
type Options struct {
	Kind    *rest.Kind
	Version string
	Format  response.Format
	// Tables is set for Table.
	Tables *form.Tables
	// Bookmarks: the client accepts BOOKMARK events.
	Bookmarks bool
	// Initial: the watch begins with initial events.
	Initial bool
	// Packed requests gzip. WebSocket messages are not compressed.
	Packed bool
	// Listed, if not nil, is called when the initial events have been sent.
	Listed func()
}

// stream is one watch. It belongs to one goroutine.
type stream struct {
	Options
	*Server
	form   form.Form
	series *series

	// send writes frames, which other watches may share; ends are the offsets at which they
	// end. framed is set if frames share a byte stream, so that protobuf has length prefixes.
	send   func(frames []byte, ends []int) error
	framed bool

	// buffer holds the bytes to send next, and ends where its frames end. plain holds frames
	// of a packed stream before compression.
	buffer, plain []byte
	ends          []int
	// columns is set once a Table with column definitions was encoded.
	columns bool
	// synced is set once all initial events have been encoded.
	synced bool
}

func (s *Server) newStream(opts Options) *stream {
	return &stream{
		Options: opts, Server: s, form: form.Of(opts.Format, opts.Version), synced: !opts.Initial,
		series: s.Metrics.of(opts.Kind.GVR(opts.Version)),
	}
}

// Serve writes the events of a watch until ctx ends, the client is gone or the watcher
// returns an error, which is sent as an ERROR event unless it is io.EOF. Errors: a 400 for
// a WebSocket request on a connection that cannot be hijacked; nothing was written then.
func (s *Server) Serve(ctx context.Context, w http.ResponseWriter, r *http.Request, opts Options, watcher resource.Watcher) error {
	if isWebSocket(r) {
		opts.Packed = false
		return s.newStream(opts).serveWebSocket(ctx, w, r, watcher)
	}
	s.newStream(opts).serveHTTP(ctx, w, watcher)
	return nil
}

// Ended is a Watcher that returns Err and no events.
type Ended struct{ Err error }

func (e Ended) Next(context.Context) ([]resource.Event, error) { return nil, e.Err }
func (e Ended) Close()                                         {}

// serveHTTP writes the stream as a response body. The headers are sent at once.
func (s *stream) serveHTTP(ctx context.Context, w http.ResponseWriter, watcher resource.Watcher) {
	w.Header().Set("Content-Type", s.Format.Media.StreamType())
	if s.Packed {
		w.Header().Set("Content-Encoding", "gzip")
		w.Header().Add("Vary", "Accept-Encoding")
	}
	w.WriteHeader(http.StatusOK)
	control := http.NewResponseController(w)
	// Writers without Flush send when their buffer is full; those without deadlines block
	// while the client does not read.
	_ = control.Flush()
	if deadline, ok := ctx.Deadline(); ok && control.SetWriteDeadline(deadline.Add(writeGrace)) == nil {
		// The connection may serve further requests.
		defer func() { _ = control.SetWriteDeadline(time.Time{}) }()
	}
	s.framed = true
	s.send = func(frames []byte, _ []int) error {
		if _, err := w.Write(frames); err != nil {
			return err
		}
		_ = control.Flush()
		return nil
	}
	s.run(ctx, watcher)
}

func (s *stream) run(ctx context.Context, watcher resource.Watcher) {
	for {
		events, err := watcher.Next(ctx)
		if err == nil {
			if err = s.write(events); err == nil {
				continue
			}
		} else if ctx.Err() != nil || errors.Is(err, io.EOF) {
			return
		}
		s.fail(err)
		return
	}
}

// errGone is the error of a write to a client that is gone.
var errGone = errors.New("the client is gone")

// write sends events in one write, or several if they are large. After an error the buffer
// holds complete frames.
func (s *stream) write(events []resource.Event) error {
	s.renew()
	if err := s.prepare(events); err != nil {
		return err
	}
	for i, e := range events {
		if err := s.append(e, i == len(events)-1); err != nil {
			return err
		}
		if len(s.buffer)+len(s.plain) >= frameBytes {
			if err := s.flush(); err != nil {
				return err
			}
		}
	}
	if err := s.flush(); err != nil {
		return err
	}
	s.putBuffer(&s.buffer)
	s.putBuffer(&s.plain)
	return nil
}

// renew makes the stream send objects as the kind is now.
func (s *stream) renew() {
	if s.Kind.Current == nil {
		return
	}
	if now := s.Kind.Current(); now != s.Kind {
		s.Kind = now
		if s.Tables != nil {
			s.Tables = s.Tables.Of(now)
		}
	}
}

// prepare prepares the objects of events that are pending together.
func (s *stream) prepare(events []resource.Event) error {
	if s.Kind.Prepare == nil || s.form.Partial || len(events) < 2 {
		return nil
	}
	objects := make([]*resource.Object, 0, len(events))
	for _, e := range events {
		if e.Object != nil {
			objects = append(objects, e.Object)
		}
	}
	return s.Kind.Prepare(objects)
}

// flush sends the buffer.
func (s *stream) flush() error {
	s.pack()
	if len(s.buffer) == 0 {
		return nil
	}
	err := s.send(s.buffer, s.ends)
	s.buffer, s.ends = s.buffer[:0], s.ends[:0]
	return s.sent(err)
}

// sent handles the result of send.
func (s *stream) sent(err error) error {
	if err != nil {
		return errGone
	}
	if s.synced && s.Listed != nil {
		s.Listed()
		s.Listed = nil
	}
	return nil
}

// fail sends the complete frames and an ERROR event.
func (s *stream) fail(err error) {
	if errors.Is(err, errGone) {
		return
	}
	data, err := encodeStatus(resource.AsStatus(err), s.Format.Media)
	if err == nil {
		err = s.frame("ERROR", data)
	}
	if err != nil {
		s.logger.Error("encode the last event of a watch", "error", err)
		return
	}
	_ = s.flush() // the watch ends in any case
}

// encodeError is the error for an event that cannot be encoded.
func (s *stream) encodeError(err error) error {
	if status := apierrors.APIStatus(nil); errors.As(err, &status) {
		return err
	}
	return apierrors.NewInternalError(fmt.Errorf("unable to encode watch object %s: %w", s.Kind.GroupKind(), err))
}
