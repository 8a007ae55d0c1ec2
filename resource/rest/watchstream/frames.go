package watchstream

import (
	"time"
	"weak"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico/resource"
	"portico/resource/cbor"
	"portico/resource/response"
	"portico/resource/response/render"
	"portico/resource/rest"
	"portico/resource/rest/form"
)

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
