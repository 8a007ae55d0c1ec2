// Package etcdtest starts real etcd servers in the process of a test, behind relays that can
// pause and cut the connections of clients.
//
// Runs in: tests.
package etcdtest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"go.etcd.io/etcd/server/v3/embed"
)

// Server is an etcd on unix sockets, with a relay for its clients.
type Server struct {
	*Relay
	// Etcd is the running server; nil while it is stopped.
	Etcd *embed.Etcd
	// DataDir has its data.
	DataDir string

	dir       string // short, because the address of a socket is
	configure []func(*embed.Config)
	relays    []*Relay
}

// Start returns a running server, which ends with the test.
func Start(tb testing.TB, configure ...func(*embed.Config)) *Server {
	tb.Helper()
	s := prepare(tb, configure...)
	if err := s.Start(tb.Context()); err != nil {
		tb.Fatal(err)
	}
	return s
}

// StartCluster returns n running members of one cluster.
func StartCluster(tb testing.TB, n int) []*Server {
	tb.Helper()
	members, names := make([]*Server, n), make([]string, n)
	// An address of its own, because a port that was free may not be free any more.
	network := rand.IntN(250 << 8)
	for i := range members {
		peer := url.URL{Scheme: "http", Host: fmt.Sprintf("127.%d.%d.%d:2380", 1+network>>8, network&255, 1+i)}
		names[i] = fmt.Sprintf("m%d=%s", i, &peer)
		members[i] = prepare(tb, func(cfg *embed.Config) {
			cfg.Name, cfg.InitialCluster = fmt.Sprint("m", i), strings.Join(names, ",")
			cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
			cfg.TickMs, cfg.ElectionMs = 50, 500 // on a busy machine
		})
	}
	if err := StartAll(tb.Context(), members...); err != nil {
		tb.Fatal(err)
	}
	return members
}

func prepare(tb testing.TB, configure ...func(*embed.Config)) *Server {
	tb.Helper()
	dir, err := os.MkdirTemp("", "p")
	if err != nil {
		tb.Fatal(err)
	}
	s := &Server{dir: dir, DataDir: filepath.Join(dir, "d"), configure: configure}
	tb.Cleanup(func() {
		s.Stop()
		for _, r := range s.relays {
			r.Close()
		}
		os.RemoveAll(dir)
	})
	s.Relay = s.NewRelay(tb)
	return s
}

// NewRelay returns another relay for clients of the server.
func (s *Server) NewRelay(tb testing.TB) *Relay {
	tb.Helper()
	r, err := Listen("unix", filepath.Join(s.dir, strconv.Itoa(len(s.relays))), s.socket("e"), nil)
	if err != nil {
		tb.Fatal(err)
	}
	s.relays = append(s.relays, r)
	return r
}

func (s *Server) socket(name string) string { return filepath.Join(s.dir, name) }

// DirectEndpoint returns the URL of the server without a relay.
func (s *Server) DirectEndpoint() string { return "unix://" + s.socket("e") }

// Start starts a stopped server, waits until it serves, and mends its relays.
func (s *Server) Start(ctx context.Context) error { return StartAll(ctx, s) }

// StartAll starts members of a cluster, which wait for each other.
func StartAll(ctx context.Context, members ...*Server) error {
	for _, s := range members {
		if err := s.launch(); err != nil {
			return err
		}
	}
	for _, s := range members {
		select {
		case <-s.Etcd.Server.ReadyNotify():
		case <-ctx.Done():
			return ctx.Err()
		}
		for _, r := range s.relays {
			r.Mend()
		}
	}
	return nil
}

func (s *Server) launch() error {
	cfg := embed.NewConfig()
	cfg.Dir = s.DataDir
	client, peer := url.URL{Scheme: "unix", Path: s.socket("e")}, url.URL{Scheme: "unix", Path: s.socket("p")}
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	cfg.TickMs, cfg.ElectionMs = 10, 100
	cfg.UnsafeNoFsync = true // the process does not end, so nothing is lost
	cfg.LogLevel, cfg.LogOutputs = "error", []string{os.DevNull}
	for _, f := range s.configure {
		f(cfg)
	}
	etcd, err := embed.StartEtcd(cfg)
	if err != nil {
		return fmt.Errorf("start etcd: %w", err)
	}
	s.Etcd = etcd
	return nil
}

// Stop cuts the connections of the clients, for which etcd would wait, and stops the server.
func (s *Server) Stop() {
	for _, r := range s.relays {
		r.Cut()
	}
	if s.Etcd != nil {
		s.Etcd.Close()
		s.Etcd = nil
	}
}

// Partition drops the messages between a member and the others, or no longer does. The
// member then answers its clients without a quorum, and with an old revision.
func (s *Server) Partition(others []*Server, drop bool) {
	for _, other := range others {
		here, there := s.Etcd.Server, other.Etcd.Server
		if drop {
			here.CutPeer(there.MemberID())
			there.CutPeer(here.MemberID())
		} else {
			here.MendPeer(there.MemberID())
			there.MendPeer(here.MemberID())
		}
	}
}
