package handlers

import (
	"context"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico/resource"
	"portico/resource/bodylimit"
	"portico/resource/cbor"
	"portico/resource/rest"
	"portico/resource/rest/body"
)

// requestBody is the body of a request with the memory reserved for it.
type requestBody struct {
	data      []byte
	mediaType string
	held      body.Hold
}

// close releases the memory, when the decoded body is no longer used.
func (b *requestBody) close() { b.held.Release() }

// readBody reads a request body of one of bodyMediaTypes; an empty Content-Type is JSON. The
// caller closes the result. Errors: a 413 for a body above the limit or with too many values
// to be decoded into target, a 415 for an unknown type, a 429 if there is no memory for it.
// An empty body is not an error.
func (a *API) readBody(r *http.Request, target bodylimit.Target) (*requestBody, error) {
	mediaType := runtime.ContentTypeJSON
	if contentType := r.Header.Get("Content-Type"); contentType != "" {
		var err error
		// A Content-Type that cannot be parsed is an unknown type.
		if mediaType, _, err = mime.ParseMediaType(contentType); err != nil {
			mediaType = ""
		}
	}
	if accepted := a.bodyMediaTypes(); mediaType == "" || !slices.Contains(accepted, mediaType) {
		return nil, resource.UnsupportedMediaType(accepted)
	}
	return a.readBodyAs(r, mediaType, target)
}

// readBodyAs is readBody for a body of that media type; the Content-Type is ignored. CBOR is
// converted to JSON if it is served.
func (a *API) readBodyAs(r *http.Request, mediaType string, target bodylimit.Target) (*requestBody, error) {
	act := resource.ActionFrom(r.Context())
	data, err := a.read(r, act)
	if err != nil {
		return nil, err
	}
	size, err := measureBody(data, mediaType, target)
	if err != nil {
		return nil, err
	}
	b := &requestBody{data: data, mediaType: mediaType, held: a.decoding.Hold(act)}
	if err := b.held.Grow(int(size.Memory()) - body.FreeMemory); err != nil {
		return nil, err
	}
	if a.cfg.CBOR && cbor.IsMediaType(mediaType) && len(data) > 0 {
		b.mediaType = runtime.ContentTypeJSON
		if b.data, err = cbor.ToJSON(data); err != nil {
			b.close()
			return nil, apierrors.NewBadRequest(fmt.Sprintf("decode CBOR: %v", err))
		}
	}
	return b, nil
}

// measureBody returns the size of a body when it is decoded. Errors: a 413 for too many
// values, a 400 for one that is nested too deeply for its decoder.
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

// read reads the whole body. Errors: those of body.Read.
func (a *API) read(r *http.Request, act *resource.Action) ([]byte, error) {
	held := a.reading.Hold(act)
	defer held.Release()
	return body.Read(r, &held)
}

// bodyMediaTypes returns the media types of request bodies other than patches.
func (a *API) bodyMediaTypes() []string {
	accepted := []string{runtime.ContentTypeJSON, runtime.ContentTypeYAML, runtime.ContentTypeProtobuf}
	if a.cfg.CBOR {
		accepted = append(accepted, runtime.ContentTypeCBOR)
	}
	return accepted
}

// bareMediaType returns a Content-Type without parameters, in lower case.
func bareMediaType(contentType string) string {
	bare, _, _ := strings.Cut(contentType, ";")
	return strings.ToLower(strings.TrimSpace(bare))
}

// maxDuplicates is how many duplicate fields the error for a YAML body lists; the decoder has
// the same bound for JSON.
const maxDuplicates = 100

// boundDuplicates shortens an error of the YAML decoder, which has a line for each duplicate
// field.
func boundDuplicates(err error) error {
	lines := strings.Split(err.Error(), "\n")
	if len(lines) <= maxDuplicates+1 || !strings.HasSuffix(lines[0], yamlHeading) {
		return err
	}
	return fmt.Errorf("%s\n  and %d more", strings.Join(lines[:maxDuplicates+1], "\n"), len(lines)-maxDuplicates-1)
}

// yamlHeading is the first line of errors of the YAML decoder.
const yamlHeading = "yaml: unmarshal errors:"

// decodeBody decodes a request body, of the kind gvk unless it says otherwise, into the hub
// form without defaults. The field validation decides whether unknown and duplicate fields
// are a 400, warnings or ignored.
func (a *API) decodeBody(ctx context.Context, codec rest.Codec, gvk schema.GroupVersionKind, body *requestBody, validation string) (runtime.Object, error) {
	obj, strictErrs, err := codec.Decode(body.data, body.mediaType, gvk, validation != metav1.FieldValidationIgnore)
	if err != nil {
		return nil, undecodable(gvk, err)
	}
	for i, err := range strictErrs {
		strictErrs[i] = boundDuplicates(err)
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

// undecodable is the 400 for a body that is not a gvk; a StatusError of the codec is returned
// as it is.
func undecodable(gvk schema.GroupVersionKind, err error) error {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		return err
	}
	return apierrors.NewBadRequest(fmt.Sprintf("%s in version %q cannot be handled as a %s: %v", gvk.Kind, gvk.Version, gvk.Kind, err))
}

// warnStrict sends a warning for each unknown or duplicate field.
func (a *API) warnStrict(ctx context.Context, errs []error) {
	for _, err := range errs {
		for _, text := range strictWarnings(err.Error()) {
			a.cfg.Warn(ctx, text)
		}
	}
}

// strictWarnings splits an error of the YAML decoder into one text for each field.
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
