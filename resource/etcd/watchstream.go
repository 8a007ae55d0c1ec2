package etcd

import (
	"context"
	"math"
	"sync"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
)

// watchID is what a feed calls the watch of one of its ranges, and rangeOf the
// reverse; 0 would have etcd choose.
func watchID(index int) int64 { return int64(index) + 1 }

func rangeOf(id int64) int { return int(id) - 1 }

// watch watches all ranges of the feed, from after a revision on, over one stream
// of its own, and passes on to out what etcd sends, until the stream fails. What
// comes from ask becomes a request for progress.
//
// It speaks etcd's own form, past the client's watcher: that has a goroutine for
// each watch, and would wake all of them, and one here for each of them, for
// every answer about progress. Nor does it queue: who is slow slows etcd's stream
// down, and no more.
func (f *feed) watch(ctx context.Context, since int64, ask <-chan struct{}, out chan<- *etcdserverpb.WatchResponse) error {
	ctx, cancel := context.WithCancel(ctx)
	var asking sync.WaitGroup
	defer asking.Wait()
	defer cancel()
	stream, err := etcdserverpb.NewWatchClient(f.etcd.ActiveConnection()).Watch(ctx,
		grpc.WaitForReady(true), grpc.MaxCallRecvMsgSize(math.MaxInt32), grpc.MaxCallSendMsgSize(math.MaxInt32))
	if err != nil {
		return err
	}
	asking.Go(func() {
		if f.send(stream, since) != nil {
			return // Recv tells why
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
	})
	for {
		resp, err := stream.Recv()
		if err != nil {
			return err
		}
		select {
		case out <- resp:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// send asks for a watch of each range. Fragments are left off: a response then
// always holds whole revisions.
func (f *feed) send(stream etcdserverpb.Watch_WatchClient, since int64) error {
	for i, r := range f.ranges {
		err := stream.Send(&etcdserverpb.WatchRequest{RequestUnion: &etcdserverpb.WatchRequest_CreateRequest{
			CreateRequest: &etcdserverpb.WatchCreateRequest{
				Key: []byte(r.start), RangeEnd: []byte(r.end), StartRevision: since + 1, ProgressNotify: true, WatchId: watchID(i),
			},
		}})
		if err != nil {
			return err
		}
	}
	return nil
}
