package history_test

import (
	"context"
	"testing"

	"portico/internal/testing/history"
	"portico/resource"
)

// journalOf records the changes of a feed of an empty storage.
func journalOf(t *testing.T, feed resource.Feed) *history.Journal {
	j := history.NewJournal()
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
	if _, err := j.Read(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	return j
}

type feedJournal struct {
	t *testing.T
	*history.Journal
}

func (j feedJournal) Reset(rev int64, state []resource.Change) {
	if len(state) > 0 {
		j.t.Errorf("the journal begins late, at %d", rev)
	}
	j.Add(rev)
}

func (j feedJournal) Apply(changes []resource.Change) {
	for _, c := range changes {
		j.Add(c.Revision, history.Commit{Revision: c.Revision, Key: history.KeyOf(c.Path), Object: c.Object})
	}
}

func (j feedJournal) Progress(rev int64) { j.Add(rev) }
