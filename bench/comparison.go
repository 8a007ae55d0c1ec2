package main

import "context"

// compareWork measures work on custom resources in two installations, called names, in turns. The first is the yardstick,
// and bar the share of its rate that the second is to have.
func compareWork(ctx context.Context, report *report, runners [2]*runner, names [2]string, bar float64) error {
	var all [4][2]contender
	verbs := [...]string{"create", "GET", "LIST", "watch"}
	for i, r := range runners {
		s := customResources(r.group, r.namespace)
		if _, err := s.calibrate(ctx, r.target, r.o.size); err != nil {
			return err
		}
		var now *present
		look := func(ctx context.Context) (err error) {
			now, err = s.listNow(ctx, r.target, r.o.objects)
			return err
		}
		requests := func(limit bound, next func(i int) request) func(context.Context, int) (sample, error) {
			return func(ctx context.Context, _ int) (sample, error) {
				return drive(ctx, r.o.workers, limit, nil, func(ctx context.Context, worker, i int) (int64, error) {
					return r.target.discard(ctx, worker, next(i))
				})
			}
		}
		created := 0
		each := r.o.objects / r.o.rounds
		create := func(ctx context.Context, round int) (sample, error) {
			from := created
			created += each
			return requests(bound{each, r.o.limit}, func(i int) request {
				return request{method: "POST", path: s.list(), contentType: jsonType, body: s.body(from+i, 0, "")}
			})(ctx, round)
		}
		limit := bound{1 << 20, r.o.time}
		all[0][i] = contender{procs: r.procs, run: create}
		all[1][i] = contender{procs: r.procs, run: requests(limit, func(i int) request { return request{path: s.objectPath(i * 7919 % r.o.objects)} })}
		all[2][i] = contender{procs: r.procs, run: requests(limit, func(int) request { return request{path: s.list()} })}
		all[3][i] = contender{procs: r.procs, prepare: look, run: func(ctx context.Context, _ int) (sample, error) { return r.watchLive(ctx, s, now) }}
	}
	for i, pair := range all {
		for n := range pair {
			pair[n].name = verbs[i] + " with " + names[n]
		}
		results, err := runners[1].turns(ctx, perSecond(verbs[i]), pair[0], pair[1])
		if err != nil {
			return err
		}
		report.add(row{what: verbs[i] + ", custom resources", unit: "/s", figure: sample.rate, ours: results[1], yard: results[0], yardstick: names[0], bar: bar})
	}
	return nil
}
