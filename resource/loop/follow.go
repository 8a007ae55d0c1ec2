package loop

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"portico/resource"
)

// FollowOptions are the options of Follow.
type FollowOptions struct {
	// Namespace restricts to one namespace; "" means all of them.
	Namespace string
	Selector  resource.Selector
	// Logger logs failures; nil means slog.Default().
	Logger *slog.Logger
	// Backoff is the wait between attempts to connect.
	Backoff Backoff
	// Window is the shortest time between two calls of publish, in which changes are
	// collected. A change after a longer quiet is published at once: the client that made
	// it may wait for its effect. Default 5 ms; negative means that there is none.
	Window time.Duration
}

const (
	// grace is how long a store may be unreachable before Follow logs a warning: it may be
	// starting or restarting.
	grace = 10 * time.Second
	// warnInterval is the shortest time between two warnings about one store.
	warnInterval = 30 * time.Second
)

// Follow lists and watches store and calls publish with whole snapshots of the selection:
// first with the initial state, then after each burst of changes. It reconnects with
// backoff and publishes nothing while the store is unreachable. publish is called from one
// goroutine; changes are collected while it runs.
//
// A burst that leads back to the last snapshot is published, too: a caller that created an
// object because the last snapshot lacked it must be called after its deletion, even if no
// snapshot held the object.
//
// Follow returns ctx's error when ctx ends, after the last publish has returned.
func Follow(ctx context.Context, store resource.Reader, opts FollowOptions, publish func(Snapshot)) error {
	if opts.Logger == nil {
		opts.Logger = slog.Default()
	}
	if opts.Window == 0 {
		opts.Window = 5 * time.Millisecond
	}
	f := &follower{store: store, opts: opts, pending: changes{}}
	f.logger = opts.Logger.With("resource", store.Info().GroupResource().String())
	var wg sync.WaitGroup
	wg.Go(func() { f.read(ctx) })
	f.publishLoop(ctx, publish)
	wg.Wait()
	return ctx.Err()
}

// follower is one Follow: a goroutine that collects changes and one that publishes.
type follower struct {
	store   resource.Reader
	opts    FollowOptions
	logger  *slog.Logger
	changed Signal

	// Of the goroutine that collects. since is the revision that the next watch resumes
	// at; 0 requests the whole state. noWatchList is set once the store has refused
	// InitialEvents. failing is when watches began to fail; zero if the last one was opened.
	since       int64
	noWatchList bool
	failing     time.Time
	warned      time.Time // time of the last warning

	mu sync.Mutex
	// base replaces the last snapshot if replaced is set; pending are the changes since.
	base     []*resource.Object
	replaced bool
	pending  changes
	revision int64
	// happened is set by changes that are newer than the last snapshot, unlike those that a
	// new watch repeats.
	happened bool
}

// read watches the store until ctx ends. The first end of a watch after a longer one is no failure if it is orderly; ends in
// quick succession are.
func (f *follower) read(ctx context.Context) {
	backoff := f.opts.Backoff.withDefaults()
	for failures := 0; ctx.Err() == nil; failures++ {
		began := time.Now()
		progressed, err := f.watch(ctx)
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > backoff.Max {
			failures = 0
		}
		if f.recover(err) && progressed && failures == 0 {
			continue
		}
		if pause(ctx, backoff.delay(failures)) != nil {
			return
		}
	}
}

// recover sets where the next watch begins, and reports whether err is an expected end of
// a watch.
func (f *follower) recover(err error) (orderly bool) {
	switch {
	case errors.Is(err, io.EOF):
		return true
	case apierrors.IsResourceExpired(err) || apierrors.IsGone(err):
		f.since = 0
		f.logger.Debug("watch expired, listing again", "error", err)
		return true
	case refusesInitialEvents(err):
		if f.since == 0 && !f.noWatchList {
			f.noWatchList = true
			f.logger.Debug("store refuses initial events, falling back to list", "error", err)
			return false
		}
		f.since = 0
	}
	f.logFailure(err)
	return false
}

// logFailure logs a failure, as a warning if the store has been unreachable for grace.
func (f *follower) logFailure(err error) {
	now := time.Now()
	if f.failing.IsZero() {
		f.failing = now
	}
	level := slog.LevelDebug
	if now.Sub(f.failing) >= grace && now.Sub(f.warned) >= warnInterval {
		level, f.warned = slog.LevelWarn, now
	}
	f.logger.Log(context.Background(), level, "follow resource failed", "error", err)
}

// refusesInitialEvents reports whether err may come from a store that supports List and
// Watch, but not InitialEvents.
func refusesInitialEvents(err error) bool {
	return apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsMethodNotSupported(err)
}

// watch runs one watch to its end; progressed reports whether it delivered anything.
func (f *follower) watch(ctx context.Context) (progressed bool, err error) {
	if f.since == 0 && f.noWatchList {
		if err := f.list(ctx); err != nil {
			return false, err
		}
		progressed = true
	}
	w, err := f.store.Watch(ctx, resource.WatchOptions{
		Namespace:     f.opts.Namespace,
		Selector:      f.opts.Selector,
		Since:         f.since,
		InitialEvents: f.since == 0,
		Bookmarks:     true,
	})
	if err != nil {
		return progressed, err
	}
	defer w.Close()
	f.failing = time.Time{}
	var initial changes // nil once the state is complete
	if f.since == 0 {
		initial = changes{}
	}
	for {
		events, err := w.Next(ctx)
		if err != nil {
			return progressed, err
		}
		progressed = true
		if initial == nil {
			f.add(events)
			continue
		}
		for i, e := range events {
			if e.Type != resource.Synced {
				collect(initial, e)
				continue
			}
			f.replace(merge(nil, initial), e.Revision)
			f.add(events[i+1:])
			initial = nil
			break
		}
	}
}

// list reads the initial state from a store without initial events.
func (f *follower) list(ctx context.Context) error {
	list, err := f.store.List(ctx, resource.ListOptions{Namespace: f.opts.Namespace, Selector: f.opts.Selector})
	if err != nil {
		return err
	}
	f.replace(list.Items, list.Revision)
	return nil
}

// collect adds the change of one event.
func collect(into changes, e resource.Event) {
	switch e.Type {
	case resource.Added, resource.Modified:
		into[e.Object.Key()] = e.Object
	case resource.Deleted:
		into[e.Object.Key()] = nil
	}
}

// replace sets the whole state, as of revision rev.
func (f *follower) replace(items []*resource.Object, rev int64) {
	f.mu.Lock()
	f.base, f.replaced = items, true
	clear(f.pending)
	f.happened = f.happened || rev != f.revision
	f.revision = rev
	f.mu.Unlock()
	f.since = rev
	f.changed.Set()
}

// add adds live events. A watch may end within a transaction, so the next one resumes
// before the last revision: an event seen twice does no harm.
func (f *follower) add(events []resource.Event) {
	f.mu.Lock()
	for _, e := range events {
		collect(f.pending, e)
		f.happened = f.happened || e.Type != resource.Bookmark && e.Revision > f.revision
		f.revision = max(f.revision, e.Revision)
		complete := e.Revision
		if e.Type != resource.Bookmark {
			complete--
		}
		f.since = max(f.since, complete)
	}
	changed := len(f.pending) > 0
	f.mu.Unlock()
	if changed {
		f.changed.Set()
	}
}

// publishLoop publishes the collected changes.
func (f *follower) publishLoop(ctx context.Context, publish func(Snapshot)) {
	var items []*resource.Object
	var published time.Time // end of the last call of publish; zero before the first
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.changed.C():
		}
		if wait := f.opts.Window - time.Since(published); wait > 0 && pause(ctx, wait) != nil {
			return
		}
		next, rev, happened := f.take(items)
		if !published.IsZero() && !happened && same(items, next) {
			continue
		}
		items = next
		publish(Snapshot{Items: items, Revision: rev})
		published = time.Now()
	}
}

// take returns items with the collected changes applied; happened reports whether any of
// them is new, even if they lead back to items.
func (f *follower) take(items []*resource.Object) (next []*resource.Object, rev int64, happened bool) {
	f.mu.Lock()
	if f.replaced {
		items, f.base, f.replaced = f.base, nil, false
	}
	pending := f.pending
	f.pending = changes{}
	rev, happened = f.revision, f.happened
	f.happened = false
	f.mu.Unlock()
	if len(pending) > 0 {
		items = merge(items, pending)
	}
	return items, rev, happened
}
