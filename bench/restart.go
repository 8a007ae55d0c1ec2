package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	clientv3 "go.etcd.io/etcd/client/v3"
)

const restartExample = `  # a gigabyte of small objects
  bench restart --portico ./portico

  # a gigabyte of large objects
  bench restart --portico ./portico --objects 1000 --size 1000000`

// newRestartCommand returns the command that measures a restart of the CRD server.
func newRestartCommand() *cobra.Command {
	o := options{workers: 8, connections: 4, rounds: 1, objects: 300000, size: 3500, rest: 0}
	cmd := &cobra.Command{
		Use:   "restart --portico PROGRAM",
		Short: "Measure a restart of the CRD server with a gigabyte of objects",
		Long: "Kill the CRD server with a gigabyte of objects stored, and measure the time until it answers a GET and a limited LIST\n" +
			"(from etcd), the time until its cache is complete, its memory, and one LIST of all objects. The objects are copies of\n" +
			"one object that the server stored, written to etcd directly.",
		Example: restartExample, Args: cobra.NoArgs, SilenceErrors: true, SilenceUsage: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.portico == "" || o.objects < 1 || o.objects > 1000000 || o.size < 2000 || o.size > 1000000 {
				return errors.New("restart needs --portico, 1 to 1000000 --objects and a --size of 2000 to 1000000 bytes")
			}
			ctx, cancel := context.WithTimeoutCause(cmd.Context(), o.limit, fmt.Errorf("not finished within --limit=%v", o.limit))
			defer cancel()
			return measureRestart(ctx, &o, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&o.portico, "portico", "", "`program` to start a new installation with, in a temporary folder")
	fs.IntVar(&o.objects, "objects", o.objects, "number of objects")
	fs.IntVar(&o.size, "size", o.size, "size of an object as JSON in bytes, 2000 to 1000000")
	fs.DurationVar(&o.limit, "limit", 3*time.Minute, "time limit of the run, without stopping the installation")
	return cmd
}

// measureRestart starts an installation, fills it and measures a restart.
func measureRestart(ctx context.Context, o *options, out, errOut io.Writer) (err error) {
	r, stop, err := startRunner(ctx, o, "restart", errOut)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	s := customResources(r.group, r.namespace)
	if err := r.setUp(ctx); err != nil {
		return err
	}
	if _, err := s.calibrate(ctx, r.target, o.size); err != nil {
		return err
	}
	if err := r.fill(ctx, s); err != nil {
		return fmt.Errorf("fill etcd: %w", err)
	}
	return r.restart(ctx, s, out)
}

// restart kills the CRD server and measures its return.
func (r *runner) restart(ctx context.Context, s *subject, out io.Writer) error {
	socket := filepath.Join(r.o.dataDir, "run", "crd.sock")
	if err := until(ctx, func() error { return readyAt(ctx, socket) }); err != nil {
		return err
	}
	say := func(what, format string, args ...any) {
		fmt.Fprintf(out, "%-62s%s\n", what, fmt.Sprintf(format, args...))
	}
	before := r.procs["crd"]
	if bytes, err := anonymous(before); err == nil {
		say("memory before the restart", "%d MB", bytes>>20)
	}
	if err := syscall.Kill(before, syscall.SIGKILL); err != nil {
		return fmt.Errorf("kill CRD server: %w", err)
	}
	began := time.Now()
	if err := until(ctx, func() error { return r.findRestarted("crd", before) }); err != nil {
		return err
	}
	say("killed → new process started", "%.2f s", time.Since(began).Seconds())
	peak := watchMemory(r.procs["crd"])
	defer peak.stop()
	if err := r.firstAnswers(ctx, s, socket, began, say); err != nil {
		return err
	}
	say("peak of memory until then", "%d MB", peak.take()>>20)
	return r.listWhole(ctx, s, peak, say)
}

// findRestarted looks for the process of a name that replaced the one with the ID before.
func (r *runner) findRestarted(name string, before int) error {
	now, err := findProcesses(r.o.dataDir)
	if err != nil || now[name] == 0 || now[name] == before {
		return errNotYet
	}
	r.procs = now
	return nil
}

// errNotYet makes until repeat the call.
var errNotYet = errors.New("not yet")

// until calls ask until it returns no error.
func until(ctx context.Context, ask func() error) error {
	for {
		err := ask()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), err)
		case <-time.After(pollSlow):
		}
	}
}

// readyAt returns nil if the server on a unix socket is ready.
func readyAt(ctx context.Context, socket string) error {
	res, err := getUnix(ctx, socket, "/readyz")
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return errNotYet
	}
	return nil
}

// firstAnswers measures the time until the first answer to several requests, in
// parallel.
func (r *runner) firstAnswers(ctx context.Context, s *subject, socket string, began time.Time, say func(what, format string, args ...any)) error {
	requests := []struct {
		what string
		ask  func() error
	}{
		{"→ first GET of an object, through the gateway", func() error {
			_, err := r.target.discard(ctx, 0, request{path: s.objectPath(r.o.objects / 2)})
			return err
		}},
		{"→ first LIST of 10", func() error {
			_, err := r.target.discard(ctx, 1, request{path: s.list() + "?limit=10"})
			return err
		}},
		{"→ first create", func() error {
			_, err := r.target.discard(ctx, 2, request{method: "POST", path: s.list(), contentType: jsonType, body: s.body(r.o.objects, 0, "")})
			return err
		}},
		{"→ ready: the cache is complete", func() error { return readyAt(ctx, socket) }},
	}
	took, failed := make([]time.Duration, len(requests)), make([]error, len(requests))
	var all sync.WaitGroup
	for i, q := range requests {
		all.Go(func() {
			failed[i] = until(ctx, q.ask)
			took[i] = time.Since(began)
		})
	}
	all.Wait()
	for i, q := range requests {
		say(q.what, "%.2f s", took[i].Seconds())
	}
	return errors.Join(failed...)
}

// listWhole measures a LIST of all objects.
func (r *runner) listWhole(ctx context.Context, s *subject, peak *memoryPeak, say func(what, format string, args ...any)) error {
	before, err := anonymous(r.procs["crd"])
	if err != nil {
		return err
	}
	peak.take()
	began := time.Now()
	n, err := r.target.discard(ctx, 0, request{path: s.list()})
	if err != nil {
		return fmt.Errorf("list: %w", err)
	}
	say(fmt.Sprintf("LIST of all, %.0f MB", float64(n)/1e6), "%.1f s, %.0f MB/s", time.Since(began).Seconds(), float64(n)/1e6/time.Since(began).Seconds())
	say("memory before it, and its peak", "%d and %d MB", before>>20, peak.take()>>20)
	return nil
}

// memoryPeak records the peak of the anonymous memory of a process, in bytes.
type memoryPeak struct {
	bytes atomic.Int64
	ended chan struct{}
	done  sync.WaitGroup
}

// peakPause is the interval between two readings of the memory.
const peakPause = 20 * time.Millisecond

func watchMemory(pid int) *memoryPeak {
	p := &memoryPeak{ended: make(chan struct{})}
	p.done.Go(func() {
		tick := time.NewTicker(peakPause)
		defer tick.Stop()
		for {
			select {
			case <-p.ended:
				return
			case <-tick.C:
			}
			if n, err := anonymous(pid); err == nil {
				p.bytes.Store(max(p.bytes.Load(), n))
			}
		}
	})
	return p
}

// take returns the peak since the last call.
func (p *memoryPeak) take() int64 { return p.bytes.Swap(0) }

func (p *memoryPeak) stop() {
	close(p.ended)
	p.done.Wait()
}

// fillBytes and fillKeys bound one transaction; the limits of etcd are 1.5 MB and
// 128 operations.
const (
	fillBytes = 1 << 20
	fillKeys  = 100
)

// fill creates one object through the server and writes copies of its stored form
// to etcd. A gigabyte through the servers would take minutes.
func (r *runner) fill(ctx context.Context, s *subject) error {
	if _, err := r.target.discard(ctx, 0, request{method: "POST", path: s.list(), contentType: jsonType, body: s.body(0, 0, "")}); err != nil {
		return err
	}
	stored, err := r.etcd.client.Get(ctx, "/", clientv3.WithPrefix(), clientv3.WithLimit(1),
		clientv3.WithSort(clientv3.SortByModRevision, clientv3.SortDescend), clientv3.WithMinModRev(1))
	if err != nil {
		return err
	}
	if len(stored.Kvs) != 1 || !strings.HasSuffix(string(stored.Kvs[0].Key), "/"+objectName(0)) {
		return errors.New("the last key in etcd is not that of the object")
	}
	key, value := string(stored.Kvs[0].Key), stored.Kvs[0].Value
	uid := uidIn(value)
	if uid == "" {
		return errors.New("the stored object has no uid; is it encrypted?")
	}
	each := max(min(fillBytes/len(value), fillKeys), 1)
	var done atomic.Int64
	defer r.progress.follow("transactions", &done, (r.o.objects+each-1)/each)()
	_, err = drive(ctx, r.o.workers, bound{(r.o.objects + each - 1) / each, r.o.limit}, &done, func(ctx context.Context, _, i int) (int64, error) {
		var ops []clientv3.Op
		for n := max(i*each, 1); n < min((i+1)*each, r.o.objects); n++ {
			name := objectName(n)
			copied := bytes.ReplaceAll(value, []byte(objectName(0)), []byte(name))
			copied = bytes.ReplaceAll(copied, []byte(uid), fmt.Appendf(nil, "00000000-0000-4000-8000-%012d", n))
			ops = append(ops, clientv3.OpPut(strings.TrimSuffix(key, objectName(0))+name, string(copied)))
		}
		_, err := r.etcd.client.Txn(ctx).Then(ops...).Commit()
		return 0, err
	})
	return err
}

// uidIn returns the first uid in an object.
func uidIn(object []byte) string {
	_, rest, _ := bytes.Cut(object, []byte(`"uid":"`))
	uid, _, _ := bytes.Cut(rest, []byte(`"`))
	return string(uid)
}
