package embedetcd

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"portico/internal/testing/await"
)

// A database file that is mostly free is made smaller, at most once in a while.
func TestTidy(t *testing.T) {
	t.Parallel()
	s, client := start(t, t.TempDir(), shortDir(t))
	defer s.Close()
	defer client.Close()
	ctx, value := t.Context(), strings.Repeat("x", 1<<20)
	fill := func() {
		t.Helper()
		for i := range tidySize>>20 + 8 {
			if _, err := client.Put(ctx, fmt.Sprint("a", i%4), value); err != nil {
				t.Fatal(err)
			}
		}
		last, err := client.Delete(ctx, "a1")
		if err != nil {
			t.Fatal(err)
		}
		if err := s.compact(ctx, last.Header.Revision); err != nil {
			t.Fatal(err)
		}
	}
	size := func() int64 { return s.etcd.Server.Backend().Size() }
	fill()
	before := size()
	// Pages that compaction removes count as free some commits later, and only writes are committed.
	await.Until(t, "the removed values are free pages", func() bool {
		if _, err := client.Put(ctx, "b", ""); err != nil {
			t.Fatal(err)
		}
		used, _ := s.space()
		return used < tidySize/4
	})
	if err := s.relieveOnce(ctx, 0); err != nil {
		t.Fatal(err)
	}
	if now := size(); now > tidySize/2 {
		t.Errorf("%d bytes, %d before", now, before)
	}
	fill()
	before = size()
	if err := s.relieveOnce(ctx, 0); err != nil || size() != before {
		t.Errorf("a second time within the hour: %d bytes, %d before: %v", size(), before, err)
	}
	got, err := client.Get(ctx, "a2")
	if err != nil || len(got.Kvs) != 1 {
		t.Errorf("after all: %v %v", got, err)
	}
}

// Data that is marked as corrupt is not served.
func TestCorrupt(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, client := start(t, dir, shortDir(t))
	client.Close()
	member := s.etcd.Server
	if err := s.corrupt(); err != nil {
		t.Error(err)
	}
	_, err := member.Alarm(t.Context(), &etcdserverpb.AlarmRequest{Action: etcdserverpb.AlarmRequest_ACTIVATE, Alarm: etcdserverpb.AlarmType_CORRUPT, MemberID: uint64(member.MemberID())})
	if err != nil {
		t.Fatal(err)
	}
	if s.corrupt() == nil {
		t.Error("the alarm is not seen")
	}
	s.Close()
	ctx, cancel := context.WithTimeout(t.Context(), await.Patience())
	defer cancel()
	_, err = Start(ctx, Config{Dir: dir, SocketDir: shortDir(t), Logger: slog.New(slog.DiscardHandler)})
	if err == nil || !strings.Contains(err.Error(), "its data is marked as corrupt (alarm CORRUPT)") {
		t.Errorf("got %v", err)
	}
}
