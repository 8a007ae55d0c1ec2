package etcd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Status describes an etcd before a snapshot is taken.
type Status struct {
	// Revision is that of a linearizable read.
	Revision int64
	// ClusterID is the id of the cluster, Version the version of a member.
	ClusterID uint64
	Version   string
	// Size is the size of the database file of that member, in bytes.
	Size int64
}

// Status asks the first member that answers.
func (c *Client) Status(ctx context.Context) (Status, error) {
	revision, err := c.readRevision(ctx)
	if err != nil {
		return Status{}, fmt.Errorf("read revision of etcd: %w", err)
	}
	var failed error
	for _, endpoint := range c.etcd.Endpoints() {
		s, err := c.etcd.Status(ctx, endpoint)
		if err == nil {
			return Status{Revision: revision, ClusterID: s.Header.ClusterId, Version: s.Version, Size: s.DbSize}, nil
		}
		failed = errors.Join(failed, fmt.Errorf("read status of etcd at %s: %w", endpoint, err))
	}
	return Status{}, failed
}

// Snapshot writes a snapshot of one member: its database file, and the SHA-256 of that at the end.
// The member may be behind the cluster, so the snapshot may be older than the last revision.
func (c *Client) Snapshot(ctx context.Context, to io.Writer) error {
	stream, err := c.etcd.Snapshot(ctx)
	if err != nil {
		return fmt.Errorf("take snapshot of etcd: %w", err)
	}
	defer stream.Close()
	if _, err := io.Copy(to, stream); err != nil {
		return fmt.Errorf("take snapshot of etcd: %w", err)
	}
	return nil
}

// Count returns how many keys there are at a revision, 0 being the latest, by resource: the first
// part of the storage path, with the second one where the first is an API group.
func (c *Client) Count(ctx context.Context, revision int64) (map[string]int64, error) {
	counts := map[string]int64{}
	for from, end := c.prefix, clientv3.GetPrefixRangeEnd(c.prefix); ; {
		next, err := c.countRange(ctx, from, end, revision, clientv3.WithKeysOnly(), clientv3.WithLimit(1))
		if err != nil {
			return nil, err
		}
		if len(next.Kvs) == 0 {
			return counts, nil
		}
		resource := resourceOf(strings.TrimPrefix(string(next.Kvs[0].Key), c.prefix))
		from = clientv3.GetPrefixRangeEnd(c.prefix + resource)
		all, err := c.countRange(ctx, c.prefix+resource, from, revision, clientv3.WithCountOnly())
		if err != nil {
			return nil, err
		}
		counts[strings.TrimSuffix(resource, "/")] = all.Count
	}
}

func (c *Client) countRange(ctx context.Context, from, end string, revision int64, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	resp, err := c.etcd.Get(ctx, from, append(opts, clientv3.WithRange(end), clientv3.WithRev(revision))...)
	if err != nil {
		return nil, fmt.Errorf("count keys of etcd: %w", err)
	}
	return resp, nil
}

// resourceOf returns the beginning of a storage path that names its resource, with the slash
// after it.
func resourceOf(path string) string {
	first, rest, more := strings.Cut(path, "/")
	if !more {
		return first
	}
	if second, _, more := strings.Cut(rest, "/"); more && strings.Contains(first, ".") {
		return first + "/" + second + "/"
	}
	return first + "/"
}
