package etcd

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Transformer converts values on their way to and from etcd (encryption at rest). of is the
// resource of the value, and aad the full etcd key; a value must not be readable under
// another key. Implementations are safe for concurrent use and neither keep nor modify
// their arguments.
type Transformer interface {
	ToStorage(of schema.GroupResource, data, aad []byte) ([]byte, error)
	// FromStorage returns the plain value. stale requests that the next update writes the
	// value even if it does not change.
	FromStorage(of schema.GroupResource, data, aad []byte) (plain []byte, stale bool, err error)
}

// DocumentResource is the resource of documents for a Transformer.
var DocumentResource = schema.GroupResource{Group: "gateway.portico.dev", Resource: "documents"}

// encryptedPrefix is the prefix of encrypted values, as kube-apiserver writes them.
const encryptedPrefix = "k8s:enc:"

// identity is the Transformer that stores values unchanged.
type identity struct{}

func (identity) ToStorage(_ schema.GroupResource, data, _ []byte) ([]byte, error) { return data, nil }

func (identity) FromStorage(_ schema.GroupResource, data, _ []byte) ([]byte, bool, error) {
	if bytes.HasPrefix(data, []byte(encryptedPrefix)) {
		return nil, false, errEncrypted(data)
	}
	return data, false, nil
}

// Encryption returns the provider, its version and the name of the key of an encrypted value, as
// in aescbc:v1:key1; "" for other values.
func Encryption(value []byte) string {
	rest, ok := bytes.CutPrefix(value, []byte(encryptedPrefix))
	if !ok {
		return ""
	}
	parts := strings.SplitN(string(rest[:min(len(rest), 200)]), ":", 4)
	return strings.Join(parts[:min(len(parts), 3)], ":")
}

// errEncrypted names the provider and the key of an encrypted value.
func errEncrypted(data []byte) error {
	head := strings.Split(Encryption(data), ":")
	if len(head) < 3 {
		return errors.New("it is encrypted")
	}
	return fmt.Errorf("it is encrypted by provider %s (%s) with key %q: name the configuration with --encryption-provider-config", head[0], head[1], head[2])
}

// Unencrypted reports whether a storage path has what is no resource of the API: addresses of
// servers, and ports that are taken. kube-apiserver does not encrypt it, whatever is configured.
func Unencrypted(path string) bool {
	first, _, _ := strings.Cut(path, "/")
	return first == "masterleases" || first == "peerserverleases" || first == "ranges"
}

// ResourceOf returns the resource of a storage path. That of a custom resource is in its path; that
// of others is known once they have a Store.
func (c *Client) ResourceOf(path string) schema.GroupResource {
	first, rest, _ := strings.Cut(path, "/")
	second, _, _ := strings.Cut(rest, "/")
	if strings.Contains(first, ".") {
		return schema.GroupResource{Group: first, Resource: second}
	}
	for _, storagePath := range []string{first, first + "/" + second} {
		if of, known := c.resources.Load(storagePath); known {
			return of.(schema.GroupResource)
		}
	}
	return schema.GroupResource{Resource: first}
}

// transforms returns the Transformer of a key, and its resource.
func (c *Client) transforms(key []byte) (Transformer, schema.GroupResource) {
	if c.transformer == (identity{}) {
		return c.transformer, schema.GroupResource{}
	}
	path := strings.TrimPrefix(string(key), c.prefix)
	if Unencrypted(path) {
		return identity{}, schema.GroupResource{}
	}
	return c.transformer, c.ResourceOf(path)
}

// Decrypt returns the plain value of a storage path.
func (c *Client) Decrypt(path string, value []byte) ([]byte, error) {
	transformer, of := c.transforms([]byte(c.prefix + path))
	plain, _, err := transformer.FromStorage(of, value, []byte(c.prefix+path))
	return plain, err
}

// plain decrypts a value.
func (c *Client) plain(kv *mvccpb.KeyValue) (plain []byte, stale bool, err error) {
	transformer, of := c.transforms(kv.Key)
	plain, stale, err = transformer.FromStorage(of, kv.Value, kv.Key)
	if err != nil {
		return nil, false, unreadable(string(kv.Key), err)
	}
	return plain, stale, nil
}

// encode encrypts the bytes of an object.
func (c *Client) encode(key string, stored []byte) ([]byte, error) {
	aad := []byte(key)
	transformer, of := c.transforms(aad)
	data, err := transformer.ToStorage(of, stored, aad)
	if err != nil {
		return nil, internal("unable to encrypt the object for key " + key + ": " + err.Error())
	}
	return data, nil
}
