package history

import (
	"context"
	"strings"
	"sync"

	"portico/resource"
)

// Journal records commits in order. It is safe for concurrent use.
type Journal struct {
	mu      sync.Mutex
	commits []Commit
	rev     int64
	moved   chan struct{}
}

// NewJournal returns an empty Journal.
func NewJournal() *Journal { return &Journal{moved: make(chan struct{})} }

// Add appends commits, which are complete up to rev.
func (j *Journal) Add(rev int64, commits ...Commit) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.commits = append(j.commits, commits...)
	j.rev = max(j.rev, rev)
	close(j.moved)
	j.moved = make(chan struct{})
}

// Position returns the revision up to which the journal is complete.
func (j *Journal) Position() int64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.rev
}

// Read is System.Journal.
func (j *Journal) Read(ctx context.Context, upTo int64) ([]Commit, error) {
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

// KeyOf parses a storage path of Info.
func KeyOf(path string) resource.Key {
	namespace, name, _ := strings.Cut(strings.TrimPrefix(path, Info().RangePath("")), "/")
	return resource.Key{Namespace: namespace, Name: name}
}
