package embedetcd

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"sync/atomic"

	"go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.etcd.io/etcd/server/v3/storage/datadir"
)

// RestoreConfig is the configuration of [Restore].
type RestoreConfig struct {
	// Snapshot is the file of a snapshot of any etcd.
	Snapshot string
	// NoHash is set for a database file, which lacks the hash at the end of a snapshot. All its
	// pages are checked instead.
	NoHash bool
	// Dir is the data folder to make; it must not exist or be empty.
	Dir string
	// BumpRevision is added to the last revision, and the revisions up to there are compacted:
	// a client that has seen a revision after the snapshot is told that it is too old, and
	// lists again. 0 keeps the revision.
	BumpRevision uint64
	// Logger logs at debug level and the warnings. Required.
	Logger *slog.Logger
}

// Restore makes the data folder of a member from a snapshot.
func Restore(cfg RestoreConfig) error {
	err := guard(func() error {
		lg := newZapLogger(cfg.Logger.With("by", "etcd"), new(atomic.Bool), func(err error) { panic(err) })
		manager := snapshot.NewV3(lg)
		if cfg.NoHash {
			if _, err := manager.Status(cfg.Snapshot); err != nil {
				return err
			}
		}
		member := memberConfig(Config{Dir: cfg.Dir, Logger: cfg.Logger}, "", new(atomic.Bool), new(disk))
		return manager.Restore(snapshot.RestoreConfig{
			SnapshotPath: cfg.Snapshot, SkipHashCheck: cfg.NoHash, OutputDataDir: cfg.Dir,
			Name: member.Name, PeerURLs: []string{member.AdvertisePeerUrls[0].String()},
			InitialCluster: member.InitialCluster, InitialClusterToken: member.InitialClusterToken,
			RevisionBump: cfg.BumpRevision, MarkCompacted: cfg.BumpRevision > 0,
		})
	})
	if err != nil {
		return fmt.Errorf("restore etcd from %s: %w", cfg.Snapshot, err)
	}
	return nil
}

// DatabaseFile returns the database file in the data folder of a member.
func DatabaseFile(dir string) string { return filepath.Clean(datadir.ToBackendFileName(dir)) }
