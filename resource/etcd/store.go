package etcd

import (
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"portico/resource"
)

// store is the Store of one resource. It keeps no objects.
type store struct {
	*Client
	info  *resource.Info
	asked account
}

var _ resource.Hinted = (*store)(nil)

// Info returns what the store keeps.
func (s *store) Info() *resource.Info { return s.info }

func (s *store) key(k resource.Key) string { return s.prefix + s.info.ObjectPath(k) }

func (s *store) notFound(k resource.Key) error {
	return apierrors.NewNotFound(s.info.GroupResource(), k.Name)
}

// keyRange is the half-open range of keys [start, end).
type keyRange struct{ start, end string }

// prefixRange covers every key that begins with prefix.
func prefixRange(prefix string) keyRange {
	return keyRange{prefix, clientv3.GetPrefixRangeEnd(prefix)}
}

// span is the range a list or watch has to read: the namespace's, or the one
// key that the selector asks for.
func (s *store) span(namespace string, sel resource.Selector) keyRange {
	prefix := s.prefix + s.info.RangePath(namespace)
	if name, ok := sel.Name(); ok && (!s.info.Namespaced || namespace != "") {
		return keyRange{prefix + name, prefix + name + "\x00"}
	}
	return prefixRange(prefix)
}

// decode makes an Object of a stored value. stale asks for the value to be
// written anew. Errors are StatusErrors that name the key.
func (c *Client) decode(kv *mvccpb.KeyValue) (obj *resource.Object, stale bool, err error) {
	plain, stale, err := c.plain(kv)
	if err != nil {
		return nil, false, err
	}
	obj, err = parse(kv, plain)
	return obj, stale, err
}

// plain decrypts a value.
func (c *Client) plain(kv *mvccpb.KeyValue) (plain []byte, stale bool, err error) {
	plain, stale, err = c.transformer.FromStorage(kv.Value, kv.Key)
	if err != nil {
		return nil, false, unreadable(string(kv.Key), err)
	}
	return plain, stale, nil
}

func parse(kv *mvccpb.KeyValue, plain []byte) (*resource.Object, error) {
	obj, err := resource.Parse(plain)
	if err != nil {
		return nil, unreadable(string(kv.Key), err)
	}
	return obj.WithRevision(kv.ModRevision), nil
}

// encode makes the stored value of an Object's bytes.
func (c *Client) encode(key string, stored []byte) ([]byte, error) {
	data, err := c.transformer.ToStorage(stored, []byte(key))
	if err != nil {
		return nil, internal("unable to encrypt the object for key " + key + ": " + err.Error())
	}
	return data, nil
}
