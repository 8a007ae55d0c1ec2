package main

import (
	"context"
	"time"
)

// lostAfter is the time without events after which missing events count as lost.
const lostAfter = 10 * time.Second

// watchChain measures watches of the zero-work chain, which sends ready frames
// without end.
func (r *runner) watchChain(ctx context.Context) (sample, error) {
	ws, err := openWatchers(ctx, r.chain.client, chainWatch, r.o.watchers, nil)
	if err != nil {
		return sample{}, err
	}
	defer ws.close()
	began, before := time.Now(), ws.sum()
	select {
	case <-ws.ctx.Done():
		return sample{}, context.Cause(ws.ctx)
	case <-time.After(r.o.time):
	}
	return sample{ops: ws.sum() - before, took: time.Since(began)}, nil
}

// watchLive measures watches of objects that are updated at the same time, until
// every watcher has received every update. The latencies are from the request of an
// update to the delivery of its event.
func (r *runner) watchLive(ctx context.Context, s *subject, now *present) (sample, error) {
	sent := newUpdates(r.updated + 1)
	ws, err := openWatchers(ctx, r.target, watchPath(s, now.revision), r.o.watchers, sent)
	if err != nil {
		return sample{}, err
	}
	defer ws.close()
	paced, cancel := context.WithCancel(ws.ctx)
	defer cancel()
	permits := r.pace(paced, ws)
	began := time.Now()
	// The objects are divided among the workers, so that no two update the same one.
	turns := make([]int, r.o.workers)
	updates, err := drive(ws.ctx, r.o.workers, bound{maxUpdates, r.o.time}, nil, func(ctx context.Context, worker, i int) (int64, error) {
		select {
		case <-permits:
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
		object := worker + r.o.workers*(turns[worker]%(r.o.objects/r.o.workers))
		turns[worker]++
		body := s.body(object, sent.begin(i), now.versions[object])
		answer, err := r.target.read(ctx, worker, request{method: "PUT", path: s.objectPath(object), contentType: jsonType, body: body})
		now.versions[object] = versionIn(answer)
		return int64(len(answer)), err
	})
	r.updated += updates.ops
	if err != nil {
		return sample{}, err
	}
	if err := ws.wait(updates.ops, lostAfter); err != nil {
		return sample{}, err
	}
	got := sample{ops: updates.ops * int64(r.o.watchers), took: time.Since(began)}
	ws.close()
	got.latencies = ws.latencies()
	r.lastWatch = replay{since: now.revision, first: sent.first, events: updates.ops}
	return got, ws.verify(sent.first, updates.ops)
}

// pace issues a permit for each update: at the rate of --updates, and while the
// slowest watcher is at most --window behind, which bounds the events in flight.
func (r *runner) pace(ctx context.Context, ws *watchers) <-chan struct{} {
	permits := make(chan struct{})
	began := time.Now()
	go func() {
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for issued := int64(0); ; {
			allowed := ws.slowest() + int64(r.o.window)
			if r.o.updates > 0 {
				allowed = min(allowed, int64(time.Since(began).Seconds()*float64(r.o.updates)))
			}
			for ; issued < allowed; issued++ {
				select {
				case permits <- struct{}{}:
				case <-ctx.Done():
					return
				}
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
	}()
	return permits
}

// replay describes the events of a watchLive.
type replay struct {
	since         string
	first, events int64
}

// watchReplay measures watches that start at the revision at which the last
// watchLive started, and receive its events without concurrent updates.
func (r *runner) watchReplay(ctx context.Context, s *subject) (sample, error) {
	began := time.Now()
	ws, err := openWatchers(ctx, r.target, watchPath(s, r.lastWatch.since), r.o.watchers, &updates{first: r.lastWatch.first})
	if err != nil {
		return sample{}, err
	}
	defer ws.close()
	if err := ws.wait(r.lastWatch.events, lostAfter); err != nil {
		return sample{}, err
	}
	got := sample{ops: r.lastWatch.events * int64(r.o.watchers), took: time.Since(began)}
	ws.close()
	return got, ws.verify(r.lastWatch.first, r.lastWatch.events)
}

func watchPath(s *subject, since string) string {
	return s.list() + "?watch=true&resourceVersion=" + since
}
