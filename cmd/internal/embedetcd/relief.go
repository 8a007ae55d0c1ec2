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
	// reliefHistory is the number of intervals of history that a full member keeps: with the
	// default 90 s, for watches that resume and lists in pages.
	reliefHistory = 3
	// reliefRoom is the part of the quota that must be free before a full member accepts
	// writes again; with less it would be full at once.
	reliefRoom = 0.1
	// shrinkWorth is how many bytes of the database file must be free before it is copied to
	// return them to the disk: bbolt lets its file grow by as much.
	shrinkWorth = 16 << 20
)

// relieve makes a full member accept writes again, until ctx ends. At its quota etcd rejects
// writes until it was compacted and defragmented and its alarm was ended. An embedded member
// has no operator for that, and the periodic compaction is too rare.
func (s *Server) relieve(ctx context.Context, interval time.Duration) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	var seen [reliefHistory]int64 // revisions at the last ticks, oldest first
	refusing := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		err := s.relieveOnce(ctx, seen[0])
		if err != nil && ctx.Err() == nil && !refusing {
			s.log.Error("etcd has no room: writes are rejected with 507 until it has", "error", err)
		}
		refusing = err != nil
		copy(seen[:], seen[1:])
		seen[reliefHistory-1] = s.etcd.Server.KV().Rev()
	}
}

// relieveOnce ends the alarm of a full member if there is room after the history before a
// revision was removed; 0 removes none.
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
	s.log.Info("etcd was full and accepts writes again", "free", room)
	return nil
}

// full reports whether the member rejects writes because it is at its quota.
func (s *Server) full() bool {
	for _, alarm := range s.etcd.Server.Alarms() {
		if alarm.Alarm == etcdserverpb.AlarmType_NOSPACE {
			return true
		}
	}
	return false
}

// compact removes the history before a revision; 0 removes none.
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

// shrink makes the database file smaller if it has many free pages, which removed objects
// leave. The file is copied, so both must fit the disk.
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
