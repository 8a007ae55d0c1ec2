package etcd

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"

	"portico/resource"
)

// Get returns one object. Any is read from whichever member answers; all else
// is linearizable.
func (s *store) Get(ctx context.Context, key resource.Key, at resource.At) (*resource.Object, error) {
	var opts []clientv3.OpOption
	if at.Freshness == resource.Any {
		opts = append(opts, clientv3.WithSerializable())
	}
	resp, err := s.read(ctx, &s.asked, opGet, s.key(key), opts...)
	if err != nil {
		return nil, asStatus(ctx, err)
	}
	if now := resp.Header.Revision; at.Freshness == resource.NotOlderThan && at.Revision > now {
		return nil, resource.TooLargeRevision(at.Revision, now)
	}
	if len(resp.Kvs) == 0 {
		return nil, s.notFound(key)
	}
	obj, _, err := s.decode(resp.Kvs[0])
	return obj, err
}
