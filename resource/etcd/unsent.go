package etcd

import (
	"context"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
)

// unsent is an interceptor that tells a request that was never sent, because there was
// no connection in its time, from one that was not answered. etcd's client makes both
// an exceeded deadline, but the first has certainly done nothing. Its error gets the
// code Aborted, which etcd does not use and its client does not retry.
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

// sentKey is the key of a request's *atomic.Bool in its context.
type sentKey struct{}

// sentMarker is a stats.Handler that marks requests that are sent.
type sentMarker struct{}

// TagRPC implements stats.Handler.
func (sentMarker) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

// HandleRPC implements stats.Handler: the header of a request is on its way to a
// connection, and with it maybe the request.
func (sentMarker) HandleRPC(ctx context.Context, s stats.RPCStats) {
	if _, ok := s.(*stats.OutHeader); ok {
		if sent, ok := ctx.Value(sentKey{}).(*atomic.Bool); ok {
			sent.Store(true)
		}
	}
}

// TagConn implements stats.Handler.
func (sentMarker) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

// HandleConn implements stats.Handler.
func (sentMarker) HandleConn(context.Context, stats.ConnStats) {}
