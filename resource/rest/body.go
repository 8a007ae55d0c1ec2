package rest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico/resource/bodylimit"
)

// bodyMediaTypes are the media types of request bodies other than patches.
func bodyMediaTypes() []string {
	return []string{runtime.ContentTypeJSON, runtime.ContentTypeYAML, runtime.ContentTypeProtobuf}
}

// readBody reads a request body and its media type, which is one of
// bodyMediaTypes; an empty Content-Type is JSON. A body above the limit, or with too
// many values to be decoded into target, is a 413, an unknown type a 415. An empty
// body is no error here.
func (a *API) readBody(r *http.Request, target bodylimit.Target) (data []byte, mediaType string, err error) {
	return a.readBodyInto(r, nil, target)
}

// readBodyInto is readBody into memory that is lent, if any is.
func (a *API) readBodyInto(r *http.Request, lent []byte, target bodylimit.Target) (data []byte, mediaType string, err error) {
	mediaType = runtime.ContentTypeJSON
	if contentType := r.Header.Get("Content-Type"); contentType != "" {
		// What cannot be parsed is no type that is known.
		if mediaType, _, err = mime.ParseMediaType(contentType); err != nil {
			mediaType = ""
		}
	}
	switch mediaType {
	case runtime.ContentTypeJSON, runtime.ContentTypeYAML, runtime.ContentTypeProtobuf:
	default:
		return nil, "", unsupportedMediaType(bodyMediaTypes())
	}
	if data, err = a.readInto(r, lent); err != nil {
		return data, mediaType, err
	}
	return data, mediaType, checkBody(data, mediaType, target)
}

// checkBody is the 413 for a body with more values than may be decoded, and the 400
// for one that is nested too deep for its decoder.
func checkBody(data []byte, mediaType string, target bodylimit.Target) error {
	switch _, err := bodylimit.Measure(data, mediaType, target); {
	case bodylimit.TooLarge(err):
		return apierrors.NewRequestEntityTooLargeError(err.Error())
	case err != nil:
		return apierrors.NewBadRequest(err.Error())
	}
	return nil
}

// target is what bodies of the kind are decoded into, in a version.
func (k *Kind) target(version string) bodylimit.Target {
	if k.typed(version) {
		return bodylimit.Structs
	}
	return bodylimit.Maps
}

// readLimited reads the whole body; more than the limit is a 413, known from
// Content-Length before a byte is read where the client sends one.
func (a *API) readLimited(r *http.Request) ([]byte, error) { return a.readInto(r, nil) }

// readInto is readLimited into memory that is lent, if any is.
func (a *API) readInto(r *http.Request, lent []byte) ([]byte, error) {
	if r.Body == nil {
		return nil, nil
	}
	if r.ContentLength > a.maxBody {
		return nil, a.refuseBody(r)
	}
	data, err := readAll(io.LimitReader(r.Body, a.maxBody+1), r.ContentLength, lent)
	if err != nil {
		var tooLarge *http.MaxBytesError
		if errors.As(err, &tooLarge) {
			return nil, bodyTooLarge(tooLarge.Limit)
		}
		return nil, apierrors.NewBadRequest(fmt.Sprintf("read request body: %v", err))
	}
	if int64(len(data)) > a.maxBody {
		return nil, a.refuseBody(r)
	}
	return data, nil
}

// eagerBody is how many bytes are set aside for a body because its sender says
// that there will be so many; for more, only when they have come.
const eagerBody = 64 << 10

// pooledBody is the size, in bytes, of buffers that bodies share. Most bodies are
// about as large as the objects that are kept of them: if each had memory of its
// own, what is kept would lie between holes.
const pooledBody = 16 << 10

// bodyPool lends memory to bodies. The zero value is ready; safe for concurrent
// use.
type bodyPool struct{ pool sync.Pool }

// lend returns memory for a body that is said to be length bytes (-1: nobody
// knows), or nil if it is too large or its size unknown.
func (p *bodyPool) lend(length int64) []byte {
	if length < 0 || length >= pooledBody {
		return nil
	}
	if b, ok := p.pool.Get().(*[pooledBody]byte); ok {
		return b[:0]
	}
	return make([]byte, 0, pooledBody)
}

// put takes memory back that nobody has any part of. Other memory is left alone.
func (p *bodyPool) put(body []byte) {
	if cap(body) == pooledBody {
		p.pool.Put((*[pooledBody]byte)(body[:pooledBody]))
	}
}

// readAll reads all that r has, which is said to be length bytes (-1: nobody
// knows), into memory that is lent, if any is.
func readAll(r io.Reader, length int64, lent []byte) ([]byte, error) {
	data := lent
	switch {
	case data != nil:
	case length < 0:
		return io.ReadAll(r)
	default:
		// One byte more than there is, so that the end is found without growing.
		data = make([]byte, 0, min(length, eagerBody)+1)
	}
	for {
		n, err := r.Read(data[len(data):cap(data)])
		data = data[:len(data)+n]
		switch {
		case errors.Is(err, io.EOF):
			return data, nil
		case err != nil:
			return data, err
		case len(data) == cap(data):
			data = slices.Grow(data, len(data))
		}
	}
}

// drainBody is how much of a body that is too large is read and dropped before
// it is refused. A sender that is cut off in the middle of sending, such as a
// reverse proxy, often loses the answer with the connection.
const drainBody = 32 << 20

// refuseBody is the 413, after the rest of the body was let through.
func (a *API) refuseBody(r *http.Request) error {
	// What cannot be read is not needed.
	_, _ = io.CopyN(io.Discard, r.Body, drainBody)
	return bodyTooLarge(a.maxBody)
}

func bodyTooLarge(limit int64) error {
	return apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("limit is %d", limit))
}

// bareMediaType is a Content-Type without its parameters, in lower case.
func bareMediaType(contentType string) string {
	bare, _, _ := strings.Cut(contentType, ";")
	return strings.ToLower(strings.TrimSpace(bare))
}

// unsupportedMediaType is the 415 that names what would have been accepted.
func unsupportedMediaType(accepted []string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure,
		Code:   http.StatusUnsupportedMediaType,
		Reason: metav1.StatusReasonUnsupportedMediaType,
		Message: "the body of the request was in an unknown format - accepted media types include: " +
			strings.Join(accepted, ", "),
	}}
}

// maxComplaints is how many fields that are there twice are named of a YAML body,
// as its decoder has it for JSON.
const maxComplaints = 100

// boundComplaint cuts a complaint of the YAML decoder, which has a line for each
// field that is there twice; others stay as they are.
func boundComplaint(err error) error {
	lines := strings.Split(err.Error(), "\n")
	if len(lines) <= maxComplaints+1 || !strings.HasSuffix(lines[0], yamlHeading) {
		return err
	}
	return fmt.Errorf("%s\n  and %d more, which are left out", strings.Join(lines[:maxComplaints+1], "\n"), len(lines)-maxComplaints-1)
}

// yamlHeading is the first line of what the YAML decoder complains of.
const yamlHeading = "yaml: unmarshal errors:"

// decodeBody decodes a request body as gvk (or as what it says it is) into the
// kind's hub form. By the field validation asked for, unknown and duplicate
// fields are refused (400), warned of, or ignored. Defaults are not filled in.
func (a *API) decodeBody(ctx context.Context, codec Codec, gvk schema.GroupVersionKind, data []byte, mediaType, validation string) (runtime.Object, error) {
	obj, strictErrs, err := codec.Decode(data, mediaType, gvk, validation != metav1.FieldValidationIgnore)
	if err != nil {
		return nil, undecodable(gvk, err)
	}
	for i, err := range strictErrs {
		strictErrs[i] = boundComplaint(err)
	}
	switch {
	case len(strictErrs) == 0:
	case validation == metav1.FieldValidationStrict:
		return nil, undecodable(gvk, runtime.NewStrictDecodingError(strictErrs))
	case validation == metav1.FieldValidationWarn:
		a.warnStrict(ctx, strictErrs)
	}
	return obj, nil
}

// undecodable is the 400 for a body that is no gvk; a StatusError of the codec
// passes as it is.
func undecodable(gvk schema.GroupVersionKind, err error) error {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		return err
	}
	return apierrors.NewBadRequest(fmt.Sprintf("%s in version %q cannot be handled as a %s: %v", gvk.Kind, gvk.Version, gvk.Kind, err))
}

// warnStrict sends one warning per unknown or duplicate field.
func (a *API) warnStrict(ctx context.Context, errs []error) {
	for _, err := range errs {
		for _, text := range strictWarnings(err.Error()) {
			a.warn(ctx, text)
		}
	}
}

// strictWarnings cuts a complaint of the YAML decoder, which is several lines
// under one heading, into one text per line.
func strictWarnings(text string) []string {
	rest, ok := strings.CutPrefix(strings.TrimPrefix(text, "error converting YAML to JSON: "), yamlHeading+"\n")
	if !ok {
		return []string{text}
	}
	lines := strings.Split(rest, "\n")
	for i, line := range lines {
		lines[i] = strings.TrimSpace(line)
	}
	return lines
}
