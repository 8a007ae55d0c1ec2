package handlers

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"

	"portico/resource"
	"portico/resource/bodylimit"
	"portico/resource/rest"
	"portico/resource/rest/body"
)

// requestBody is the body of a request, with the memory that it may take.
type requestBody struct {
	data      []byte
	mediaType string
	held      body.Hold
}

// close gives the memory back: what is decoded of the body is no longer used.
func (b *requestBody) close() { b.held.Release() }

// readBody reads a request body of one of bodyMediaTypes; an empty Content-Type is
// JSON. A body above the limit, or with too many
// values to be decoded into target, is a 413, an unknown type a 415, one for which
// there is no memory a 429. An empty body is no error here. The caller closes it.
func (a *API) readBody(r *http.Request, target bodylimit.Target) (*requestBody, error) {
	mediaType := runtime.ContentTypeJSON
	if contentType := r.Header.Get("Content-Type"); contentType != "" {
		var err error
		// What cannot be parsed is no type that is known.
		if mediaType, _, err = mime.ParseMediaType(contentType); err != nil {
			mediaType = ""
		}
	}
	if mediaType == "" || !slices.Contains(bodyMediaTypes(), mediaType) {
		return nil, resource.UnsupportedMediaType(bodyMediaTypes())
	}
	return a.readBodyAs(r, mediaType, target)
}

// readBodyAs is readBody for a body of that media type, of whatever Content-Type.
func (a *API) readBodyAs(r *http.Request, mediaType string, target bodylimit.Target) (*requestBody, error) {
	var user *resource.User
	if act := resource.ActionFrom(r.Context()); act != nil {
		user = act.User
	}
	data, err := a.read(r, user)
	if err != nil {
		return nil, err
	}
	size, err := measureBody(data, mediaType, target)
	if err != nil {
		return nil, err
	}
	b := &requestBody{data: data, mediaType: mediaType, held: a.decoding.Hold(user)}
	if err := b.held.Grow(int(size.Memory()) - body.FreeMemory); err != nil {
		return nil, err
	}
	return b, nil
}

// measureBody is the 413 for a body with more values than may be decoded, and the 400
// for one that is nested too deep for its decoder.
func measureBody(data []byte, mediaType string, target bodylimit.Target) (bodylimit.Size, error) {
	size, err := bodylimit.Measure(data, mediaType, target)
	switch {
	case bodylimit.TooLarge(err):
		err = apierrors.NewRequestEntityTooLargeError(err.Error())
	case err != nil:
		err = apierrors.NewBadRequest(err.Error())
	}
	return size, err
}

// bodyTarget returns what bodies of a version of the kind are decoded into.
func bodyTarget(k *rest.Kind, version string) bodylimit.Target {
	if k.HasGoType(version) {
		return bodylimit.Structs
	}
	return bodylimit.Maps
}

// read reads the whole body. More than the limit is a
// 413, known from Content-Length before a byte is read where the client sends one;
// a 429 is that bodies of other requests take all the memory there is for reading.
func (a *API) read(r *http.Request, user *resource.User) ([]byte, error) {
	if r.Body == nil {
		return nil, nil
	}
	if r.ContentLength > a.maxBody {
		return nil, a.refuseBody(r, bodyTooLarge(a.maxBody))
	}
	held := a.reading.Hold(user)
	defer held.Release()
	data, err := body.ReadAll(io.LimitReader(r.Body, a.maxBody+1), r.ContentLength, held.Grow)
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return nil, bodyTooLarge(tooLarge.Limit)
	case apierrors.IsTooManyRequests(err):
		return nil, a.refuseBody(r, err)
	case err != nil:
		return nil, apierrors.NewBadRequest(fmt.Sprintf("read request body: %v", err))
	case int64(len(data)) > a.maxBody:
		return nil, a.refuseBody(r, bodyTooLarge(a.maxBody))
	}
	return data, nil
}
