// Package embedetcd runs a single etcd member inside this process, on unix
// sockets, for an installation that has no etcd of its own.
//
// Decisions:
//
//   - Clients connect to a unix socket in a private folder, so that only a user with access
//     to the folder reads or writes the data.
//   - No peer listener. A single member has no peers, and the raft handler behind a peer
//     listener commits the entries of any process that connects to it.
//   - A tick of 10 ms and an election timeout of 100 ms: a single member serves after one
//     election timeout, which is most of its start time. Without peers neither value matters
//     otherwise.
//   - No periodic compaction: the processes that store objects compact, one at a time.
//   - A database file that is mostly free is copied to a smaller one now and then (relief.go).
//   - Data that etcd would hang on or lose writes with is refused (check.go).
//   - A member at its quota compacts and defragments itself and then accepts writes again
//     (relief.go), because there is no operator for it.
//   - A short raft log: no follower needs old entries, and they take memory.
//   - Writes are rejected while the disk is nearly full (disk.go). After a failed write of its
//     own etcd exits, and with it the process; the caller starts that process again.
//
// Runs in: portico etcd.
package embedetcd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"google.golang.org/grpc"
)

const (
	tick     = 10 * time.Millisecond
	election = 10 * tick

	// defaultQuota is Config.Quota where that is 0.
	defaultQuota = 8 << 30

	// snapshotEvery and snapshotKeep bound the raft entries held in memory.
	snapshotEvery = 2000
	snapshotKeep  = 100

	// Flow control windows of a stream and of a connection. They are fixed, because gRPC's
	// estimation of them costs a ping for nearly every write.
	streamWindow = 2 << 20
	connWindow   = 16 << 20
)

// Config is the configuration of a member.
type Config struct {
	// Dir is the data folder; it is created with mode 0700.
	Dir string
	// SocketDir is the folder of the sockets; it must exist, and its path must be short
	// enough for the address of a socket.
	SocketDir string
	// Logger logs the messages of this package and, with by=etcd, etcd's warnings and
	// errors, at debug level all of them. Required.
	Logger *slog.Logger
	// Quota is the size of the database, in bytes, at which writes are rejected; 0 means
	// 8 GiB, the maximum that etcd's documentation recommends.
	Quota int64
	// ReliefInterval is the time between two checks whether the member is full; 0 means
	// 30 s.
	ReliefInterval time.Duration
	// OnFatal is called with a fatal error of etcd, from any goroutine, and must end the
	// process; nil lets etcd exit or panic by itself.
	OnFatal func(error)
	// FreeSpace returns the free bytes of the file system of a folder; nil means statfs. It
	// is called for every write.
	FreeSpace func(dir string) (uint64, error)
}

// Server is a running member.
type Server struct {
	etcd     *embed.Etcd
	endpoint string
	quota    int64
	log      *slog.Logger
	disk     *disk
	stop     context.CancelFunc // ends relieve
	tidied   time.Time          // of relieve
	watching sync.WaitGroup
	stopping *atomic.Bool
}

// Start starts the member and returns when it serves, or when ctx ends. No other process may
// use Dir.
func Start(ctx context.Context, cfg Config) (*Server, error) {
	if cfg.Quota == 0 {
		cfg.Quota = defaultQuota
	}
	if cfg.ReliefInterval == 0 {
		cfg.ReliefInterval = defaultReliefInterval
	}
	if cfg.FreeSpace == nil {
		cfg.FreeSpace = FreeSpace
	}
	client := filepath.Join(cfg.SocketDir, "etcd.sock")
	// etcd would take the socket of a killed process for a running member.
	if err := os.Remove(client); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("remove old etcd socket: %w", err)
	}
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("create etcd folder: %w", err)
	}
	if err := check(cfg.Dir); err != nil {
		return nil, fmt.Errorf("start etcd: %w", err)
	}
	_, before := lastBroken(cfg.Dir)
	stopping := new(atomic.Bool)
	disk := &disk{dir: cfg.Dir, free: cfg.FreeSpace, log: cfg.Logger}
	e, err := embed.StartEtcd(memberConfig(cfg, client, stopping, disk))
	if err != nil {
		return nil, fmt.Errorf("start etcd: %w", err)
	}
	s := &Server{etcd: e, endpoint: "unix://" + client, quota: cfg.Quota, log: cfg.Logger, disk: disk, stopping: stopping}
	select {
	case <-e.Server.ReadyNotify():
		// etcd creates the socket with the umask of the process.
		if err := os.Chmod(client, 0o600); err != nil {
			stopping.Store(true)
			e.Close()
			return nil, fmt.Errorf("restrict etcd socket: %w", err)
		}
		if err := s.corrupt(); err != nil {
			stopping.Store(true)
			e.Close()
			return nil, fmt.Errorf("start etcd: %w", err)
		}
		if name, at := lastBroken(cfg.Dir); at.After(before) {
			cfg.Logger.Error("the write-ahead log ended within an entry, which was cut off: the write was not acknowledged to any client; the log as it was is in " + name)
		}
		var watch context.Context
		watch, s.stop = context.WithCancel(context.Background())
		s.watching.Go(func() { s.relieve(watch, cfg.ReliefInterval) })
		return s, nil
	case err = <-e.Err():
	case <-e.Server.StopNotify():
		err = errors.New("etcd has stopped")
	case <-ctx.Done():
		err = ctx.Err()
	}
	stopping.Store(true)
	e.Close()
	return nil, fmt.Errorf("start etcd: %w", err)
}

func memberConfig(cfg Config, client string, stopping *atomic.Bool, disk *disk) *embed.Config {
	c := embed.NewConfig()
	c.Name = "portico"
	c.Dir = cfg.Dir
	c.TickMs = uint(tick.Milliseconds())
	c.ElectionMs = uint(election.Milliseconds())
	c.ListenClientUrls = []url.URL{{Scheme: "unix", Path: client}}
	c.AdvertiseClientUrls = c.ListenClientUrls
	c.ListenPeerUrls = nil
	// No listener has this name, which is part of the stored data and must not depend on the
	// folder.
	c.AdvertisePeerUrls = []url.URL{{Scheme: "unix", Host: "portico-peer"}}
	c.InitialCluster = c.InitialClusterFromName(c.Name)
	c.InitialClusterToken = "portico"
	c.EnableGRPCGateway = false
	c.AutoCompactionRetention = "0"
	c.QuotaBackendBytes = cfg.Quota
	c.SnapshotCount = snapshotEvery
	c.SnapshotCatchUpEntries = snapshotKeep
	c.GRPCAdditionalServerOptions = []grpc.ServerOption{
		grpc.StaticStreamWindowSize(streamWindow), grpc.StaticConnWindowSize(connWindow),
		grpc.ChainUnaryInterceptor(disk.intercept),
	}
	c.LogLevel = "warn"
	if cfg.Logger.Enabled(context.Background(), slog.LevelDebug) {
		c.LogLevel = "info"
	}
	c.ZapLoggerBuilder = embed.NewZapLoggerBuilder(newZapLogger(cfg.Logger.With("by", "etcd"), stopping, cfg.OnFatal))
	return c
}

// Endpoint returns the URL that clients dial: unix:///path.
func (s *Server) Endpoint() string { return s.endpoint }

// Failed receives an error if the member stops serving by itself.
func (s *Server) Failed() <-chan error { return s.etcd.Err() }

// Close stops the member and returns when its files are closed. Requests in progress have
// some seconds to finish.
func (s *Server) Close() {
	s.stop()
	s.watching.Wait()
	s.stopping.Store(true)
	s.etcd.Close()
}
