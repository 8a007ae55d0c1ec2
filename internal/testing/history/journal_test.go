package history_test

import (
	"context"
	"strings"
	"sync"
	"testing"

	"portico/internal/testing/history"
	"portico/resource"
)

// journal records commits in order.
type journal struct {
	mu      sync.Mutex
	commits []history.Commit
	rev     int64
	moved   chan struct{}
}

func newJournal() *journal { return &journal{moved: make(chan struct{})} }

// add appends commits, which are complete up to rev.
func (j *journal) add(rev int64, commits ...history.Commit) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.commits = append(j.commits, commits...)
	j.rev = max(j.rev, rev)
	close(j.moved)
	j.moved = make(chan struct{})
}

// position returns the revision up to which the journal is complete.
func (j *journal) position() int64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.rev
}

// read is history.System.Journal.
func (j *journal) read(ctx context.Context, upTo int64) ([]history.Commit, error) {
	for {
		j.mu.Lock()
		rev, commits, moved := j.rev, j.commits, j.moved
		j.mu.Unlock()
		if rev >= upTo {
			return commits, nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// keyOf parses a storage path of history.Info.
func keyOf(path string) resource.Key {
	namespace, name, _ := strings.Cut(strings.TrimPrefix(path, history.Info().RangePath("")), "/")
	return resource.Key{Namespace: namespace, Name: name}
}

// journalOf records the changes of a feed of an empty storage.
func journalOf(t *testing.T, feed resource.Feed) *journal {
	j := newJournal()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = feed.Run(ctx, feedJournal{t, j}) // it returns ctx's error
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	if _, err := j.read(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	return j
}

type feedJournal struct {
	t *testing.T
	*journal
}

func (j feedJournal) Reset(rev int64, state []resource.Change) {
	if len(state) > 0 {
		j.t.Errorf("the journal begins late, at %d", rev)
	}
	j.add(rev)
}

func (j feedJournal) Apply(changes []resource.Change) {
	for _, c := range changes {
		j.add(c.Revision, history.Commit{Revision: c.Revision, Key: keyOf(c.Path), Object: c.Object})
	}
}

func (j feedJournal) Progress(rev int64) { j.add(rev) }
