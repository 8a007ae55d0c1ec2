package embedetcd

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
)

const (
	// defaultReliefInterval is Config.ReliefInterval where that is 0.
	defaultReliefInterval = 30 * time.Second
	// reliefHistory is how many intervals of history a full member keeps: with
	// the default, 90 s, which is what watchers and readers of pages count on.
	reliefHistory = 3
	// reliefRoom is the part of the quota that must be free before a full
	// member takes writes again; with less, it would be full at once.
	reliefRoom = 0.1
	// shrinkWorth is how many bytes the database must have free before it is
	// copied for the sake of the disk: bbolt lets its file grow by as much.
	shrinkWorth = 16 << 20
)

// relieve watches over a full member until ctx ends. etcd that has come to its
// quota refuses writes until somebody compacts it, returns the space that this
// left inside its file, and says that it may go on. For a member of its own
// there is no operator who would; and the process that compacts it does so at
// its leisure, which is too long when nobody can write.
func (s *Server) relieve(ctx context.Context, interval time.Duration) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	var seen [reliefHistory]int64 // the revisions at the last ticks, oldest first
	refusing := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		err := s.relieveOnce(ctx, seen[0])
		if err != nil && ctx.Err() == nil && !refusing {
			s.log.Error("etcd has no room: writes are refused with 507 until it has", "error", err)
		}
		refusing = err != nil
		copy(seen[:], seen[1:])
		seen[reliefHistory-1] = s.etcd.Server.KV().Rev()
	}
}

// relieveOnce ends the alarm of a full member if there is room again once the
// history before a revision is gone; 0 leaves it.
func (s *Server) relieveOnce(ctx context.Context, before int64) error {
	if s.disk.isLow() {
		return s.shrink(ctx, before)
	}
	if !s.full() {
		return nil
	}
	member := s.etcd.Server
	if err := s.compact(ctx, before); err != nil {
		return err
	}
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

// full reports whether the member is at its quota, and refuses writes for that.
func (s *Server) full() bool {
	for _, alarm := range s.etcd.Server.Alarms() {
		if alarm.Alarm == etcdserverpb.AlarmType_NOSPACE {
			return true
		}
	}
	return false
}

// compact removes the history before a revision; 0 leaves it.
func (s *Server) compact(ctx context.Context, before int64) error {
	if before == 0 {
		return nil
	}
	_, err := s.etcd.Server.Compact(ctx, &etcdserverpb.CompactionRequest{Revision: before, Physical: true})
	if err != nil && !errors.Is(err, mvcc.ErrCompacted) {
		return fmt.Errorf("compact: %w", err)
	}
	return nil
}

// shrink makes the database file smaller where that gives the disk space back:
// removed objects leave free pages inside the file. The file is copied, so the
// copy must fit beside it.
func (s *Server) shrink(ctx context.Context, before int64) error {
	if err := s.compact(ctx, before); err != nil {
		return err
	}
	db := s.etcd.Server.Backend()
	free, err := s.disk.free(s.disk.dir)
	if err != nil {
		return err
	}
	used, size := uint64(db.SizeInUse()), uint64(db.Size())
	if size-min(used, size) < shrinkWorth || free < used+shrinkWorth/2 {
		return nil
	}
	if err := db.Defrag(); err != nil {
		return fmt.Errorf("defragment: %w", err)
	}
	s.log.Info("made the database smaller because the disk is nearly full", "before", size, "after", db.Size())
	return nil
}
