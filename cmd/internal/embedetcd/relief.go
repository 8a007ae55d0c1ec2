package embedetcd

import (
	"context"
	"errors"
	"fmt"
	"slices"
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
	// tidySize is the size of a database file, in bytes, from which on it is copied when more than
	// half of it is free; tidyMost is how many bytes may be in use then. etcd answers nothing while
	// it copies: 2 s for 200 MiB on a busy machine.
	tidySize = 64 << 20
	tidyMost = 256 << 20
	// tidyEvery is the least time between two such copies.
	tidyEvery = time.Hour
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
	refusing, corrupt := false, false
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if err := s.corrupt(); err != nil && !corrupt {
			corrupt = true
			s.log.Error("etcd rejects all requests: " + err.Error() + ": restore a backup")
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
	if !s.alarmed(etcdserverpb.AlarmType_NOSPACE) {
		s.tidy()
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
	if err := s.defragment("it was full"); err != nil {
		return err
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

// alarmed reports whether an alarm is on: NOSPACE of a member that rejects writes because it is at
// its quota, CORRUPT of one that rejects everything.
func (s *Server) alarmed(kind etcdserverpb.AlarmType) bool {
	return slices.ContainsFunc(s.etcd.Server.Alarms(), func(a *etcdserverpb.AlarmMember) bool { return a.Alarm == kind })
}

// corrupt returns an error if the data is marked as corrupt, which the member of a cluster does
// that finds other data in other members.
func (s *Server) corrupt() error {
	if s.alarmed(etcdserverpb.AlarmType_CORRUPT) {
		return errors.New("its data is marked as corrupt (alarm CORRUPT)")
	}
	return nil
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

// tidy makes the database file smaller if most of it is free, which removed objects leave: etcd
// reads all of the file when it starts, and so does a backup.
func (s *Server) tidy() {
	used, size := s.space()
	if size < tidySize || used > tidyMost || size-used <= size/2 || time.Since(s.tidied) < tidyEvery {
		return
	}
	s.tidied = time.Now()
	if free, err := s.disk.free(s.disk.dir); err != nil || free < used+diskReserve {
		return
	}
	if err := s.defragment("most of it was free"); err != nil {
		s.log.Warn("the database keeps its size", "bytes", size, "error", err)
	}
}

// shrink makes the database file smaller if it has many free pages and the copy fits the disk.
func (s *Server) shrink(ctx context.Context, before int64) error {
	if err := s.compact(ctx, before); err != nil {
		return err
	}
	free, err := s.disk.free(s.disk.dir)
	if err != nil {
		return err
	}
	used, size := s.space()
	if size-used < shrinkWorth || free < used+shrinkWorth/2 {
		return nil
	}
	return s.defragment("the disk is nearly full")
}

// space returns how many bytes of the database file are in use, and its size.
func (s *Server) space() (used, size uint64) {
	db := s.etcd.Server.Backend()
	size = uint64(db.Size())
	return min(uint64(db.SizeInUse()), size), size
}

// defragment copies the database to a file without free pages. Nothing is answered meanwhile.
func (s *Server) defragment(why string) error {
	start, db := time.Now(), s.etcd.Server.Backend()
	before := db.Size()
	if err := db.Defrag(); err != nil {
		return fmt.Errorf("defragment: %w", err)
	}
	s.log.Info("made the database smaller: "+why, "bytesBefore", before, "bytes", db.Size(), "took", time.Since(start))
	return nil
}
