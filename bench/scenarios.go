package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"
)

// Bars of Portico: least shares of the yardsticks, and the most MB of anonymous memory of
// the CRD server with 5,000 objects of 3.5 KB.
const (
	createBar = 0.20
	getBar    = 0.45
	listBar   = 1.00
	watchBar  = 0.85
	memoryBar = 60
)

func perSecond(unit string) func(sample) string {
	return func(s sample) string { return fmt.Sprintf("%.0f %s/s", s.rate(), unit) }
}

func megabytes(s sample) float64 { return float64(s.bytes) / 1e6 / s.took.Seconds() }

// createAll measures create. Each round creates an equal part of the objects.
func (r *runner) createAll(ctx context.Context, s *subject, size int64) error {
	var done atomic.Int64
	defer r.progress.follow("create "+s.name, &done, r.o.objects)()
	ours := contender{"create " + s.name, r.procs, profileName("create", s), nil, func(ctx context.Context, round int) (sample, error) {
		from, to := r.o.objects*round/r.o.rounds, r.o.objects*(round+1)/r.o.rounds
		got, err := drive(ctx, r.o.workers, bound{to - from, r.o.limit}, &done, func(ctx context.Context, worker, i int) (int64, error) {
			return r.target.discard(ctx, worker, request{method: "POST", path: s.list(), contentType: jsonType, body: s.body(from+i, 0, "")})
		})
		if err == nil && got.ops < int64(to-from) {
			err = fmt.Errorf("only %d of %d were created within %v", got.ops, to-from, r.o.limit)
		}
		return got, err
	}}
	all := []contender{ours}
	if r.etcd != nil {
		r.etcd.value = r.etcd.value[:min(len(r.etcd.value), int(size))]
		all = append(all, contender{"create, raw etcd", r.procs, "", r.etcd.clear, func(ctx context.Context, _ int) (sample, error) {
			return drive(ctx, r.o.workers, bound{r.o.objects, r.o.limit}, nil, r.etcd.create)
		}})
	}
	results, err := r.turns(ctx, perSecond("creates"), all...)
	if err != nil {
		return err
	}
	line := row{what: "create " + s.name, unit: "creates/s", figure: sample.rate, ours: results[0]}
	if r.etcd != nil {
		line.yardstick, line.yard, line.bar = "raw etcd", results[1], createBar
	}
	if r.o.runs(scenarioCreate) {
		r.report.add(line)
	}
	return nil
}

func profileName(scenario string, s *subject) string { return scenario + "-" + s.resource }

// expect returns an error unless the length of an answer differs by at most 64
// bytes from want: revisions differ in their number of digits.
func expect(path string, got, want int64, err error) (int64, error) {
	if err == nil && (got < want-64 || got > want+64) {
		err = fmt.Errorf("%s: the answer has %d bytes, not %d", path, got, want)
	}
	return got, err
}

// getAll measures GET with resourceVersion unset and 0.
func (r *runner) getAll(ctx context.Context, s *subject, size int64) error {
	limit := bound{r.o.gets, r.o.time}
	get := func(p *client, path func(i int) string) func(context.Context, int) (sample, error) {
		return func(ctx context.Context, _ int) (sample, error) {
			return drive(ctx, r.o.workers, limit, nil, func(ctx context.Context, worker, i int) (int64, error) {
				n, err := p.discard(ctx, worker, request{path: path(i)})
				return expect(path(i), n, size, err)
			})
		}
	}
	// A prime step, so that consecutive requests read distant objects.
	object := func(i int) string { return s.objectPath(i * 7919 % r.o.objects) }
	results, err := r.turns(ctx, perSecond("GETs"),
		contender{"GET, zero-work chain", r.chain.processes(), "", nil, get(r.chain.client, func(i int) string { return chainObject + object(i) })},
		contender{"GET, unset", r.procs, profileName("get", s), nil, get(r.target, object)},
		contender{"GET, 0", r.procs, profileName("get0", s), nil, get(r.target, func(i int) string { return object(i) + "?resourceVersion=0" })},
	)
	if err != nil {
		return err
	}
	for i, line := range []row{{what: "GET, resourceVersion unset", bar: getBar}, {what: "GET, resourceVersion 0", bar: getBar}} {
		line.what += ", " + s.name
		line.unit, line.figure, line.ours, line.yardstick, line.yard = "GETs/s", sample.rate, results[i+1], "chain", results[0]
		r.report.add(line)
	}
	return nil
}

// listAll measures LIST of all objects, in JSON and in protobuf if the kind has it.
func (r *runner) listAll(ctx context.Context, s *subject, size int64) error {
	limit := bound{r.o.lists, 10 * r.o.time}
	list := func(p *client, path, accept string, size int64) func(context.Context, int) (sample, error) {
		return func(ctx context.Context, _ int) (sample, error) {
			return drive(ctx, r.o.workers, limit, nil, func(ctx context.Context, worker, _ int) (int64, error) {
				n, err := p.discard(ctx, worker, request{path: path, accept: accept})
				return expect(path, n, size, err)
			})
		}
	}
	all := []contender{
		{"LIST, zero-work chain", r.chain.processes(), "", nil, list(r.chain.client, chainList, jsonType, size)},
		{"LIST", r.procs, profileName("list", s), nil, list(r.target, s.list(), jsonType, size)},
	}
	sizes := []int64{size, size}
	if s.protobuf {
		data, err := r.target.read(ctx, 0, request{path: s.list(), accept: protobufType})
		if err != nil {
			return err
		}
		sizes = append(sizes, int64(len(data)))
		all = append(all, contender{"LIST in protobuf", r.procs, profileName("list-protobuf", s), nil, list(r.target, s.list(), protobufType, sizes[2])})
	}
	results, err := r.turns(ctx, func(s sample) string { return fmt.Sprintf("%.0f MB/s", megabytes(s)) }, all...)
	if err != nil {
		return err
	}
	var lists int64
	for i, ours := range results[1:] {
		r.report.add(row{
			what: fmt.Sprintf("%s of %d %s (%.1f MB)", all[i+1].name, r.o.objects, s.name, float64(sizes[i+1])/1e6),
			unit: "MB/s", figure: megabytes, ours: ours, yardstick: "chain", yard: results[0], bar: listBar,
		})
		lists += total(ours).ops
	}
	return r.addServerMemory(ctx, s, fmt.Sprintf("after %d LISTs of %s", lists, s.name), memoryBar)
}

// watchAll measures watches while objects are updated, then watches that receive
// the same events again from the history.
func (r *runner) watchAll(ctx context.Context, s *subject) error {
	figure := perSecond("deliveries")
	var now *present
	look := func(ctx context.Context) (err error) {
		now, err = s.listNow(ctx, r.target, r.o.objects)
		return err
	}
	results, err := r.turns(ctx, figure,
		contender{"watch, zero-work chain", r.chain.processes(), "", nil, func(ctx context.Context, _ int) (sample, error) { return r.watchChain(ctx) }},
		contender{"watch", r.procs, profileName("watch", s), look, func(ctx context.Context, _ int) (sample, error) { return r.watchLive(ctx, s, now) }},
	)
	if err != nil {
		return err
	}
	var total sample
	for _, s := range results[1] {
		total = total.add(s)
	}
	r.report.add(row{
		what: fmt.Sprintf("watch, %d watchers of %s, %.0f updates/s", r.o.watchers, s.name, total.rate()/float64(r.o.watchers)),
		unit: "deliveries/s", figure: sample.rate, ours: results[1], yardstick: "chain", yard: results[0], bar: watchBar,
	})
	r.addMemory(fmt.Sprintf("after %d deliveries", total.ops))
	again, err := r.turns(ctx, figure, contender{"watch, replay", r.procs, profileName("replay", s), nil, func(ctx context.Context, _ int) (sample, error) {
		return r.watchReplay(ctx, s)
	}})
	if err != nil {
		return err
	}
	r.report.add(row{
		what: fmt.Sprintf("watch, %d watchers sent %d past events each", r.o.watchers, r.lastWatch.events),
		unit: "deliveries/s", figure: sample.rate, ours: again[0], yardstick: "chain", yard: results[0],
	})
	return nil
}

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
	for {
		select {
		case <-ws.ctx.Done():
			return sample{}, context.Cause(ws.ctx)
		case <-time.After(r.o.time):
		}
		// Without a delivery the ratio would be infinite, which JSON cannot hold.
		if ops := ws.sum() - before; ops > 0 {
			return sample{ops: ops, took: time.Since(began)}, nil
		}
	}
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
