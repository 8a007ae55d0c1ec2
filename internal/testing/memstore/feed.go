package memstore

import (
	"context"

	"portico/resource"
)

// feed is a Feed over the whole storage.
type feed struct{ *Storage }

// Feed returns a feed over the whole storage.
func (s *Storage) Feed() resource.Feed { return feed{s} }

// Run delivers to sink until ctx ends.
func (f feed) Run(ctx context.Context, sink resource.FeedSink) error {
	pos, asked := f.reset(sink)
	for {
		f.mu.Lock()
		lost, changed := pos < f.oldest(), f.changed
		var changes []resource.Change
		if !lost {
			changes = feedChanges(f.since(pos))
		}
		now, progress := f.last().rev, f.asked != asked
		asked = f.asked
		f.mu.Unlock()
		switch {
		case lost:
			pos, asked = f.reset(sink)
			continue
		case len(changes) > 0:
			sink.Apply(changes)
			pos = now
		}
		if progress {
			sink.Progress(now)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// reset delivers the whole state and returns its revision and the number of requests for
// progress that it answers.
func (f feed) reset(sink resource.FeedSink) (pos, asked int64) {
	f.mu.Lock()
	snap := f.last()
	asked = f.asked
	state := make([]resource.Change, 0, snap.tree.Len())
	snap.tree.Scan(func(e *entry) bool {
		state = append(state, resource.Change{Path: e.path, Object: e.object, Revision: e.object.Revision})
		return true
	})
	f.mu.Unlock()
	sink.Reset(snap.rev, state)
	return snap.rev, asked
}

func feedChanges(log []change) []resource.Change {
	out := make([]resource.Change, 0, len(log))
	for _, c := range log {
		out = append(out, resource.Change{Path: c.path, Object: c.cur, Revision: c.rev, Create: c.prev == nil})
	}
	return out
}

// Current returns the storage's revision.
func (f feed) Current(ctx context.Context) (int64, error) { return f.Revision(), nil }

// RequestProgress makes every running feed call Progress.
func (f feed) RequestProgress(ctx context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked++
	f.wake()
	return nil
}
