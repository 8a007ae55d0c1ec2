package handlers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico/resource/rest"
)

// bodyMediaTypes are the media types of request bodies other than patches.
func bodyMediaTypes() []string {
	return []string{runtime.ContentTypeJSON, runtime.ContentTypeYAML, runtime.ContentTypeProtobuf}
}

// drainBody is how much of a body that is too large is read and dropped before
// it is refused. A sender that is cut off in the middle of sending, such as a
// reverse proxy, often loses the answer with the connection.
const drainBody = 32 << 20

// refuseBody returns why, after it has read and dropped the rest of the body.
func (a *API) refuseBody(r *http.Request, why error) error {
	// What cannot be read is not needed.
	_, _ = io.CopyN(io.Discard, r.Body, drainBody)
	return why
}

func bodyTooLarge(limit int64) error {
	return apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("limit is %d", limit))
}

// bareMediaType is a Content-Type without its parameters, in lower case.
func bareMediaType(contentType string) string {
	bare, _, _ := strings.Cut(contentType, ";")
	return strings.ToLower(strings.TrimSpace(bare))
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
func (a *API) decodeBody(ctx context.Context, codec rest.Codec, gvk schema.GroupVersionKind, data []byte, mediaType, validation string) (runtime.Object, error) {
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
