package etcd

import (
	"context"
	"fmt"
	"strings"
)

// Scan calls visit with the storage path and the stored value of every key below the prefix whose
// path begins with path, in the order of the keys, until visit returns an error, which it
// returns. It reads pages, each as it is at that time: memory is bounded, and a scan that takes
// longer than old revisions are kept is complete. Values are not decrypted, and not to be changed.
func (c *Client) Scan(ctx context.Context, path string, visit func(path string, value []byte) error) error {
	var p pager
	for r := prefixRange(c.prefix + path); ; {
		resp, err := c.page(ctx, &c.scope, &p, 0, r)
		if err != nil {
			return fmt.Errorf("read etcd: %w", asStatus(ctx, err))
		}
		for _, kv := range resp.Kvs {
			if err := visit(strings.TrimPrefix(string(kv.Key), c.prefix), kv.Value); err != nil {
				return err
			}
		}
		if !resp.More {
			return nil
		}
		r.start = string(resp.Kvs[len(resp.Kvs)-1].Key) + "\x00"
	}
}
