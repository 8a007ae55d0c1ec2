package etcd

import (
	"context"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
)

const (
	// firstChunk is how many keys the first page of a range holds at most: when
	// nothing is known of the size of values, which may be 1.5 MiB each.
	firstChunk = 16
	// growth is how many times more keys a page may hold than the one before.
	growth = 4
	// maxChunk is how many any page holds at most.
	maxChunk = 10000
	// pageBytes is what the values of a page come to, more or less. It bounds
	// what reading a range needs beside the objects that are made of it.
	pageBytes = 8 << 20
	// maxPageBytes is what a page of more than one key comes to at most: a larger
	// one is not received, and fewer keys are asked for. Sizes say little of the
	// sizes that follow.
	maxPageBytes = 4 * pageBytes
)

// pager decides how many keys of a range to read at once: few at first, then
// more each time, but no more than are likely to fit pageBytes. The zero pager
// is at the first page.
type pager struct {
	asked int64 // keys of the last page
	// refused says that the last page was too large.
	refused     bool
	keys, bytes int64 // read so far
	average     int64 // size of the last page's values
}

// next returns how many keys to read, at most limit; 0 is no limit.
func (p *pager) next(limit int64) int64 {
	n := min(growth*p.asked, maxChunk)
	switch {
	case p.refused:
		n = max(1, p.asked/growth)
	case p.asked == 0:
		n = firstChunk
	}
	if p.bytes > 0 {
		n = max(1, min(n, pageBytes/max(1, p.average, p.bytes/p.keys)))
	}
	if limit > 0 {
		n = min(n, limit)
	}
	p.asked, p.refused = n, false
	return n
}

// took notes what a page held.
func (p *pager) took(kvs []*mvccpb.KeyValue) {
	if len(kvs) == 0 {
		return
	}
	size := int64(0)
	for _, kv := range kvs {
		size += int64(len(kv.Value))
	}
	p.average = size / int64(len(kvs))
	p.keys += int64(len(kvs))
	p.bytes += size
}

// page reads as many keys of a range as the pager says, at most limit.
func (c *Client) page(ctx context.Context, to *account, p *pager, limit int64, r keyRange, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	for {
		n := p.next(limit)
		resp, err := c.read(ctx, to, opList, r.start, append(slices.Clip(opts), clientv3.WithRange(r.end), clientv3.WithLimit(n))...)
		if n > 1 && isTooMuch(err) {
			p.refused = true
			continue
		}
		if err == nil {
			p.took(resp.Kvs)
		}
		return resp, err
	}
}

// bounded does not receive pages that are too large: gRPC looks at the length of
// an answer before it makes room for it.
type bounded struct {
	etcdserverpb.KVClient
	most int // bytes
}

// Range reads a key or a page.
func (b bounded) Range(ctx context.Context, in *etcdserverpb.RangeRequest, opts ...grpc.CallOption) (*etcdserverpb.RangeResponse, error) {
	if in.Limit > 1 {
		opts = append(slices.Clip(opts), grpc.MaxCallRecvMsgSize(b.most))
	}
	return b.KVClient.Range(ctx, in, opts...)
}

// isTooMuch reports whether an answer was too large to be received.
func isTooMuch(err error) bool {
	return err != nil && errorCode(err) == codes.ResourceExhausted && strings.Contains(err.Error(), "received message")
}

// read reads a key, or a page of a range, and counts it under op.
func (c *Client) read(ctx context.Context, to *account, op operation, key string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	start := time.Now()
	resp, err := c.hedgedGet(ctx, hedgeRead, key, opts...)
	to.note(ctx, op, start, err)
	return resp, err
}
