package embedetcd

import (
	"bytes"
	"fmt"
	"time"

	"go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/server/v3/storage/schema"
	"google.golang.org/protobuf/proto"
)

// tombstone is the length of the revision of a deletion, which has a mark at its end.
const tombstone = 18

// ReadKeys calls each with all keys of a database file that no process writes, and their last values. After a process was
// killed, the file may lack the writes of the last tenth of a second, which the write-ahead log has.
func ReadKeys(file string, each func(key string, value []byte)) error {
	err := guard(func() error {
		db, err := bbolt.Open(file, 0o600, &bbolt.Options{ReadOnly: true, Timeout: time.Second})
		if err != nil {
			return err
		}
		defer db.Close()
		return db.View(func(tx *bbolt.Tx) error {
			bucket := tx.Bucket(schema.Key.Name())
			if bucket == nil {
				return nil // of a first start that was interrupted
			}
			// The revisions of a key are anywhere, so the last one of each is found first.
			last := map[string][]byte{}
			err := scan(bucket, func(revision []byte, kv *mvccpb.KeyValue) { last[string(kv.Key)] = revision })
			if err != nil {
				return err
			}
			return scan(bucket, func(revision []byte, kv *mvccpb.KeyValue) {
				if key := string(kv.Key); bytes.Equal(last[key], revision) && len(revision) < tombstone {
					each(key, kv.Value)
				}
			})
		})
	})
	if err != nil {
		return fmt.Errorf("read database %s: %w", file, err)
	}
	return nil
}

// scan calls each with all entries, by revision.
func scan(bucket *bbolt.Bucket, each func(revision []byte, kv *mvccpb.KeyValue)) error {
	return bucket.ForEach(func(revision, value []byte) error {
		kv := new(mvccpb.KeyValue)
		if err := proto.Unmarshal(value, kv); err != nil {
			return err
		}
		each(revision, kv)
		return nil
	})
}
