package embedetcd

import (
	"context"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
)

const (
	// reliefInterval is how often a member looks whether it is full.
	reliefInterval = 30 * time.Second
	// reliefRoom is the part of the quota that must be free before a full
	// member takes writes again; with less, it would be full at once.
	reliefRoom = 0.1
)

// relieve watches over a full member until ctx ends. etcd that has come to its
// quota refuses writes until somebody returns the space that compaction left
// inside its file, and says that it may go on. For a member of its own there is
// no operator who would.
func (s *Server) relieve(ctx context.Context) {
	tick := time.NewTicker(reliefInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if err := s.relieveOnce(ctx); err != nil && ctx.Err() == nil {
			s.log.Warn("etcd is full and could not be relieved", "error", err)
		}
	}
}

// relieveOnce ends the alarm of a full member if there is room again.
func (s *Server) relieveOnce(ctx context.Context) error {
	if !s.full() {
		return nil
	}
	member := s.etcd.Server
	room := s.quota - member.Backend().SizeInUse()
	if float64(room) < reliefRoom*float64(s.quota) {
		return fmt.Errorf("%d of %d bytes are in use: remove objects", s.quota-room, s.quota)
	}
	if err := member.Defragment(); err != nil {
		return fmt.Errorf("defragment: %w", err)
	}
	_, err := member.Alarm(ctx, &etcdserverpb.AlarmRequest{
		Action: etcdserverpb.AlarmRequest_DEACTIVATE, Alarm: etcdserverpb.AlarmType_NOSPACE, MemberID: uint64(member.MemberID()),
	})
	if err != nil {
		return fmt.Errorf("end alarm: %w", err)
	}
	s.log.Info("etcd was full and takes writes again", "free", room)
	return nil
}

// full reports whether the member refuses writes for lack of space.
func (s *Server) full() bool {
	for _, alarm := range s.etcd.Server.Alarms() {
		if alarm.Alarm == etcdserverpb.AlarmType_NOSPACE {
			return true
		}
	}
	return false
}
