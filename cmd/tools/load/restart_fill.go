package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// fillBytes is about how much one transaction writes, fillKeys how many keys at
// most: etcd takes 1.5 MB and 128.
const (
	fillBytes = 1 << 20
	fillKeys  = 100
)

// fill has the server make one object, and writes copies of what it stored until
// there are all of them. A gigabyte through the servers would take minutes.
func (r *runner) fill(ctx context.Context, s *subject) error {
	// The name of the copy is as long as that of any other.
	if _, err := r.target.discard(ctx, 0, request{method: "POST", path: s.list(), contentType: jsonType, body: s.body(0, 0, "")}); err != nil {
		return err
	}
	stored, err := r.etcd.client.Get(ctx, "/", clientv3.WithPrefix(), clientv3.WithLimit(1),
		clientv3.WithSort(clientv3.SortByModRevision, clientv3.SortDescend), clientv3.WithMinModRev(1))
	if err != nil {
		return err
	}
	if len(stored.Kvs) != 1 || !strings.HasSuffix(string(stored.Kvs[0].Key), "/"+objectName(0)) {
		return errors.New("the object is not what was written last")
	}
	key, value := string(stored.Kvs[0].Key), stored.Kvs[0].Value
	uid := uidIn(value)
	if uid == "" {
		return errors.New("the stored object has no uid; is it encrypted?")
	}
	each := max(min(fillBytes/len(value), fillKeys), 1)
	var done atomic.Int64
	defer r.progress.follow("transactions", &done, (r.o.objects+each-1)/each)()
	_, err = drive(ctx, r.o.workers, bound{(r.o.objects + each - 1) / each, r.o.limit}, &done, func(ctx context.Context, _, i int) (int64, error) {
		var ops []clientv3.Op
		for n := max(i*each, 1); n < min((i+1)*each, r.o.objects); n++ {
			name := objectName(n)
			copied := bytes.ReplaceAll(value, []byte(objectName(0)), []byte(name))
			copied = bytes.ReplaceAll(copied, []byte(uid), fmt.Appendf(nil, "00000000-0000-4000-8000-%012d", n))
			ops = append(ops, clientv3.OpPut(strings.TrimSuffix(key, objectName(0))+name, string(copied)))
		}
		_, err := r.etcd.client.Txn(ctx).Then(ops...).Commit()
		return 0, err
	})
	return err
}

// uidIn returns the uid in an object, which is the only one.
func uidIn(object []byte) string {
	_, rest, _ := bytes.Cut(object, []byte(`"uid":"`))
	uid, _, _ := bytes.Cut(rest, []byte(`"`))
	return string(uid)
}
