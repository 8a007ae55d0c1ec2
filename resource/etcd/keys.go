package etcd

import (
	"context"
	"strings"

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
		r, pages := prefixRange(f.root), pager{}
		if f.family == CompactionKey {
			r.end = f.root + "\x00" // users of etcd may read this key only
		}
		for more := true; more; {
			resp, err := c.page(ctx, &c.scope, &pages, 0, r, clientv3.WithRev(revision))
			if err != nil {
				return asStatus(ctx, err)
			}
			more = resp.More
			for _, kv := range resp.Kvs {
				each(string(kv.Key), kv.Value)
				r.start = string(kv.Key) + "\x00"
			}
		}
	}
	return nil
}
