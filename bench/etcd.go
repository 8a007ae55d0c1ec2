package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// etcdPrefix is the prefix of the keys of this program. Portico does not read it.
const etcdPrefix = "/portico-bench/"

// rawEtcd is the yardstick for create.
type rawEtcd struct {
	client *clientv3.Client
	prefix string
	value  string
}

// openEtcd connects to the etcd at o.etcd, unix:///path or http://host:port, for
// values of size bytes.
func openEtcd(ctx context.Context, o *options, run string, size int) (*rawEtcd, error) {
	u, err := url.Parse(o.etcd)
	switch {
	case err != nil || u.Scheme != "unix" && u.Scheme != "http":
		return nil, fmt.Errorf("--etcd=%s: it must be unix:///path or http://host:port", o.etcd)
	case u.Scheme == "http":
		if err := requireLoopback(ctx, u.Hostname()); err != nil {
			return nil, err
		}
	}
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{o.etcd}, DialTimeout: 5 * time.Second, Logger: zap.NewNop()})
	if err != nil {
		return nil, fmt.Errorf("open etcd: %w", err)
	}
	e := &rawEtcd{client: client, prefix: etcdPrefix + run + "/", value: string(bytes.Repeat([]byte("x"), size))}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if _, err := client.Get(ctx, e.prefix, clientv3.WithCountOnly()); err != nil {
		return nil, errors.Join(fmt.Errorf("read from etcd at %s: %w", o.etcd, err), client.Close())
	}
	return e, nil
}

// create is an operation that creates a key unless it exists, in the transaction
// that API servers use.
func (e *rawEtcd) create(ctx context.Context, _, i int) (int64, error) {
	key := e.prefix + objectName(i)
	res, err := e.client.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(key), "=", 0)).Then(clientv3.OpPut(key, e.value)).Commit()
	if err != nil {
		return 0, fmt.Errorf("create key: %w", err)
	}
	if !res.Succeeded {
		return 0, fmt.Errorf("create key: %s exists", key)
	}
	return int64(len(e.value)), nil
}

// clear deletes all keys of this program.
func (e *rawEtcd) clear(ctx context.Context) error {
	if _, err := e.client.Delete(ctx, e.prefix, clientv3.WithPrefix()); err != nil {
		return fmt.Errorf("delete keys below %s: %w", e.prefix, err)
	}
	return nil
}
