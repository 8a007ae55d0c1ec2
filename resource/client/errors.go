package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico/resource"
)

// maxStatus bounds the body of an error.
const maxStatus = 1 << 20

// errTooLarge is the error of an object above maxObject.
var errTooLarge = fmt.Errorf("an object is larger than %d bytes", maxObject)

// failure is a StatusError with a cause.
type failure struct {
	*apierrors.StatusError
	cause error
}

// Unwrap lets errors.Is and errors.As see both.
func (f *failure) Unwrap() []error { return []error{f.StatusError, f.cause} }

// unanswered returns the error of a request without a response, or with a part of one.
func unanswered(ctx context.Context, method, path string, err error) error {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		return err // of the transport
	}
	message := fmt.Sprintf("%s %s: %v", method, path, err)
	if cause := ctx.Err(); cause != nil {
		return &failure{apierrors.NewTimeoutError(message, 0), cause}
	}
	retry := int32(1)
	if !repeatable(method, err) {
		retry = 0
	}
	return &failure{resource.Unavailable(message, retry), err}
}

// repeatable reports whether a request without a response may be sent again: it is a GET, or
// was never sent. The effect of others is unknown.
func repeatable(method string, err error) bool {
	var op *net.OpError
	return method == http.MethodGet || errors.As(err, &op) && op.Op == "dial"
}

// unreadable returns the error of a response that cannot be decoded.
func unreadable(path string, err error) error {
	return apierrors.NewInternalError(fmt.Errorf("read answer of %s: %w", path, err))
}

// refused returns the error of a response without success: its Status, or one made from its
// code and text.
func refused(res *http.Response, method string) error {
	body, _ := io.ReadAll(io.LimitReader(res.Body, maxStatus)) // a part will do
	retry, _ := strconv.Atoi(res.Header.Get("Retry-After"))    // dates are ignored
	status := metav1.Status{}
	if json.Unmarshal(body, &status) == nil && status.Kind == "Status" && status.Status != metav1.StatusSuccess {
		status.Code = int32(res.StatusCode)
		if retry > 0 {
			if status.Details == nil {
				status.Details = &metav1.StatusDetails{}
			}
			if status.Details.RetryAfterSeconds == 0 {
				status.Details.RetryAfterSeconds = int32(min(retry, 1<<30))
			}
		}
		return &apierrors.StatusError{ErrStatus: status}
	}
	return apierrors.NewGenericServerResponse(res.StatusCode, strings.ToLower(method), schema.GroupResource{}, "",
		strings.TrimSpace(string(body)), retry, true)
}
