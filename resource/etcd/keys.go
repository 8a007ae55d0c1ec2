package etcd

import (
	"context"
	"fmt"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Family is a part of the keys in etcd.
type Family string

const (
	// Objects are resources, by storage path.
	Objects Family = "objects"
	// ElectionKeys have the leaders and candidates of elections.
	ElectionKeys Family = "elections"
	// DocumentKeys have documents, by family and name.
	DocumentKeys Family = "documents"
	// CompactionKey has the revision of the last compaction.
	CompactionKey Family = "compaction"
)

// keyFamilies returns where the keys of each family begin.
func keyFamilies(prefix string) []struct {
	family Family
	root   string
} {
	prefix = cleanPrefix(prefix)
	return []struct {
		family Family
		root   string
	}{{Objects, prefix}, {ElectionKeys, electionRoot + prefix}, {DocumentKeys, documentRoot + prefix}, {CompactionKey, compactKey}}
}

// ParseKey returns the family of a key and its name below that. The family is "" for a key that is not of Portico, or of
// another prefix.
func ParseKey(prefix, key string) (family Family, name string) {
	for _, f := range keyFamilies(prefix) {
		if name, ok := strings.CutPrefix(key, f.root); ok && (f.family == CompactionKey) == (name == "") {
			return f.family, name
		}
	}
	return "", ""
}

// Walk calls each with the keys of all families and their values, which are not decrypted, at one revision.
func (c *Client) Walk(ctx context.Context, each func(key string, value []byte)) error {
	revision, err := c.readRevision(ctx)
	if err != nil {
		return asStatus(ctx, err)
	}
	for _, f := range keyFamilies(c.prefix) {
		r := prefixRange(f.root)
		if f.family == CompactionKey {
			r.end = f.root + "\x00" // users of etcd may read this key only
		}
		err := c.eachKey(ctx, r, func(kv *mvccpb.KeyValue) error {
			each(string(kv.Key), kv.Value)
			return nil
		}, clientv3.WithRev(revision))
		if err != nil {
			return err
		}
	}
	return nil
}

// RemoveProcesses removes what processes that ended at once leave in etcd: the leaders and candidates of elections, and the
// keys below the prefix whose paths begin with one of paths.
func (c *Client) RemoveProcesses(ctx context.Context, paths ...string) error {
	removals := []clientv3.Op{clientv3.OpDelete(electionRoot+c.prefix, clientv3.WithPrefix())}
	for _, path := range paths {
		removals = append(removals, clientv3.OpDelete(c.prefix+path, clientv3.WithPrefix()))
	}
	_, err := c.etcd.Txn(ctx).Then(removals...).Commit()
	return asStatus(ctx, err)
}

// Scan calls visit with the storage path and the stored value of every key below the prefix, of the paths that begin with
// path, in the order of the keys, until visit returns an error, which it returns. It reads pages, each as it is at that
// time: memory is bounded, and a scan that takes longer than old revisions are kept is complete. Values are not
// decrypted, and not to be changed.
func (c *Client) Scan(ctx context.Context, path string, visit func(path string, value []byte) error) error {
	return c.eachKey(ctx, prefixRange(c.prefix+path), func(kv *mvccpb.KeyValue) error {
		return visit(strings.TrimPrefix(string(kv.Key), c.prefix), kv.Value)
	})
}

// eachKey calls visit with the keys of a range, which it reads in pages, until visit returns an error.
func (c *Client) eachKey(ctx context.Context, r keyRange, visit func(kv *mvccpb.KeyValue) error, options ...clientv3.OpOption) error {
	var pages pager
	for more := true; more; {
		resp, err := c.page(ctx, &c.scope, &pages, 0, r, options...)
		if err != nil {
			return fmt.Errorf("read etcd: %w", asStatus(ctx, err))
		}
		more = resp.More
		for _, kv := range resp.Kvs {
			if err := visit(kv); err != nil {
				return err
			}
			r.start = string(kv.Key) + "\x00"
		}
	}
	return nil
}
