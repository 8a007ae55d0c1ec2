package embedetcd

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/coreos/go-semver/semver"
	"go.etcd.io/bbolt"
	"go.etcd.io/etcd/server/v3/storage/schema"
)

// Database is what a database file of etcd says of itself. A snapshot is such a file.
type Database struct {
	// Revision is the last revision.
	Revision int64
	// StorageVersion is the version of the format, which is that of the etcd that wrote it
	// without the last number; nil before etcd 3.6.
	StorageVersion *semver.Version
	// Members are the names or peer URLs of the members of the cluster.
	Members []string
	// index is that of the last raft entry in the file.
	index uint64
}

var errDamaged = errors.New("it is damaged")

// ReadDatabase reads a file that no process writes. It reads a few pages, so it does not find
// every damage.
func ReadDatabase(file string) (d *Database, err error) {
	err = guard(func() error {
		db, err := bbolt.Open(file, 0o600, &bbolt.Options{ReadOnly: true, Timeout: time.Second})
		if err != nil {
			return err
		}
		defer db.Close()
		return db.View(func(tx *bbolt.Tx) error {
			d, err = readDatabase(tx)
			return err
		})
	})
	if err != nil {
		return nil, fmt.Errorf("read database %s: %w", file, err)
	}
	return d, nil
}

// guard calls f and returns an error that it panics with. Other panics, and the fault of a page
// that is not in the file, are of a damaged page; which one it is differs from time to time.
func guard(f func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		switch r := recover().(type) {
		case nil:
		case runtime.Error:
			err = errDamaged
		case error:
			err = r
		default:
			err = errDamaged
		}
	}()
	return f()
}

func readDatabase(tx *bbolt.Tx) (*Database, error) {
	meta, keys, members := tx.Bucket(schema.Meta.Name()), tx.Bucket(schema.Key.Name()), tx.Bucket(schema.Members.Name())
	if meta == nil || keys == nil || members == nil {
		return new(Database), nil // of a first start that was interrupted
	}
	d := &Database{StorageVersion: schema.ReadStorageVersionFromSnapshot(tx)}
	if v := meta.Get(schema.MetaConsistentIndexKeyName); len(v) == 8 {
		d.index = binary.BigEndian.Uint64(v)
	}
	// The key of a revision begins with its number. The last key may be below the last
	// revision after a compaction. An etcd without keys has revision 1.
	d.Revision = 1
	last, _ := keys.Cursor().Last()
	for _, revision := range [][]byte{last, meta.Get(schema.ScheduledCompactKeyName)} {
		if len(revision) >= 8 {
			d.Revision = max(d.Revision, int64(binary.BigEndian.Uint64(revision)))
		}
	}
	return d, members.ForEach(func(_, v []byte) error {
		var m struct {
			Name     string   `json:"name"`
			PeerURLs []string `json:"peerURLs"`
		}
		if err := json.Unmarshal(v, &m); err != nil {
			return fmt.Errorf("member: %w", err)
		}
		if m.Name == "" && len(m.PeerURLs) > 0 {
			m.Name = m.PeerURLs[0]
		}
		d.Members = append(d.Members, m.Name)
		return nil
	})
}
