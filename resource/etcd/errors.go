package etcd

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico/resource"
)

// retryAfter is the Retry-After, in seconds, of errors that pass by themselves.
const retryAfter = 1

// tooLarge is the whole message for a value above etcd's limit (docs/wire.md 6.5).
const tooLarge = "etcdserver: request is too large"

// interrupted is the Status for a call whose context ended; errors.Is finds
// the context's error in it.
type interrupted struct {
	*apierrors.StatusError
	cause error
}

func (e *interrupted) Unwrap() error { return e.cause }

// asStatus turns an error of etcd's client into a StatusError. ctx is the
// caller's: if it has ended, that is the reason. Errors that are StatusErrors
// already come back unchanged. What says that the caller asked for the wrong
// revision (compacted, future) is handled before.
func asStatus(ctx context.Context, err error) error {
	var known apierrors.APIStatus
	if err == nil || errors.As(err, &known) {
		return err
	}
	if cause := ctx.Err(); cause != nil {
		return &interrupted{apierrors.NewTimeoutError("request to etcd was not completed: "+cause.Error(), 0), cause}
	}
	text := rpctypes.ErrorDesc(err)
	switch code := errorCode(err); {
	case errors.Is(err, context.DeadlineExceeded) || code == codes.DeadlineExceeded:
		return apierrors.NewTimeoutError("etcd did not answer in time", retryAfter)
	case errors.Is(err, rpctypes.ErrNoSpace):
		return resource.InsufficientStorage("storage is full: " + text)
	case errors.Is(err, rpctypes.ErrRequestTooLarge),
		code == codes.ResourceExhausted && !errors.Is(err, rpctypes.ErrTooManyRequests): // a message above a limit of gRPC's
		return resource.TooLarge(tooLarge)
	case errors.Is(err, rpctypes.ErrTimeout), errors.Is(err, rpctypes.ErrTimeoutDueToLeaderFail),
		errors.Is(err, rpctypes.ErrTimeoutDueToConnectionLost), errors.Is(err, rpctypes.ErrTimeoutWaitAppliedIndex):
		return apierrors.NewTimeoutError(text, retryAfter)
	case strings.Contains(text, dropped), code == codes.Aborted, code == codes.Unavailable, code == codes.ResourceExhausted, code == codes.Canceled, errors.Is(err, context.Canceled):
		return resource.Unavailable("etcd is not available: "+text, retryAfter)
	}
	return internal(text)
}

// writeStatus is asStatus for an error of a transaction that writes. Where etcd
// may have carried it out, or may yet do so, the Status says so and asks for no
// retry: a client that tries again by itself would do a second time what has
// been done.
func writeStatus(ctx context.Context, err error) error {
	if err == nil || ctx.Err() != nil || notDone(err) {
		return asStatus(ctx, err)
	}
	return apierrors.NewTimeoutError("it is not known whether etcd has carried out the write: "+rpctypes.ErrorDesc(err), 0)
}

// dropped is how etcd says that it has not taken a proposal, because leadership
// was being handed on.
const dropped = "raft proposal dropped"

// notDone reports whether an error says that etcd refused a write, or never saw
// it.
func notDone(err error) bool {
	if errors.Is(err, rpctypes.ErrNoLeader) || errors.Is(err, rpctypes.ErrNotLeader) {
		return true // found before the write is proposed to anybody
	}
	switch errorCode(err) {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled, codes.Unknown, codes.Internal:
		return strings.Contains(rpctypes.ErrorDesc(err), dropped)
	}
	return true
}

// errorCode finds the gRPC code in either of the two error types of etcd's
// client.
func errorCode(err error) codes.Code {
	var e rpctypes.EtcdError
	if errors.As(err, &e) {
		return e.Code()
	}
	return status.Code(err)
}

// internal is a 500 that has no reason, as kube-apiserver's for whatever etcd
// says that it has no word for.
func internal(message string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status:  metav1.StatusFailure,
		Code:    http.StatusInternalServerError,
		Reason:  metav1.StatusReasonUnknown,
		Message: message,
	}}
}

// unreadable is the Status for a stored value that cannot be decrypted or
// decoded. It names the key.
func unreadable(key string, err error) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status:  metav1.StatusFailure,
		Code:    http.StatusInternalServerError,
		Reason:  metav1.StatusReasonStoreReadError,
		Message: fmt.Sprintf("unable to read the stored object at key %q: %v", key, err),
	}}
}

// isCompacted reports whether a read or watch began before the history kept.
func isCompacted(err error) bool { return errors.Is(err, rpctypes.ErrCompacted) }

// isFuture reports whether a read asked for a revision that is not there yet.
func isFuture(err error) bool { return errors.Is(err, rpctypes.ErrFutureRev) }
