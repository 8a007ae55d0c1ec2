package etcd

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync/atomic"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico/resource"
)

// retryAfter is the Retry-After, in seconds, of temporary errors.
const retryAfter = 1

// tooLarge is the message of the error for a value above etcd's limit (docs/wire.md 6.5).
const tooLarge = "etcdserver: request is too large"

// interrupted is the Status of a call after its context has ended; errors.Is finds the
// context's error in it.
type interrupted struct {
	*apierrors.StatusError
	cause error
}

func (e *interrupted) Unwrap() error { return e.cause }

// asStatus makes a StatusError of an error of etcd's client; StatusErrors are returned
// unchanged. If ctx, the caller's context, has ended, that is the reason. Errors of
// revisions (compacted, future) are handled by the caller.
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
		code == codes.ResourceExhausted && !errors.Is(err, rpctypes.ErrTooManyRequests): // above a limit of gRPC
		return resource.TooLarge(tooLarge)
	case isError(err, rpctypes.ErrTimeout, rpctypes.ErrTimeoutDueToLeaderFail,
		rpctypes.ErrTimeoutDueToConnectionLost, rpctypes.ErrTimeoutWaitAppliedIndex):
		return apierrors.NewTimeoutError(text, retryAfter)
	case code == codes.Aborted, code == codes.Unavailable, code == codes.ResourceExhausted, code == codes.Canceled, errors.Is(err, context.Canceled):
		return resource.Unavailable("etcd is not available: "+text, retryAfter)
	}
	return internal(text)
}

// writeStatus is asStatus for an error of a transaction that writes. If etcd may have
// executed the transaction, or may still do so, the Status has no Retry-After: a client
// that repeats the request would write twice.
func writeStatus(ctx context.Context, err error) error {
	if err == nil || ctx.Err() != nil || notDone(err) {
		return asStatus(ctx, err)
	}
	return apierrors.NewTimeoutError("it is not known whether etcd has carried out the write: "+rpctypes.ErrorDesc(err), 0)
}

// notDone reports whether a write that failed with err was certainly not executed.
func notDone(err error) bool {
	if isError(err, rpctypes.ErrNoLeader, rpctypes.ErrNotLeader) {
		return true // checked before the write is proposed
	}
	switch errorCode(err) {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled, codes.Unknown, codes.Internal:
		return false
	}
	return true
}

// isError reports whether err is one of the targets, as errors.Is.
func isError(err error, targets ...error) bool {
	return slices.ContainsFunc(targets, func(target error) bool { return errors.Is(err, target) })
}

// errorCode returns the gRPC code of either error type of etcd's client.
func errorCode(err error) codes.Code {
	var e rpctypes.EtcdError
	if errors.As(err, &e) {
		return e.Code()
	}
	return status.Code(err)
}

// unreadable is the error for a stored value that cannot be decrypted or decoded. Its cause
// has the key as field.
func unreadable(key string, err error) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusInternalServerError, Reason: metav1.StatusReasonStoreReadError,
		Message: fmt.Sprintf("unable to read the stored object at key %q: %v", key, err),
		Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: metav1.CauseTypeUnexpectedServerResponse, Field: key, Message: err.Error()}}},
	}}
}

// internal is a 500 without a reason, as kube-apiserver's for other errors of etcd.
func internal(message string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusInternalServerError, Reason: metav1.StatusReasonUnknown, Message: message,
	}}
}

// isCompacted reports whether the history that a read or watch needs was compacted.
func isCompacted(err error) bool { return errors.Is(err, rpctypes.ErrCompacted) }

// isFuture reports whether a read was for a revision that does not exist yet.
func isFuture(err error) bool { return errors.Is(err, rpctypes.ErrFutureRev) }

// unsent is a gRPC interceptor that distinguishes a request that was never sent, for lack
// of a connection, from one that was not answered. etcd's client returns an exceeded
// deadline for both, but the first was certainly not executed. Its error gets the code
// Aborted, which etcd does not use and its client does not retry.
func unsent(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	sent := new(atomic.Bool)
	err := invoke(context.WithValue(ctx, sentKey{}, sent), method, req, reply, conn, opts...)
	if err == nil || sent.Load() {
		return err
	}
	s, ok := status.FromError(err)
	if ok && (s.Code() == codes.DeadlineExceeded || s.Code() == codes.Canceled || s.Code() == codes.Unavailable) {
		return status.Error(codes.Aborted, s.Message())
	}
	return err
}

// sentKey is the context key of a request's *atomic.Bool.
type sentKey struct{}

// sentHandler is a stats.Handler that sets the *atomic.Bool of requests that are sent.
type sentHandler struct{}

// TagRPC implements stats.Handler.
func (sentHandler) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

// HandleRPC implements stats.Handler. Once the header of a request was written to a
// connection, the request may have been received.
func (sentHandler) HandleRPC(ctx context.Context, s stats.RPCStats) {
	if _, ok := s.(*stats.OutHeader); ok {
		if sent, ok := ctx.Value(sentKey{}).(*atomic.Bool); ok {
			sent.Store(true)
		}
	}
}

// TagConn implements stats.Handler.
func (sentHandler) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

// HandleConn implements stats.Handler.
func (sentHandler) HandleConn(context.Context, stats.ConnStats) {}
