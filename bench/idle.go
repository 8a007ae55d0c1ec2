package main

import (
	"context"
	"fmt"
	"io"
	"time"
)

// watchesPerConnection is how many idle watches share an HTTP/2 connection.
const watchesPerConnection = 32

// measureIdleWatches writes how much the anonymous memory of the gateway grows
// with each idle watch, after a collection of garbage.
func measureIdleWatches(ctx context.Context, o *ratesOptions, dataDir string, admin *client, out io.Writer) error {
	if o.watches == 0 {
		return nil
	}
	procs, err := findProcesses(dataDir)
	if err != nil {
		return err
	}
	before, err := memoryAfterGC(ctx, admin, procs["gateway"])
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	_, err = drive(ctx, watchesPerConnection, bound{o.watches, time.Minute}, nil, func(_ context.Context, _, i int) (int64, error) {
		res, err := admin.open(ctx, i, request{path: staticPath + "?watch=true"})
		if err == nil {
			context.AfterFunc(ctx, func() { res.Body.Close() })
		}
		return 0, err
	})
	if err != nil {
		return fmt.Errorf("open idle watches: %w", err)
	}
	after, err := memoryAfterGC(ctx, admin, procs["gateway"])
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "\n%d idle watches: %.1f KB of the gateway's anonymous memory each\n", o.watches, float64(after-before)/1e3/float64(o.watches))
	return err
}

// memoryAfterGC returns the anonymous memory of the gateway, in bytes, after two
// collections: the second one frees what finalizers and pools held.
func memoryAfterGC(ctx context.Context, admin *client, gateway int) (int64, error) {
	for range 2 {
		if _, err := admin.discard(ctx, 0, request{path: "/debug/pprof/heap?gc=1"}); err != nil {
			return 0, err
		}
	}
	select { // the runtime returns memory to the system in the background
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	case <-time.After(10 * time.Second):
	}
	return anonymous(gateway)
}
