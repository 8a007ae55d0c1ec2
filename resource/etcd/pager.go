package etcd

import (
	"context"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	// firstChunk is how many keys the first page of a range holds at most: when
	// nothing is known of the size of values, which may be 1.5 MiB each.
	firstChunk = 100
	// maxChunk is how many any page holds at most.
	maxChunk = 10000
	// pageBytes is what the values of a page come to, more or less. It bounds
	// what reading a range needs beside the objects that are made of it.
	pageBytes = 8 << 20
)

// pager decides how many keys of a range to read at once: few at first, then
// twice as many each time, but no more than are likely to fit pageBytes. The
// zero pager is at the first page.
type pager struct {
	chunk       int64 // the last page's
	keys, bytes int64 // read so far
}

// next returns how many keys to read, at most limit; 0 is no limit.
func (p *pager) next(limit int64) int64 {
	p.chunk = min(2*p.chunk, maxChunk)
	if p.chunk == 0 {
		p.chunk = firstChunk
	}
	if p.bytes > 0 {
		p.chunk = max(1, min(p.chunk, pageBytes*p.keys/p.bytes))
	}
	if limit > 0 {
		return min(p.chunk, limit)
	}
	return p.chunk
}

// took notes what a page held.
func (p *pager) took(kvs []*mvccpb.KeyValue) {
	p.keys += int64(len(kvs))
	for _, kv := range kvs {
		p.bytes += int64(len(kv.Value))
	}
}

// read reads a key, or a page of a range, and counts it under op.
func (c *Client) read(ctx context.Context, to *account, op operation, key string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	start := time.Now()
	resp, err := c.hedgedGet(ctx, hedgeRead, key, opts...)
	to.note(op, start, err)
	return resp, err
}
