package response

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico/resource"
	"portico/resource/cbor"
	"portico/resource/response/render"
)

// GzipThreshold is the size in bytes above which bodies are compressed for clients that
// accept gzip (docs/wire.md 3.3).
const GzipThreshold = 128 << 10

// joinSize is the size in bytes up to which a body and its line feed are joined, so that
// they take one write.
const joinSize = 128 << 10

// Body is a complete body: bytes that other responses may share, and a line feed after them
// if they do not end with one.
type Body struct {
	data     []byte
	lineFeed bool
}

// Len returns the length of the body in bytes.
func (b Body) Len() int {
	if b.lineFeed {
		return len(b.data) + 1
	}
	return len(b.data)
}

// Finish converts the JSON of an object to the format: YAML, CBOR, indented, or as it is with a
// line feed. Protobuf is not changed, and JSON that would become too long is not indented
// (render.MaxGrowth).
func Finish(data []byte, f Format) (Body, error) {
	switch {
	case f.Media == Protobuf:
		return Body{data: data}, nil
	case f.Media == YAML:
		data, err := render.YAML(data)
		return Body{data: data}, err
	case f.Media == CBOR:
		data, err := cbor.FromJSON(data)
		return Body{data: data}, err
	case f.Pretty:
		var buf bytes.Buffer
		buf.Grow(len(data) * 2)
		if err := render.AppendIndented(&buf, data, ""); err != nil {
			return Body{}, err
		}
		data = buf.Bytes()
	}
	return Body{data: data, lineFeed: !bytes.HasSuffix(data, []byte("\n"))}, nil
}

// WriteBody writes a complete body, compressed if it is large and the client accepts gzip.
func WriteBody(w http.ResponseWriter, r *http.Request, code int, contentType string, data []byte) {
	Write(w, r, code, contentType, Body{data: data})
}

// Write is WriteBody for a Body. Write errors are dropped: the client is gone.
func Write(w http.ResponseWriter, r *http.Request, code int, contentType string, b Body) {
	h := w.Header()
	h.Set("Content-Type", contentType)
	if b.Len() > GzipThreshold && r.Method != http.MethodHead && AcceptsGzip(r) {
		h.Set("Content-Encoding", "gzip")
		h.Add("Vary", "Accept-Encoding")
		w.WriteHeader(code)
		z := NewGzip(w)
		defer PutGzip(z)
		b.writeTo(z)
		_ = z.Close()
		return
	}
	h.Set("Content-Length", strconv.Itoa(b.Len()))
	w.WriteHeader(code)
	if !b.lineFeed || len(b.data) > joinSize {
		b.writeTo(w)
		return
	}
	joined := joinBuffers.Get().(*bytes.Buffer)
	defer joinBuffers.Put(joined)
	joined.Reset()
	b.writeTo(joined)
	_, _ = w.Write(joined.Bytes())
}

// joinBuffers holds buffers of at most joinSize bytes and a line feed, rounded up.
var joinBuffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

func (b Body) writeTo(w io.Writer) {
	if _, err := w.Write(b.data); err == nil && b.lineFeed {
		_, _ = io.WriteString(w, "\n")
	}
}

// WriteObject writes an object that is not stored as gvk in the negotiated format: JSON,
// YAML, protobuf if its type has that, or one of extra. A request that accepts none of them is a 406. A
// Status is also written where the request accepts a transform only, and its gvk is ignored.
func WriteObject(w http.ResponseWriter, r *http.Request, code int, obj runtime.Object, gvk schema.GroupVersionKind, extra ...Media) {
	offer := OfferObject(obj, extra...)
	if _, ok := obj.(*metav1.Status); ok {
		gvk = StatusGVK()
		if _, err := Negotiate(r, offer); err != nil {
			offer.Transforms = true
		}
	}
	f, err := Negotiate(r, offer)
	if err != nil {
		WriteStatus(w, r, err)
		return
	}
	obj = obj.DeepCopyObject()
	obj.GetObjectKind().SetGroupVersionKind(gvk)
	b, err := encodeObject(obj, gvk, f)
	if err != nil {
		WriteStatus(w, r, err)
		return
	}
	Write(w, r, code, f.Media.ContentType(), b)
}

// WriteStatus writes err as a Status in the negotiated format, one of extra included, or as
// indented JSON if the request accepts none. It sets Retry-After from retryAfterSeconds.
func WriteStatus(w http.ResponseWriter, r *http.Request, err error, extra ...Media) {
	status := resource.AsStatus(err)
	f, negotiation := Negotiate(r, OfferObject(status, extra...))
	if negotiation != nil {
		f = Format{Pretty: true}
	}
	b, encoding := encodeObject(status, StatusGVK(), f)
	if encoding != nil {
		// A Status is made of strings and numbers: it can always be encoded.
		http.Error(w, status.Message, int(status.Code))
		return
	}
	h := w.Header()
	h.Set("X-Content-Type-Options", "nosniff")
	if d := status.Details; d != nil && d.RetryAfterSeconds > 0 {
		h.Set("Retry-After", strconv.Itoa(int(d.RetryAfterSeconds)))
	}
	Write(w, r, int(status.Code), f.Media.ContentType(), b)
}

// StatusGVK is the kind of a Status in responses: v1, although its Go type belongs to
// meta.k8s.io/v1.
func StatusGVK() schema.GroupVersionKind {
	return schema.GroupVersionKind{Version: "v1", Kind: "Status"}
}

// encodeObject encodes an object with apiVersion and kind set.
func encodeObject(obj runtime.Object, gvk schema.GroupVersionKind, f Format) (Body, error) {
	if f.Media == Protobuf {
		m := obj.(runtime.ProtobufMarshaller) // OfferObject has checked it
		raw := make([]byte, m.Size())
		n, err := m.MarshalTo(raw)
		if err != nil {
			return Body{}, err
		}
		return Body{data: render.Envelope(gvk, raw[:n])}, nil
	}
	data, err := json.Marshal(obj)
	if err != nil {
		return Body{}, err
	}
	return Finish(data, f)
}

// AcceptsGzip reports whether the client accepts gzip.
func AcceptsGzip(r *http.Request) bool {
	for _, header := range r.Header.Values("Accept-Encoding") {
		for token := range strings.SplitSeq(header, ",") {
			name, params, _ := strings.Cut(token, ";")
			if strings.TrimSpace(name) != "gzip" {
				continue
			}
			q, found := strings.CutPrefix(strings.ReplaceAll(params, " ", ""), "q=")
			if !found {
				return true
			}
			quality, err := strconv.ParseFloat(q, 64)
			return err == nil && quality > 0
		}
	}
	return false
}

// gzipLevel compresses much better than the fastest level in a fraction of the time of the
// default.
const gzipLevel = 4

// gzipWriters holds idle compressors, which are large.
var gzipWriters = sync.Pool{New: func() any {
	z, _ := gzip.NewWriterLevel(io.Discard, gzipLevel) // the level is valid
	return z
}}

// NewGzip returns a compressor that writes to w. The caller closes it and returns it with
// PutGzip.
func NewGzip(w io.Writer) *gzip.Writer {
	z := gzipWriters.Get().(*gzip.Writer)
	z.Reset(w)
	return z
}

// PutGzip makes a compressor available for reuse.
func PutGzip(z *gzip.Writer) {
	z.Reset(io.Discard) // drop the reference to its writer
	gzipWriters.Put(z)
}

// AppendGzip appends data to dst as one gzip member. A reader can decompress all of it
// before the next member arrives.
func AppendGzip(dst, data []byte) []byte {
	to := bytes.NewBuffer(dst)
	z := NewGzip(to)
	defer PutGzip(z)
	// A buffer returns no errors.
	_, _ = z.Write(data)
	_ = z.Flush()
	_ = z.Close()
	return to.Bytes()
}
