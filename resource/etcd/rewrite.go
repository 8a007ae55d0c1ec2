package etcd

import (
	"context"
	"fmt"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

// Rewritten is what became of a value.
type Rewritten uint8

const (
	// Current: it was written as the Transformer writes now.
	Current Rewritten = iota
	// Again: it was written again.
	Again
	// Gone: it was deleted meanwhile.
	Gone
	// Unreadable: it cannot be decrypted, and is unchanged.
	Unreadable
)

// Rewrite writes every value below a storage path again that is stale for the Transformer, and
// changes nothing else of it. A value that another client writes at the same time is never
// replaced by an older one. done is called after each value, with the error of an Unreadable one,
// and ends it with its error.
func (c *Client) Rewrite(ctx context.Context, path string, done func(result Rewritten, unreadable error) error) error {
	return c.eachKey(ctx, prefixRange(c.prefix+path), func(kv *mvccpb.KeyValue) error {
		result, unreadable, err := c.rewrite(ctx, kv)
		if err != nil {
			return fmt.Errorf("rewrite %s: %w", kv.Key, err)
		}
		return done(result, unreadable)
	})
}

// rewrite writes one value again, whose state may be older than etcd's.
func (c *Client) rewrite(ctx context.Context, kv *mvccpb.KeyValue) (result Rewritten, unreadable, err error) {
	for kv != nil {
		plain, stale, err := c.plain(kv)
		if err != nil {
			return Unreadable, err, nil
		}
		if !stale {
			return Current, nil, nil
		}
		value, err := c.encode(string(kv.Key), plain)
		if err != nil {
			return 0, nil, err
		}
		put := &etcdserverpb.RequestOp{Request: &etcdserverpb.RequestOp_RequestPut{
			RequestPut: &etcdserverpb.PutRequest{Key: kv.Key, Value: value, IgnoreLease: true},
		}}
		_, now, ok, err := c.commit(ctx, &c.scope, opUpdate, kv.Key, kv.ModRevision, put)
		if err != nil {
			return 0, nil, writeStatus(ctx, err)
		}
		if ok {
			return Again, nil, nil
		}
		kv = now
	}
	return Gone, nil, nil
}
