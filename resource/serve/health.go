package serve

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gin-gonic/gin"

	"portico/resource/serve/metrics"
)

// Health serves /healthz, /livez and /readyz, and single checks below each of them. Safe
// for concurrent use.
//
// /livez fails if the process should be restarted, /readyz if it should not get requests.
// /healthz, the old name, has the checks of both except shutdown, as scripts expect that
// wait for a server.
type Health struct {
	mu           sync.Mutex
	checks       []check           // in the order of addition
	logged       map[string]string // the logged reason of each check that fails
	logging      map[string]bool   // the checks of which a failure is being logged
	detached     chan struct{}     // a place for each detached request, see detach
	began        time.Time
	results      *metrics.Checks
	warnings     []func() []string
	shuttingDown atomic.Bool
	logger       func() *slog.Logger // slog.Default, except in tests
}

// WritesCheck is the name, for AddAside, of a check whether writes are accepted. A server
// that starts while the server of admission webhooks and policies is away serves reads, so
// it is ready, and rejects writes.
const WritesCheck = "writes"

// storageTimeout bounds a health check of the storage.
const storageTimeout = 2 * time.Second

const (
	// maxDetached bounds the detached requests at a time, and detachedTimeout the time of the checks of each. See detach.
	maxDetached     = 64
	detachedTimeout = 10 * time.Second
)

// startGrace is the time after the start in which failed checks are not logged: a server that
// starts is not ready.
const startGrace = 10 * time.Second

// check is a named check.
type check struct {
	name  string
	live  bool // part of /livez too
	aside bool // part of no endpoint, see AddAside
	run   func(r *http.Request) error
	// postStart is set if it is a post-start check.
	postStart *postStartCheck
}

// Until returns a function that returns an error with the reason until done returns true.
func Until(done func() bool, reason string) func() error {
	return func() error {
		if done() {
			return nil
		}
		return errors.New(reason)
	}
}

// NewHealth returns a Health with the check ping, which always succeeds, and, for /readyz,
// shutdown, which fails while the server shuts down.
func NewHealth() *Health {
	began := time.Now()
	h := &Health{logged: make(map[string]string), logging: make(map[string]bool), detached: make(chan struct{}, maxDetached), began: began, results: metrics.NewChecks(began), logger: slog.Default}
	h.AddLive("ping", func(*http.Request) error { return nil })
	return h
}

// AddLive adds a check that fails if only a restart helps; all three endpoints have it. It
// replaces a check of the same name. run gets the request of the prober, ends within seconds
// and is safe for concurrent use.
func (h *Health) AddLive(name string, run func(*http.Request) error) {
	h.add(check{name: name, live: true, run: run})
}

// AddReady adds a check that fails if requests should go to another server; /readyz and
// /healthz have it. See AddLive.
func (h *Health) AddReady(name string, run func(*http.Request) error) {
	h.add(check{name: name, run: run})
}

// AddAside adds a check that is served below /healthz and /readyz under its own name only.
// It is for parts without which the server serves everything else. See AddLive.
func (h *Health) AddAside(name string, run func(*http.Request) error) {
	h.add(check{name: name, aside: true, run: run})
}

// AddInformerSync adds upstream's check informer-sync, which fails until the watch cache is ready.
func (h *Health) AddInformerSync(ready func() bool) {
	run := Until(ready, "the watch cache has not been filled yet")
	h.AddReady("informer-sync", func(*http.Request) error { return run() })
}

// AddStorage adds the checks of a server that stores its objects in etcd, under upstream's
// names. healthy asks etcd for a response.
func (h *Health) AddStorage(healthy func(ctx context.Context) error) {
	check := func(r *http.Request) error {
		ctx, cancel := context.WithTimeout(r.Context(), storageTimeout)
		defer cancel()
		return healthy(ctx)
	}
	h.AddLive("etcd", check)
	h.AddReady("etcd-readiness", check)
}

// AddWarnings adds lines to the verbose form of /readyz. They make no check fail. The
// function is called for each such request and is safe for concurrent use; every client
// may read what it returns.
func (h *Health) AddWarnings(warnings func() []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.warnings = append(h.warnings, warnings)
}

// writeWarnings writes a line for each warning.
func (h *Health) writeWarnings(to *strings.Builder) {
	h.mu.Lock()
	all := h.warnings
	h.mu.Unlock()
	for _, warnings := range all {
		for _, text := range warnings() {
			fmt.Fprintf(to, "warn: %s\n", text)
		}
	}
}

func (h *Health) add(c check) {
	h.mu.Lock()
	defer h.mu.Unlock()
	// A new slice: another goroutine may be running the old one.
	h.checks = slices.Clone(h.checks)
	if i := slices.IndexFunc(h.checks, func(old check) bool { return old.name == c.name }); i >= 0 {
		h.checks[i] = c
		return
	}
	h.checks = append(h.checks, c)
}

// of returns the checks of an endpoint, with the checks that are served under their own names only.
func (h *Health) of(endpoint string) []check {
	h.mu.Lock()
	all := slices.Clone(h.checks)
	h.mu.Unlock()
	for i, c := range all {
		// A process is alive before its post-start checks have passed, and ready before the optional ones have.
		if c.postStart != nil && (c.postStart.optional || endpoint == "livez") {
			all[i].aside = c.postStart.check() != nil
		}
	}
	switch endpoint {
	case "livez":
		all = slices.DeleteFunc(all, func(c check) bool { return !c.live })
	case "readyz":
		all = append(all, check{name: "shutdown", run: h.checkShutdown})
	}
	return all
}

// Failing runs the checks of an endpoint, "livez" or "readyz", except those of the given names,
// and returns the names of those that fail and why.
func (h *Health) Failing(ctx context.Context, endpoint string, except ...string) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "/"+endpoint, nil)
	if err != nil {
		return err
	}
	var failing []string
	for _, c := range h.of(endpoint) {
		if c.aside || slices.Contains(except, c.name) {
			continue
		}
		if err := c.run(r); err != nil {
			failing = append(failing, fmt.Sprintf("%s: %v", c.name, err))
		}
	}
	if len(failing) > 0 {
		return errors.New(strings.Join(failing, "; "))
	}
	return nil
}

func (h *Health) checkShutdown(*http.Request) error {
	if h.shuttingDown.Load() {
		return errors.New("process is shutting down")
	}
	return nil
}

// endpoints are the paths that answer for several checks.
var endpoints = [...]string{"healthz", "livez", "readyz"}

// Route adds the routes of the health endpoints and of metrics.PathSLIs.
func (h *Health) Route(engine gin.IRouter) {
	for _, endpoint := range endpoints {
		group := engine.Group("/" + endpoint)
		group.Any("", gin.WrapH(h))
		group.Any("/*check", gin.WrapH(h))
	}
	engine.Any(metrics.PathSLIs, gin.WrapH(h.results.Handler()))
}

// Paths returns the paths of Route, with those of single checks, for the index.
func (h *Health) Paths() []string {
	paths := []string{metrics.PathSLIs}
	for _, endpoint := range endpoints {
		paths = append(paths, "/"+endpoint)
		for _, c := range h.of(endpoint) {
			paths = append(paths, "/"+endpoint+"/"+c.name)
		}
	}
	return paths
}

// ServeHTTP serves the endpoint or the single check that the path names.
func (h *Health) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	endpoint, name, one := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	if !slices.Contains(endpoints[:], endpoint) {
		http.NotFound(w, r)
		return
	}
	checks := h.of(endpoint)
	if !one {
		h.serveAll(w, r, endpoint, checks)
		return
	}
	i := slices.IndexFunc(checks, func(c check) bool { return c.name == name })
	if i < 0 {
		http.NotFound(w, r)
		return
	}
	if err := h.runOne(r, checks[i]); err != nil {
		http.Error(w, fmt.Sprintf("internal server error: %v", err), http.StatusInternalServerError)
		return
	}
	writePlain(w, "ok")
}

func (h *Health) runOne(r *http.Request, c check) error {
	r, done, _ := h.detach(r)
	defer done()
	return c.run(r)
}

// detach returns a copy of r with a context that ends after detachedTimeout, and not when the client leaves. While maxDetached
// requests are detached, it returns r itself, and false. Call done when the checks have run and before the response is written:
// a client may read that slowly.
func (h *Health) detach(r *http.Request) (detached *http.Request, done func(), ok bool) {
	select {
	case h.detached <- struct{}{}:
	default:
		return r, func() {}, false
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), detachedTimeout)
	return r.WithContext(ctx), func() { cancel(); <-h.detached }, true
}

// serveAll runs all checks. Unauthenticated clients may read the response, so the reasons
// of failures are logged instead.
func (h *Health) serveAll(w http.ResponseWriter, r *http.Request, endpoint string, checks []check) {
	query := r.URL.Query()
	excluded := make(map[string]bool) // whether it was found
	for _, name := range query["exclude"] {
		excluded[name] = false
	}
	var report strings.Builder
	failed := h.runAll(&report, r, endpoint, checks, excluded)
	if unknown := notFound(excluded); len(unknown) > 0 {
		fmt.Fprintf(&report, "warn: some health checks cannot be excluded: no matches for %s\n", strings.Join(unknown, ","))
	}
	if endpoint == "readyz" && (failed || query.Has("verbose")) {
		h.writeWarnings(&report)
	}
	if failed {
		http.Error(w, report.String()+endpoint+" check failed", http.StatusInternalServerError)
		return
	}
	if !query.Has("verbose") {
		writePlain(w, "ok")
		return
	}
	writePlain(w, report.String()+endpoint+" check passed\n")
}

// runAll runs the checks, except checks in excluded, which it marks as found. It writes a line for each check to report, and
// returns whether one failed.
func (h *Health) runAll(report *strings.Builder, r *http.Request, endpoint string, checks []check, excluded map[string]bool) (failed bool) {
	r, done, ok := h.detach(r)
	defer done()
	for _, c := range checks {
		if c.aside {
			continue
		}
		if _, found := excluded[c.name]; found {
			excluded[c.name] = true
			fmt.Fprintf(report, "[+]%s excluded: ok\n", c.name)
			continue
		}
		err := c.run(r)
		// A check that is cancelled, because the client has left or set a timeout, says nothing about the server.
		if err == nil || ok || r.Context().Err() == nil {
			h.results.Observe(c.name, endpoint, err)
			h.logFailure(c.name, err)
		}
		if err != nil {
			fmt.Fprintf(report, "[-]%s failed: reason withheld\n", c.name)
			failed = true
			continue
		}
		fmt.Fprintf(report, "[+]%s ok\n", c.name)
	}
	return failed
}

// notFound returns the quoted names of excluded that were not found, sorted.
func notFound(excluded map[string]bool) []string {
	var names []string
	for name, found := range excluded {
		if !found {
			names = append(names, fmt.Sprintf("%q", name))
		}
	}
	slices.Sort(names)
	return names
}

// logFailure logs why a check fails, again only if the reason changes or the check has passed:
// probes come every second. It does not wait for the log, which may be blocked and be the reason.
// One failure of a check is logged at a time; another one is logged by a later check, if it still fails.
func (h *Health) logFailure(name string, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err == nil {
		delete(h.logged, name)
		return
	}
	reason := err.Error()
	if h.logged[name] == reason || h.logging[name] || time.Since(h.began) < startGrace {
		return
	}
	h.logged[name], h.logging[name] = reason, true
	go func() {
		h.logger().Warn("health check failed", "check", name, "reason", reason)
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.logging, name)
	}()
}

func writePlain(w http.ResponseWriter, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	_, _ = io.WriteString(w, text) // fails only if the client has gone
}
