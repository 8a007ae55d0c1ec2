package etcd

import (
	"context"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// unsent tells a request that found no connection in its time from one that got
// no answer. etcd's client makes both an exceeded deadline, but the first has
// certainly done nothing. Its error gets the code Aborted, which etcd does not
// use and its client does not retry.
func unsent(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	err := invoke(ctx, method, req, reply, conn, opts...)
	if err == nil {
		return nil
	}
	s, ok := status.FromError(err)
	if !ok || s.Code() != codes.DeadlineExceeded && s.Code() != codes.Canceled && s.Code() != codes.Unavailable {
		return err
	}
	for _, part := range []string{
		"latest balancer error: ",                 // the last attempt to connect failed
		"waiting for connections to become ready", // none has ended yet
		"transport: Error while dialing",          // an attempt failed while the request was bound to it
	} {
		if strings.Contains(s.Message(), part) {
			return status.Error(codes.Aborted, strings.TrimPrefix(s.Message(), "latest balancer error: "))
		}
	}
	return err
}
