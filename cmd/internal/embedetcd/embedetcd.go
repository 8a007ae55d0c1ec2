// Package embedetcd runs a single etcd member inside this process, on unix
// sockets, for an installation that has no etcd of its own.
//
// Decisions:
//
//   - Clients connect to a unix socket in a private folder: only a user that may
//     enter the folder reads or writes the data.
//   - No peer listener. A single member has no peers, and the raft handler behind
//     such a listener commits the entries of any process that connects to it.
//   - A tick of 10 ms and an election timeout of 100 ms: alone, a member waits
//     out one election timeout before it serves, so this is most of its start
//     time. Neither value matters to a member without peers otherwise.
//   - No compaction of its own: one of the processes that store compacts, with
//     a protocol they share.
//   - A member that has come to its quota is the exception: it compacts by itself
//     (relief.go says to where), is defragmented and takes writes again once there
//     is room. Nobody else would see to it.
//   - A short raft log: no follower will ever ask for old entries, and every
//     entry kept is memory.
//   - A disk that is nearly full refuses writes before etcd fails on it (disk.go).
//     etcd cannot continue after a failed write of its own: it exits, and so does
//     the process that it runs in. The caller starts that process again.
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

	// What a client may send of one request, and of all together, before it hears
	// that there is room for more. Fixed, because gRPC's own measure of it costs a
	// ping and its answer for nearly every write.
	streamWindow = 2 << 20
	connWindow   = 16 << 20
)

// Config says where the member keeps what.
type Config struct {
	// Dir holds the data; made with mode 0700.
	Dir string
	// SocketDir holds the sockets; it must exist, and its path be short
	// enough for a socket's address.
	SocketDir string
	// Logger receives the member's own messages and, with by=etcd, etcd's warnings
	// and errors, and at debug level everything; nil is slog.Default().
	Logger *slog.Logger
	// Quota is the size of the database, in bytes, at which writes are refused;
	// 0 is 8 GiB, the most that etcd's documentation recommends.
	Quota int64
	// ReliefInterval is how often the member looks whether it is full; 0 is 30 s.
	ReliefInterval time.Duration
	// OnFatal is called with the error that etcd cannot continue after, from any
	// goroutine, and must end the process; nil lets etcd exit or panic by itself.
	OnFatal func(error)
	// FreeSpace returns the free space, in bytes, of the file system of a folder;
	// nil asks the system. It is called for every write.
	FreeSpace func(dir string) (uint64, error)
}

// Server is a running member.
type Server struct {
	etcd     *embed.Etcd
	endpoint string
	quota    int64
	log      *slog.Logger
	disk     *disk
	stop     context.CancelFunc // ends what watches over the member
	watching sync.WaitGroup
	stopping *atomic.Bool
}

// Start starts the member and returns when it serves, or when ctx ends. The
// caller sees to it that no other process uses Dir.
func Start(ctx context.Context, cfg Config) (*Server, error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	if cfg.Quota == 0 {
		cfg.Quota = defaultQuota
	}
	if cfg.ReliefInterval == 0 {
		cfg.ReliefInterval = defaultReliefInterval
	}
	if cfg.FreeSpace == nil {
		cfg.FreeSpace = freeSpace
	}
	client := filepath.Join(cfg.SocketDir, "etcd.sock")
	// The socket of a killed process would be taken for a member in use.
	if err := os.Remove(client); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("remove old etcd socket: %w", err)
	}
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("create etcd folder: %w", err)
	}
	stopping := new(atomic.Bool)
	disk := &disk{dir: cfg.Dir, free: cfg.FreeSpace, log: cfg.Logger}
	e, err := embed.StartEtcd(memberConfig(cfg, client, stopping, disk))
	if err != nil {
		return nil, fmt.Errorf("start etcd: %w", err)
	}
	s := &Server{etcd: e, endpoint: "unix://" + client, quota: cfg.Quota, log: cfg.Logger, disk: disk, stopping: stopping}
	select {
	case <-e.Server.ReadyNotify():
		// etcd makes the socket with the process's umask. Its folder is private as well.
		if err := os.Chmod(client, 0o600); err != nil {
			stopping.Store(true)
			e.Close()
			return nil, fmt.Errorf("restrict etcd socket: %w", err)
		}
		var watch context.Context
		watch, s.stop = context.WithCancel(context.Background())
		s.watching.Go(func() { s.relieve(watch, cfg.ReliefInterval) })
		return s, nil
	case err = <-e.Err():
	case <-e.Server.StopNotify():
		err = errors.New("it stopped by itself")
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
	// No listener has this name. It is part of the stored data, so it must not
	// depend on the folder.
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

// Close stops the member, letting requests that run finish first (for some
// seconds), and returns when its files are closed.
func (s *Server) Close() {
	s.stop()
	s.watching.Wait()
	s.stopping.Store(true)
	s.etcd.Close()
}
