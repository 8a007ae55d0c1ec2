package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime/pprof"
	"sync"
	"time"
)

// profiler takes CPU profiles of the processes of the installation and of this one.
type profiler struct {
	dir     string
	seconds int
	gateway *client
	sockets string // folder of core.sock and crd.sock; a server without a socket is skipped
	say     func(format string, args ...any)
}

func newProfiler(o *options, gateway *client, say func(string, ...any)) (*profiler, error) {
	if o.profile == "" {
		return nil, nil
	}
	if err := os.MkdirAll(o.profile, 0o755); err != nil {
		return nil, fmt.Errorf("create folder for profiles: %w", err)
	}
	return &profiler{
		dir: o.profile, seconds: max(int(o.time/time.Second), 1), gateway: gateway, sockets: filepath.Join(o.dataDir, "run"), say: say,
	}, nil
}

// during starts profiles of all processes, in files that begin with name. The
// returned function waits until they are written.
func (p *profiler) during(ctx context.Context, name string) (wait func()) {
	if p == nil {
		return func() {}
	}
	var all sync.WaitGroup
	all.Go(func() { p.profileSelf(ctx, name) })
	path := fmt.Sprintf("/debug/pprof/profile?seconds=%d", p.seconds)
	all.Go(func() {
		res, err := p.gateway.open(ctx, 0, request{path: path})
		p.store(name+"-gateway", res, err)
	})
	for _, process := range []string{"core", "crd"} {
		socket := filepath.Join(p.sockets, process+".sock")
		if _, err := os.Stat(socket); err != nil {
			continue
		}
		all.Go(func() {
			res, err := getUnix(ctx, socket, path)
			p.store(name+"-"+process, res, err)
		})
	}
	return all.Wait
}

// profileSelf profiles this program, to show whether it is the bottleneck.
func (p *profiler) profileSelf(ctx context.Context, name string) {
	f, err := os.Create(filepath.Join(p.dir, name+"-bench.pprof"))
	if err == nil {
		defer f.Close()
		err = pprof.StartCPUProfile(f)
	}
	if err != nil {
		p.say("no profile %s-bench: %v", name, err)
		return
	}
	defer pprof.StopCPUProfile()
	select {
	case <-ctx.Done():
	case <-time.After(time.Duration(p.seconds) * time.Second):
	}
}

// getUnix sends a GET to a server on a unix socket, which trusts the identity
// headers of a client with its own uid. Any status but 200 is an error.
func getUnix(ctx context.Context, socket, path string) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://server"+path, nil)
	if err != nil {
		return nil, fmt.Errorf("make request: %w", err)
	}
	r.Header.Set("X-Remote-User", "portico-bench")
	r.Header.Set("X-Remote-Group", "system:masters")
	t := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}
	res, err := t.RoundTrip(r)
	if err == nil && res.StatusCode != http.StatusOK {
		res.Body.Close()
		return nil, fmt.Errorf("%s answered %s; was it started with --profiling?", socket, res.Status)
	}
	return res, err
}

// store writes an answer to a file. An error is reported and does not end the run.
func (p *profiler) store(name string, res *http.Response, err error) {
	if err == nil {
		defer res.Body.Close()
		var f *os.File
		if f, err = os.Create(filepath.Join(p.dir, name+".pprof")); err == nil {
			_, err = io.Copy(f, res.Body)
			if closed := f.Close(); err == nil {
				err = closed
			}
		}
	}
	if err != nil {
		p.say("no profile %s: %v", name, err)
	}
}
