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
	// Namespace restricts to one namespace; "" is all of them.
	Namespace string
	Selector  resource.Selector
	// Logger takes what goes wrong; nil is slog.Default().
	Logger *slog.Logger
	// Backoff is the wait between attempts to connect.
	Backoff Backoff
	// Window is how long after a change Follow waits for more before it
	// publishes. Default 5 ms; negative is not at all.
	Window time.Duration
}

// grace is how long a store that cannot be reached is no cause for a warning:
// it may be starting, or being started again.
const grace = 10 * time.Second

// warnInterval is the shortest time between two warnings about one store.
const warnInterval = 30 * time.Second

// Follow lists and watches store and hands every state of the selection to
// publish, as a whole snapshot: first when the initial state is complete, then
// after changes, bursts of them as one. It reconnects by itself and publishes
// nothing while it cannot reach the store. publish is called from one
// goroutine; while it runs, changes go on being collected.
//
// A burst that ends where it began is published too: a caller that has created an object
// because the last snapshot lacked it must learn of its removal, even if no snapshot had
// it.
//
// Follow returns ctx's error when ctx ends, after the last publish returned.
func Follow(ctx context.Context, store resource.Store, opts FollowOptions, publish func(Snapshot)) error {
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

// follower is one Follow: a reader that collects changes and a publisher that
// turns them into snapshots.
type follower struct {
	store   resource.Store
	opts    FollowOptions
	logger  *slog.Logger
	changed Nudge

	// since is the revision the next watch goes on from; 0 asks for the whole
	// state. noWatchList is set once the store refused InitialEvents. All are
	// the reader's own.
	since       int64
	noWatchList bool
	failing     time.Time // since when no watch could be opened; zero: the last one was
	warned      time.Time // when a failure was logged last

	mu sync.Mutex
	// base replaces everything known when replaced is true; pending came since.
	base     []*resource.Object
	replaced bool
	pending  changes
	revision int64
	// happened is true when something has, since the last snapshot was taken,
	// that was not known before: unlike what a new watch repeats.
	happened bool
}

// read keeps a watch running until ctx ends.
func (f *follower) read(ctx context.Context) {
	backoff := f.opts.Backoff.withDefaults()
	for failures := 0; ctx.Err() == nil; failures++ {
		began := time.Now()
		progressed, err := f.watch(ctx)
		if ctx.Err() != nil {
			return
		}
		if progressed || time.Since(began) > backoff.Max {
			failures = 0
		}
		if f.recover(err) && progressed {
			continue
		}
		if pause(ctx, backoff.delay(failures)) != nil {
			return
		}
	}
}

// recover decides where the next watch begins, and whether this one ended in
// good order.
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
	f.complain(err)
	return false
}

// complain logs a failure: as a warning if nothing else has come for a while.
func (f *follower) complain(err error) {
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

// refusesInitialEvents reports whether a store that answers so may still
// answer List and a plain Watch.
func refusesInitialEvents(err error) bool {
	return apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsMethodNotSupported(err)
}

// watch runs one watch to its end. progressed says that it delivered anything.
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

// list is the initial state from a store without initial events.
func (f *follower) list(ctx context.Context) error {
	list, err := f.store.List(ctx, resource.ListOptions{Namespace: f.opts.Namespace, Selector: f.opts.Selector})
	if err != nil {
		return err
	}
	f.replace(list.Items, list.Revision)
	return nil
}

// collect notes one event.
func collect(into changes, e resource.Event) {
	switch e.Type {
	case resource.Added, resource.Modified:
		into[e.Object.Key()] = e.Object
	case resource.Deleted:
		into[e.Object.Key()] = nil
	}
}

// replace makes items all that is known, and since the place to go on from.
func (f *follower) replace(items []*resource.Object, rev int64) {
	f.mu.Lock()
	f.base, f.replaced = items, true
	clear(f.pending)
	f.happened = f.happened || rev != f.revision
	f.revision = rev
	f.mu.Unlock()
	f.since = rev
	f.changed.Poke()
}

// add notes live events. A watch that breaks off may have delivered a part of
// the last transaction only, so the next one goes on before it: seeing an event
// twice does no harm.
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
	poke := len(f.pending) > 0
	f.mu.Unlock()
	if poke {
		f.changed.Poke()
	}
}

// publishLoop turns what the reader collected into snapshots.
func (f *follower) publishLoop(ctx context.Context, publish func(Snapshot)) {
	var items []*resource.Object
	published := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.changed.C():
		}
		if published && f.opts.Window > 0 && pause(ctx, f.opts.Window) != nil {
			return
		}
		next, rev, happened := f.take(items)
		if published && !happened && same(items, next) {
			continue
		}
		items, published = next, true
		publish(Snapshot{Items: items, Revision: rev})
	}
}

// take returns items with everything collected so far applied. happened says
// that this is news, even if it leads back to items.
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
