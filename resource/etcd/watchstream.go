package etcd

import (
	"context"
	"math"
	"sync"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
)

// arrivalsKept is how many responses of etcd's may wait for the stream, so that it
// takes those that come together at once.
const arrivalsKept = 16

// wire is the conversation with etcd that a stream lives by. It speaks etcd's own
// form, past the client's watcher: that has a goroutine for each watch, and would
// wake all of them, and one here for each of them, for every answer about
// progress. Nor does it queue without bound: who is slow slows etcd's stream down,
// and no more.
type wire struct {
	// opened is closed once etcd's connection carries the conversation.
	opened chan struct{}
	// arrivals are what etcd sends, until ended tells why it does not any more.
	arrivals chan *etcdserverpb.WatchResponse
	ended    chan error
	// ask has a request for progress sent.
	ask chan struct{}
}

func newWire() *wire {
	return &wire{
		opened: make(chan struct{}), arrivals: make(chan *etcdserverpb.WatchResponse, arrivalsKept),
		ended: make(chan error, 1), ask: make(chan struct{}, 1),
	}
}

// watchID is what a feed calls the watch of one of its ranges, and rangeOf the
// reverse; 0 would have etcd choose.
func watchID(index int) int64 { return int64(index) + 1 }

func rangeOf(id int64) int { return int(id) - 1 }

// converse watches ranges from after a revision on until the conversation fails
// or ctx ends. It waits for a connection.
func (c *Client) converse(ctx context.Context, w *wire, ranges []keyRange, since int64) error {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	var asking sync.WaitGroup
	defer asking.Wait()
	defer cancel()
	stream, err := etcdserverpb.NewWatchClient(c.etcd.ActiveConnection()).Watch(ctx,
		grpc.WaitForReady(true), grpc.MaxCallRecvMsgSize(math.MaxInt32), grpc.MaxCallSendMsgSize(math.MaxInt32))
	if err != nil {
		return err
	}
	close(w.opened)
	asking.Go(func() { request(ctx, stream, w.ask, ranges, since) })
	for {
		resp, err := stream.Recv()
		if err != nil {
			return err
		}
		select {
		case w.arrivals <- resp:
		case <-ctx.Done():
			// Nobody listens. Recv is called until it tells so too: only then
			// is nothing left of the conversation that could hold up its end.
		}
	}
}

// request asks for a watch of each range, and for progress as often as ask says.
// Who receives learns why requests fail. Fragments are left off: a response then
// always holds whole revisions.
func request(ctx context.Context, stream etcdserverpb.Watch_WatchClient, ask <-chan struct{}, ranges []keyRange, since int64) {
	for i, r := range ranges {
		err := stream.Send(&etcdserverpb.WatchRequest{RequestUnion: &etcdserverpb.WatchRequest_CreateRequest{
			CreateRequest: &etcdserverpb.WatchCreateRequest{
				Key: []byte(r.start), RangeEnd: []byte(r.end), StartRevision: since + 1, WatchId: watchID(i),
			},
		}})
		if err != nil {
			return
		}
	}
	progress := &etcdserverpb.WatchRequest{RequestUnion: &etcdserverpb.WatchRequest_ProgressRequest{ProgressRequest: &etcdserverpb.WatchProgressRequest{}}}
	for {
		select {
		case <-ask:
			if stream.Send(progress) != nil {
				return
			}
		case <-ctx.Done():
			return
		}
	}
}
