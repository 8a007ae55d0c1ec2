package handlers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"portico/resource"
	"portico/resource/rest"
	"portico/resource/rest/render"
)

// stream writes the events of one watch. It belongs to one goroutine.
type stream struct {
	api     *API
	kind    *rest.Kind
	version string
	format  format
	shape   form
	tables  *tables // nil unless Table
	// bookmarks: the client understands them.
	bookmarks bool

	// send writes frames, which are others' too and must not be changed; ends
	// are where each of them ends. framed has protobuf frames carry their
	// length.
	send   func(frames []byte, ends []int) error
	framed bool
	// packed has everything compressed (gzip.go).
	packed bool

	// buffer holds what is to be sent next, ends where its frames end. Of a
	// packed stream it holds packed bytes, and plain what is yet to be packed.
	buffer, plain []byte
	ends          []int
	// columns says that a Table was sent with them.
	columns bool
	// synced says that no initial events are to come.
	synced bool

	// tally counts the contents of the buffer, for series. listed is called once the
	// initial state has been sent; it may be nil.
	tally  tally
	series *watchSeries
	listed func()
}

func newStream(a *API, act *resource.Action, res *rest.Resource, f format, opts resource.WatchOptions) *stream {
	return &stream{
		api: a, kind: res.Kind, version: act.Version, format: f, shape: formOf(f, act.Version),
		bookmarks: opts.Bookmarks, synced: !opts.InitialEvents,
		series: a.watches.of(res.GVR(act.Version)),
	}
}

// run copies events until there are no more.
func (s *stream) run(ctx context.Context, watcher resource.Watcher) {
	for {
		events, err := watcher.Next(ctx)
		if err == nil {
			if err = s.write(events); err == nil {
				continue
			}
		} else if ctx.Err() != nil || errors.Is(err, io.EOF) {
			return // a watch that is over ends without a word
		}
		s.fail(err)
		return
	}
}

// errGone says that the client cannot be written to.
var errGone = errors.New("the client is gone")

// write sends events as one piece, or as several where they are large. After an
// error the buffer holds the frames that are complete.
func (s *stream) write(events []resource.Event) error {
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
	s.api.buffers.put(s.buffer)
	s.api.buffers.put(s.plain)
	s.buffer, s.plain = nil, nil
	return nil
}

// flush sends what is in the buffer.
func (s *stream) flush() error {
	s.pack()
	if len(s.buffer) == 0 {
		return nil
	}
	err := s.send(s.buffer, s.ends)
	s.buffer, s.ends = s.buffer[:0], s.ends[:0]
	if err != nil {
		return errGone
	}
	s.sent()
	return nil
}

// sent counts what was just sent.
func (s *stream) sent() {
	s.tally.addTo(s.series)
	if s.synced && s.listed != nil {
		s.listed()
		s.listed = nil
	}
}

// append adds the frame of one event to the buffer. What is the last of its
// batch and has nothing before it is sent as it stands.
func (s *stream) append(e resource.Event, last bool) error {
	var name string
	switch e.Type {
	case resource.Added:
		name = "ADDED"
	case resource.Modified:
		name = "MODIFIED"
	case resource.Deleted:
		name = "DELETED"
	default:
		return s.appendBookmark(e)
	}
	if s.synced && (s.tables == nil || s.columns) {
		return s.appendShared(name, e.Object, last)
	}
	// The frame is not shared: of the initial state each watch has its own position, and
	// only the first row of a table has the columns.
	object, err := s.object(e.Object)
	if err != nil {
		return watchError(err, s.kind)
	}
	s.frame(name, object)
	return nil
}

// appendBookmark adds a bookmark if the client asked for bookmarks.
func (s *stream) appendBookmark(e resource.Event) error {
	if e.Type == resource.Synced {
		s.synced = true
	}
	if !s.bookmarks {
		return nil
	}
	object, err := s.bookmark(e.Revision, e.Type == resource.Synced)
	if err != nil {
		return watchError(err, s.kind)
	}
	s.frame("BOOKMARK", object)
	return nil
}

// object returns an event's object in the form of the stream.
func (s *stream) object(o *resource.Object) ([]byte, error) {
	if s.tables != nil {
		return s.table(o)
	}
	return s.api.render(s.kind, o, s.shape)
}

// appendShared adds the frame that all watchers of the form are sent. A large
// one is not copied: 300 copies for clients that read slowly are as many too
// many.
func (s *stream) appendShared(name string, o *resource.Object, last bool) error {
	key := frameKey{object: o, kind: s.kind, form: s.shape, event: name, framed: s.framed, packed: s.packed}
	if s.tables != nil {
		key.table = tableKey{s.tables.metaVersion, s.tables.include, time.Now().Unix()}
	}
	f := s.api.frames.get(key, func() ([]byte, error) {
		object, err := s.object(o)
		if err != nil {
			return nil, err
		}
		data := render.AppendFrame(make([]byte, 0, len(object)+frameOverhead), s.format.media == mediaProtobuf, name, object, s.framed)
		if s.packed {
			data = s.api.gzips.appendMember(nil, data)
		}
		return data, nil
	})
	if f.err != nil {
		return watchError(f.err, s.kind)
	}
	s.pack()
	s.tally.add(plainSize(f.data, s.packed))
	if len(f.data) < frameBytes && !(last && len(s.buffer) == 0) {
		s.lend(&s.buffer)
		s.buffer = append(s.buffer, f.data...)
		s.ends = append(s.ends, len(s.buffer))
		return nil
	}
	if err := s.flush(); err != nil {
		return err
	}
	s.ends = append(s.ends[:0], len(f.data))
	if s.send(f.data, s.ends) != nil {
		return errGone
	}
	s.ends = s.ends[:0]
	s.sent()
	return nil
}

// frame adds one frame to the buffer.
func (s *stream) frame(name string, object []byte) {
	to := &s.buffer
	if s.packed {
		to = &s.plain
	}
	s.lend(to)
	before := len(*to)
	*to = render.AppendFrame(*to, s.format.media == mediaProtobuf, name, object, s.framed)
	s.tally.add(len(*to) - before)
	s.ends = append(s.ends, len(*to))
}

// pack moves what is yet to be packed into the buffer.
func (s *stream) pack() {
	if len(s.plain) == 0 {
		return
	}
	s.lend(&s.buffer)
	s.buffer = s.api.gzips.appendMember(s.buffer, s.plain)
	s.plain = s.plain[:0]
}

// lend has the stream borrow a buffer; most watches are idle and have none.
func (s *stream) lend(buffer *[]byte) {
	if *buffer == nil {
		*buffer = s.api.buffers.get()
	}
}

// watchError is what a client reads when an event cannot be encoded.
func watchError(err error, k *rest.Kind) error {
	if status := apierrors.APIStatus(nil); errors.As(err, &status) {
		return err
	}
	return apierrors.NewInternalError(fmt.Errorf("unable to encode watch object %s: %w", k.GroupKind(), err))
}

// fail sends what is complete, then an ERROR event, the last of the stream.
func (s *stream) fail(err error) {
	if errors.Is(err, errGone) {
		return
	}
	data, err := encodeStatus(resource.AsStatus(err), s.format.media)
	if err != nil {
		s.api.logger.Error("encoding the end of a watch failed", "error", err)
		return
	}
	s.frame("ERROR", data)
	_ = s.flush() // it was the last thing to say
}

const (
	// frameBytes is how many bytes of frames are collected before they are sent
	// within a batch.
	frameBytes = 64 << 10
	// frameOverhead is more than what a frame adds to its object.
	frameOverhead = 64
)

// bufferPool lends the buffers in which frames are put together.
type bufferPool struct{ pool sync.Pool }

func (p *bufferPool) get() []byte {
	if b, ok := p.pool.Get().(*[]byte); ok {
		return *b
	}
	return nil
}

// put takes a buffer back; one that a large object has blown up is dropped.
func (p *bufferPool) put(b []byte) {
	if cap(b) == 0 || cap(b) > 4*frameBytes {
		return
	}
	b = b[:0]
	p.pool.Put(&b)
}
