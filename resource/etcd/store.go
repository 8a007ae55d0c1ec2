package etcd

import (
	"context"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"portico/resource"
)

// store is the Store of one resource. It keeps no objects.
type store struct {
	*Client
	info  *resource.Info
	scope scope
}

var _ resource.Hinted = (*store)(nil)

// Store returns the store of one resource, which is a [resource.Hinted] and a
// [resource.Discarder]. Its Watch returns MethodNotSupported: use a Feed.
func (c *Client) Store(info *resource.Info) resource.Store {
	c.resources.LoadOrStore(info.StoragePath(), info.GroupResource())
	return &store{Client: c, info: info, scope: scope{c.metrics, info.Group, info.Resource}}
}

// Info returns the resource of the store.
func (s *store) Info() *resource.Info { return s.info }

func (s *store) key(k resource.Key) string { return s.prefix + s.info.ObjectPath(k) }

func (s *store) notFound(k resource.Key) error {
	return apierrors.NewNotFound(s.info.GroupResource(), k.Name)
}

// Get returns one object. With Any the read is not linearizable.
func (s *store) Get(ctx context.Context, key resource.Key, at resource.At) (*resource.Object, error) {
	var opts []clientv3.OpOption
	if at.Freshness == resource.Any {
		opts = append(opts, clientv3.WithSerializable())
	}
	resp, err := s.read(ctx, &s.scope, opGet, s.key(key), opts...)
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

// Watch returns MethodNotSupported.
func (s *store) Watch(context.Context, resource.WatchOptions) (resource.Watcher, error) {
	return nil, apierrors.NewMethodNotSupported(s.info.GroupResource(), "watch")
}

// Create stores a new object.
func (s *store) Create(ctx context.Context, key resource.Key, obj *resource.Object, ttl time.Duration) (*resource.Object, error) {
	made, _, err := s.write(ctx, opCreate, s.key(key), 0, obj, ttl)
	if err != nil {
		return nil, err
	}
	if made == nil {
		return nil, apierrors.NewAlreadyExists(s.info.GroupResource(), key.Name)
	}
	return made, nil
}

// keyRange is the half-open range of keys [start, end).
type keyRange struct{ start, end string }

// prefixRange returns the range of all keys that begin with prefix.
func prefixRange(prefix string) keyRange {
	return keyRange{prefix, clientv3.GetPrefixRangeEnd(prefix)}
}

// span returns the range that a list reads: the namespace's, or the one key that the
// selector names.
func (s *store) span(namespace string, sel resource.Selector) keyRange {
	prefix := s.prefix + s.info.RangePath(namespace)
	if name, ok := sel.Name(); ok && (!s.info.Namespaced || namespace != "") {
		return keyRange{prefix + name, prefix + name + "\x00"}
	}
	return prefixRange(prefix)
}

// decode makes an Object of a stored value; stale is that of Transformer.FromStorage.
// Errors are StatusErrors that name the key.
func (c *Client) decode(kv *mvccpb.KeyValue) (obj *resource.Object, stale bool, err error) {
	plain, stale, err := c.plain(kv)
	if err != nil {
		return nil, false, err
	}
	obj, err = parse("", kv, plain)
	return obj, stale, err
}

// parse makes an Object of a plain value. path is its storage path, if that is kept as well.
func parse(path string, kv *mvccpb.KeyValue, plain []byte) (*resource.Object, error) {
	obj, err := resource.ParseAt(path, plain)
	if err != nil {
		return nil, unreadable(string(kv.Key), err)
	}
	return obj.WithRevision(kv.ModRevision), nil
}
