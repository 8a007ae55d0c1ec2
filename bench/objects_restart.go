package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// The bars of a restart, from the signal or the start.
const (
	othersBar = 3 * time.Second
	largeBar  = 20 * time.Second
)

// firstRequest is a request that is repeated until it succeeds.
type firstRequest struct {
	what string
	bar  time.Duration
	ask  request
}

// firstRequests are the requests after a restart.
func (m *manyObjects) firstRequests(run int) []firstRequest {
	const initial = "?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
	requests := []firstRequest{
		{"core server, GET of a namespace", othersBar, request{path: "/api/v1/namespaces/default"}},
		{"core server, LIST of ConfigMaps", othersBar, request{path: "/api/v1/configmaps"}},
		{"core server, watch of ConfigMaps", othersBar, request{path: "/api/v1/configmaps" + initial}},
	}
	for _, of := range []struct {
		name string
		*items
		bar time.Duration
	}{{"small resource", m.small, othersBar}, {"large resource", m.large, largeBar}} {
		requests = append(requests,
			firstRequest{of.name + ", GET", othersBar, request{path: of.path(of.n / 2)}},
			firstRequest{of.name + ", page", othersBar, request{path: fmt.Sprintf("%s?limit=%d", of.all(), pageSize)}},
			firstRequest{of.name + ", create", othersBar, request{method: "POST", path: of.list(0), contentType: jsonType,
				body: of.body((2*of.n/itemNamespaces+run)*itemNamespaces, false)}},
			firstRequest{of.name + ", LIST by label", of.bar, request{path: of.all() + "?labelSelector=shard%3Ds4"}},
			firstRequest{of.name + ", watch with initial events", of.bar, request{path: of.list(0) + initial + "&labelSelector=shard%3Ds4"}},
		)
	}
	return requests
}

// restartServer kills the CRD server, and measures its return.
func (m *manyObjects) restartServer(ctx context.Context) error {
	before := m.procs["crd"]
	if err := syscall.Kill(before, syscall.SIGKILL); err != nil {
		return fmt.Errorf("kill CRD server: %w", err)
	}
	return m.back(ctx, "restart of the CRD server", 0, func() error { return m.findRestarted("crd", before) })
}

// restartAll stops and starts the installation.
func (m *manyObjects) restartAll(ctx context.Context) error {
	if err := m.installation.halt(); err != nil {
		return err
	}
	listen := "--listen=" + strings.TrimPrefix(m.target.base, "https://")
	if err := m.installation.launch(m.costs.o.portico, listen, "--data-dir="+m.costs.o.dataDir, "--profiling"); err != nil {
		return err
	}
	began := time.Now()
	failed := make(chan error, 1)
	go func() {
		err := m.installation.awaitReady(ctx)
		m.progress.say("up said that it is ready after %v: %v", time.Since(began), err)
		failed <- err
	}()
	err := m.back(ctx, "restart of all", 1, func() (err error) {
		m.procs, err = findProcesses(m.costs.o.dataDir)
		if err != nil || len(m.procs) < 4 {
			return errNotYet
		}
		return nil
	})
	return errors.Join(err, <-failed)
}

// back measures the time until the first answers, and the memory afterwards.
func (m *manyObjects) back(ctx context.Context, what string, run int, started func() error) error {
	began := time.Now()
	requests := m.firstRequests(run)
	took, failed, refusals := make([]time.Duration, len(requests)), make([]error, len(requests)), make([]map[string]int, len(requests))
	var all sync.WaitGroup
	for i, q := range requests {
		refusals[i] = map[string]int{}
		all.Go(func() {
			failed[i] = until(ctx, func() error { return m.attempt(ctx, i, q.ask, refusals[i]) })
			took[i] = time.Since(began)
		})
	}
	if err := until(ctx, started); err != nil {
		return err
	}
	peak := watchMemory(m.procs["crd"])
	defer peak.stop()
	if err := until(ctx, func() error { return readyAt(ctx, filepath.Join(m.costs.o.dataDir, "run", "crd.sock")) }); err != nil {
		return err
	}
	m.figure(what+": CRD server ready", seconds(time.Since(began)), fmt.Sprint(largeBar), time.Since(began) < largeBar)
	all.Wait()
	for i, q := range requests {
		meanwhile := ""
		for _, refusal := range slices.Sorted(maps.Keys(refusals[i])) {
			meanwhile += fmt.Sprintf("; %s: %d", refusal, refusals[i][refusal])
		}
		m.figure(what+": "+q.what, seconds(took[i])+meanwhile, fmt.Sprint(q.bar), took[i] < q.bar)
	}
	if err := errors.Join(failed...); err != nil {
		return err
	}
	m.figure(what+": peak of the CRD server's memory until then", fmt.Sprintf("%d MB", peak.take()>>20), "", true)
	if err := until(ctx, func() error { return m.complete(ctx) }); err != nil {
		return err
	}
	m.figure(what+": the garbage collector's graph is complete", seconds(time.Since(began)), "", true)
	return m.memory(ctx, "after the "+what)
}

// attempt sends a request once. Each refusal is counted by status and whether it says when to retry.
func (m *manyObjects) attempt(ctx context.Context, connection int, q request, refusals map[string]int) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	var err error
	if strings.Contains(q.path, "watch=true") {
		err = m.firstEvent(ctx, connection, q.path)
	} else {
		_, err = m.target.discard(ctx, connection, q)
	}
	var status *statusError
	switch {
	case err == nil || q.method == http.MethodPost && isStatus(err, http.StatusConflict): // an attempt without an answer
		return nil
	case errors.As(err, &status):
		text := fmt.Sprint(status.code)
		if status.retryAfter != "" {
			text += " with Retry-After"
		}
		refusals[text]++
	default:
		refusals["no answer"]++
	}
	return err
}

// firstEvent opens a watch and waits for its first event.
func (m *manyObjects) firstEvent(ctx context.Context, connection int, path string) error {
	w, err := m.openLines(ctx, connection, path)
	if err != nil {
		return err
	}
	defer w.close()
	line, err := w.next(ctx)
	if err == nil && strings.HasPrefix(line.text, `{"type":"ERROR"`) {
		err = fmt.Errorf("watch: %s", line.text)
	}
	return err
}
