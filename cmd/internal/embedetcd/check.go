package embedetcd

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/coreos/go-semver/semver"
	"go.etcd.io/etcd/api/v3/version"
	"go.etcd.io/etcd/server/v3/storage/datadir"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.uber.org/zap"
)

// NewerText ends the error of a database of a newer etcd.
const NewerText = "start a portico as new as the one that wrote it"

// check returns an error for data that etcd would wait with forever, end on with a stack, or lose
// writes with: a database of a newer etcd or of a cluster, and a write-ahead log that does not
// continue the database. If the log ends before the last entry in the database, new entries get
// indexes that the database has already, and are not applied. The log is read up to its end.
func check(dir string) error {
	file, log := datadir.ToBackendFileName(dir), datadir.ToWALDir(dir)
	d := new(Database)
	if info, err := os.Stat(file); err == nil && info.Size() > 0 {
		if d, err = ReadDatabase(file); err != nil {
			return err
		}
	}
	if err := d.usable(file); err != nil {
		return err
	}
	var first, last uint64
	if err := guard(func() (err error) { first, last, err = entries(log); return err }); err != nil {
		return fmt.Errorf("read write-ahead log %s: %w", log, err)
	}
	switch {
	case last < d.index:
		return fmt.Errorf("write-ahead log %s: it ends with entry %d and the database has entry %d: a part of the log is lost", log, last, d.index)
	case d.index < first:
		return fmt.Errorf("database %s: it is missing, or older than its write-ahead log, which continues entry %d", file, first)
	}
	return nil
}

// lastBroken returns the newest copy that etcd made of a write-ahead log before it cut off an
// incomplete last entry, and when it did; "" without one.
func lastBroken(dir string) (name string, at time.Time) {
	names, _ := filepath.Glob(filepath.Join(datadir.ToWALDir(dir), "*.wal.broken")) // the pattern is valid
	for _, n := range names {
		if info, err := os.Stat(n); err == nil && info.ModTime().After(at) {
			name, at = n, info.ModTime()
		}
	}
	return name, at
}

// usable returns an error for a database that this version of etcd, or a single member, cannot
// use.
func (d *Database) usable(file string) error {
	own := semver.New(version.Version)
	if v := d.StorageVersion; v != nil && (semver.Version{Major: own.Major, Minor: own.Minor}).LessThan(*v) {
		return fmt.Errorf("database %s: it was written by etcd %d.%d and this is etcd %d.%d: "+NewerText, file, v.Major, v.Minor, own.Major, own.Minor)
	}
	if len(d.Members) > 1 {
		return fmt.Errorf("database %s: it is of a cluster of %d members (%s) and the embedded etcd has one", file, len(d.Members), strings.Join(d.Members, ", "))
	}
	return nil
}

// entries returns the index of the entry that a write-ahead log continues, which the database
// must have, and that of its last entry; 0 without a log.
func entries(folder string) (first, last uint64, err error) {
	if names, err := filepath.Glob(filepath.Join(folder, "*.wal")); err != nil || len(names) == 0 {
		return 0, 0, err
	}
	snapshots, err := wal.ValidSnapshotEntries(zap.NewNop(), folder)
	if err != nil || len(snapshots) == 0 {
		return 0, 0, err
	}
	from := snapshots[len(snapshots)-1]
	w, err := wal.OpenForRead(zap.NewNop(), folder, from)
	if err != nil {
		return 0, 0, err
	}
	defer w.Close()
	_, _, all, err := w.ReadAll()
	if err != nil {
		return 0, 0, err
	}
	if n := len(all); n > 0 {
		return from.GetIndex(), all[n-1].GetIndex(), nil
	}
	return from.GetIndex(), from.GetIndex(), nil
}
