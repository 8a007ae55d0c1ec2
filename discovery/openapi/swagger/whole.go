package swagger

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"portico/discovery/openapi"
	"portico/resource/loop"
)

const (
	idleDefault    = 10 * time.Minute
	refreshDefault = time.Minute
	// fetching is how many servers are asked at a time.
	fetching = 4
)

// Config of a Whole.
type Config struct {
	// Servers returns the present servers, those with the best names first, and
	// a text that changes whenever they do. It is called for every request and
	// has to be cheap. Required.
	Servers func() (servers []Server, state string)
	// Idle is how long the document is kept after the last request for it.
	// Default 10 min.
	Idle time.Duration
	// Refresh is how old the document may be before servers that cannot tell of
	// changes are asked again. Default 1 min.
	Refresh time.Duration
	// BrokenChanged, if not nil, is called when Broken has a new value. It must
	// not wait.
	BrokenChanged func()
	// Registry gets the metrics. nil: nobody sees them.
	Registry prometheus.Registerer
	// Logger, nil: slog.Default().
	Logger *slog.Logger
}

// Whole is the OpenAPI v2 document of everything. Nothing is made before it is
// asked for and Run runs. Safe for concurrent use.
type Whole struct {
	cfg     Config
	log     *slog.Logger
	metrics *metrics
	wake    loop.Nudge
	known   map[string]*loaded // by server; of Run only
	parts   []*part            // what current was made of; of Run only

	// broken are the APIServices whose part is missing because of what their
	// servers answer.
	broken atomic.Pointer[map[string]string]

	mu           sync.Mutex
	now          shown
	wantProtobuf bool      // somebody asked for it since it was last dropped
	asked        time.Time // the last request
	// turned is closed, and replaced, when there is a new shown.
	turned chan struct{}
}

// shown is what there is to serve. Immutable.
type shown struct {
	json, protobuf *document // nil: not made; protobuf may be of a JSON before
	made           time.Time // the JSON
	checked        time.Time
	state          string // of the servers
}

// New returns a Whole.
func New(cfg Config) *Whole {
	if cfg.Idle == 0 {
		cfg.Idle = idleDefault
	}
	if cfg.Refresh == 0 {
		cfg.Refresh = refreshDefault
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	if cfg.Registry == nil {
		cfg.Registry = prometheus.NewRegistry()
	}
	return &Whole{cfg: cfg, log: cfg.Logger, metrics: newMetrics(cfg.Registry), turned: make(chan struct{})}
}

// Run makes the document when it is wanted, until ctx ends.
func (w *Whole) Run(ctx context.Context) error {
	timer := time.NewTimer(w.cfg.Idle)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-w.wake.C():
			w.turn(ctx)
			timer.Reset(w.cfg.Idle)
		case <-timer.C:
			timer.Reset(w.drop())
		}
	}
}

// drop forgets everything if nobody has asked for long enough, and returns when
// to look again.
func (w *Whole) drop() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if left := w.cfg.Idle - time.Since(w.asked); left > 0 {
		return left
	}
	w.now, w.wantProtobuf = shown{}, false
	w.broken.Store(nil)
	w.known, w.parts = nil, nil
	return w.cfg.Idle
}

// turn brings the document up to date and wakes those who wait for it.
func (w *Whole) turn(ctx context.Context) {
	began := time.Now()
	w.mu.Lock()
	now, wantProtobuf := w.now, w.wantProtobuf
	w.mu.Unlock()
	servers, state := w.cfg.Servers()
	if now.outdated(state, began, w.cfg.Refresh) {
		w.refresh(ctx, servers, &now)
		now.checked, now.state = began, state
	}
	if ctx.Err() != nil {
		return // what was asked of the servers was cut short
	}
	w.show(now)
	if wantProtobuf && now.json != nil && !now.has(true) {
		made, err := w.protobuf(now.json)
		if err != nil {
			w.log.Error("encoding OpenAPI v2 as protobuf failed", "err", err)
			return
		}
		now.protobuf = made
		w.show(now)
	}
}

func (w *Whole) show(now shown) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now = now
	close(w.turned)
	w.turned = make(chan struct{})
}

// has reports whether a form is there and says what the JSON does.
func (s *shown) has(protobuf bool) bool {
	return s.json != nil && (!protobuf || s.protobuf != nil && s.protobuf.etag == s.json.etag)
}

func (s *shown) outdated(state string, at time.Time, refresh time.Duration) bool {
	return s.json == nil || s.state != state || at.Sub(s.checked) >= refresh
}

// refresh asks the servers and merges what they say, if that is new.
func (w *Whole) refresh(ctx context.Context, servers []Server, now *shown) {
	began := time.Now()
	known := w.load(ctx, servers)
	var parts []*part
	for i := range servers {
		parts = append(parts, known[servers[i].ID].sorted(&servers[i])...)
	}
	failed := failures(known)
	w.known = known
	reason := w.metrics.changed(w.parts, parts)
	if now.json == nil || reason != "" {
		made, err := merge(parts, limits{maxShared, maxMerged}, func(p *part, err error) {
			for _, name := range p.names {
				failed[name] = &openapi.BrokenError{Err: err}
			}
		})
		if err != nil {
			w.log.Error("merging OpenAPI v2 failed", "err", err)
			return
		}
		if now.json == nil || now.json.etag != made.etag {
			now.json, now.made = made, began
		}
		w.parts = parts
		w.metrics.took(reason, time.Since(began))
	}
	w.metrics.failed(failed, w.log)
	w.note(failed)
}

// note keeps for Broken what failed.
func (w *Whole) note(failed map[string]error) {
	now := map[string]string{}
	for name, err := range failed {
		var broken *openapi.BrokenError
		if errors.As(err, &broken) {
			now[name] = openapi.Message(err)
		}
	}
	old := w.broken.Swap(&now)
	if w.cfg.BrokenChanged != nil && (old == nil && len(now) > 0 || old != nil && !maps.Equal(*old, now)) {
		w.cfg.BrokenChanged()
	}
}

// Broken returns the APIServices whose part of the document cannot be used, and
// why. That a server is away is no such reason. What nobody asked for lately is
// not known. It must not be changed.
func (w *Whole) Broken() map[string]string {
	if all := w.broken.Load(); all != nil {
		return *all
	}
	return nil
}

// load asks the servers, several at a time, and decodes one document at a time.
func (w *Whole) load(ctx context.Context, servers []Server) map[string]*loaded {
	var mu, decoding sync.Mutex
	var wg sync.WaitGroup
	slots := make(chan struct{}, fetching)
	out := make(map[string]*loaded, len(servers))
	for i := range servers {
		srv := &servers[i]
		old := w.known[srv.ID]
		if old == nil {
			old = &loaded{}
		}
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			l := &loader{srv: srv, old: old, at: time.Now(), decode: func(convert func() (*part, error)) (*part, error) {
				decoding.Lock()
				defer decoding.Unlock()
				return convert()
			}}
			now := l.load(ctx)
			mu.Lock()
			defer mu.Unlock()
			out[srv.ID] = now
		})
	}
	wg.Wait()
	return out
}

func failures(known map[string]*loaded) map[string]error {
	out := map[string]error{}
	for _, l := range known {
		for _, f := range l.failures {
			for _, name := range f.names {
				out[name] = f.err
			}
		}
	}
	return out
}

// protobuf makes the other form. Its ETag is the same: the forms are told apart
// by Vary.
func (w *Whole) protobuf(from *document) (*document, error) {
	plain, err := gzip.NewReader(bytes.NewReader(from.packed))
	if err != nil {
		return nil, fmt.Errorf("read OpenAPI v2 document: %w", err)
	}
	var out bytes.Buffer
	// BestSpeed is a known level: no error.
	z, _ := gzip.NewWriterLevel(&out, gzip.BestSpeed)
	count := &counter{to: z}
	err = toProtobuf(plain, count, func(section, name string, err error) {
		w.log.Warn("part of OpenAPI v2 is left out of its protobuf form", "section", section, "name", name, "err", err)
	})
	if err == nil {
		err = z.Close()
	}
	if err != nil {
		return nil, err
	}
	return &document{etag: from.etag, size: count.n, packed: bytes.Clone(out.Bytes())}, nil
}

// counter counts what is written.
type counter struct {
	to *gzip.Writer
	n  int
}

func (c *counter) Write(p []byte) (int, error) {
	n, err := c.to.Write(p)
	c.n += n
	return n, err
}
