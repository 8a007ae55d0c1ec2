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
	"weak"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico/resource"
	"portico/resource/cbor"
	"portico/resource/response"
	"portico/resource/response/render"
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

// frameKey identifies the frame of an event. Objects are immutable and shared by all
// watches, so that their identity represents their content. The pointers are weak: a frame must
// keep neither its object nor a definition in memory.
type frameKey struct {
	object weak.Pointer[resource.Object]
	kind   weak.Pointer[rest.Kind]
	form   form.Form
	media  response.Media // the form of CBOR is JSON
	event  resource.EventType
	framed bool
	packed bool
	table  tableKey // zero unless Table
}

// tableKey identifies a form of table rows. Cells may be ages, which change every second.
type tableKey struct {
	metaVersion string
	include     metav1.IncludeObjectPolicy
	second      int64 // Unix time
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

// eventNames are the types of events in frames.
var eventNames = map[resource.EventType]string{
	resource.Added: "ADDED", resource.Modified: "MODIFIED", resource.Deleted: "DELETED",
}

// append adds the frame of an event to the buffer. last: the event is the last of its batch.
func (s *stream) append(e resource.Event, last bool) error {
	if e.Object == nil {
		return s.appendBookmark(e)
	}
	if s.synced && (s.Tables == nil || s.columns) {
		return s.appendShared(e, last)
	}
	// The frame is not shared: watches read the initial state at their own pace, and only
	// the first row of a table has the column definitions.
	object, err := s.object(e.Object)
	if err != nil {
		return s.encodeError(err)
	}
	return s.frame(eventNames[e.Type], object)
}

// appendBookmark adds a bookmark if the client accepts them.
func (s *stream) appendBookmark(e resource.Event) error {
	if e.Type == resource.Synced {
		s.synced = true
	}
	if !s.Bookmarks {
		return nil
	}
	object, err := s.bookmark(e.Revision, e.Type == resource.Synced)
	if err != nil {
		return s.encodeError(err)
	}
	return s.frame("BOOKMARK", object)
}

// appendShared adds the frame that all watches of the form share. One that is large, or the
// only one, is sent without a copy: watches of slow clients would hold many copies.
func (s *stream) appendShared(e resource.Event, last bool) error {
	key := frameKey{object: weak.Make(e.Object), kind: weak.Make(s.Kind), form: s.form, media: s.Format.Media, event: e.Type, framed: s.framed, packed: s.Packed}
	if s.Tables != nil {
		key.table = tableKey{s.Tables.MetaVersion, s.Tables.Include, time.Now().Unix()}
	}
	frame, err := s.frames.Get(key, func() ([]byte, error) {
		object, err := s.object(e.Object)
		if err != nil {
			return nil, err
		}
		data, err := s.appendFrame(make([]byte, 0, len(object)+frameOverhead), eventNames[e.Type], object)
		if err == nil && s.Packed {
			data = response.AppendGzip(nil, data)
		}
		return data, err
	})
	if err != nil {
		return s.encodeError(err)
	}
	s.pack()
	s.series.count(plainSize(frame, s.Packed))
	if len(frame) < frameBytes && !(last && len(s.buffer) == 0) {
		s.getBuffer(&s.buffer)
		s.buffer = append(s.buffer, frame...)
		s.ends = append(s.ends, len(s.buffer))
		return nil
	}
	if err := s.flush(); err != nil {
		return err
	}
	return s.sent(s.send(frame, []int{len(frame)}))
}

// frame adds a frame that is not shared to the buffer.
func (s *stream) frame(name string, object []byte) (err error) {
	to := &s.buffer
	if s.Packed {
		to = &s.plain
	}
	s.getBuffer(to)
	before := len(*to)
	if *to, err = s.appendFrame(*to, name, object); err != nil {
		return s.encodeError(err)
	}
	s.series.count(len(*to) - before)
	s.ends = append(s.ends, len(*to))
	return nil
}

// appendFrame appends the frame of an event to dst.
func (s *stream) appendFrame(dst []byte, name string, object []byte) ([]byte, error) {
	if s.Format.Media != response.CBOR {
		return render.AppendFrame(dst, s.Format.Media == response.Protobuf, name, object, s.framed), nil
	}
	data, err := cbor.FromJSON(render.AppendFrame(nil, false, name, object, false))
	return append(dst, data...), err
}

// pack compresses the plain frames into the buffer as one gzip member (docs/wire.md 3.3).
// Every member is complete, so that no compressor is kept for a watch and the member of an
// event is the same for all watches; clients read the members as one stream.
func (s *stream) pack() {
	if len(s.plain) == 0 {
		return
	}
	s.getBuffer(&s.buffer)
	s.buffer = response.AppendGzip(s.buffer, s.plain)
	s.plain = s.plain[:0]
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

// getBuffer sets an empty buffer to one of the pool.
func (s *stream) getBuffer(buffer *[]byte) {
	if *buffer == nil {
		if b, ok := s.buffers.Get().(*[]byte); ok {
			*buffer = *b
		}
	}
}

// putBuffer returns a buffer to the pool, unless a large object has grown it.
func (s *stream) putBuffer(buffer *[]byte) {
	if b := (*buffer)[:0]; cap(b) > 0 && cap(b) <= 4*frameBytes {
		s.buffers.Put(&b)
	}
	*buffer = nil
}
