package history

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"portico/resource"
)

// notice is one event as it was delivered.
type notice struct {
	kind  resource.EventType
	state facts
	rev   int64
}

// session is one watch.
type session struct {
	span
	opts    resource.WatchOptions
	notices []notice
	// open is when the watch was known to have begun; 0 if it was refused.
	open int64
	// why is the reason of its end.
	why string
}

// chain has the sessions of one watcher.
type chain struct {
	sel      *selection
	sessions []*session
	// reached means that it has reached its goal.
	reached bool
	goal    int64
}

// watcher watches one selection through all doors.
type watcher struct {
	*play
	chain
	name string
	rnd  *rand.Rand
	// pos is the revision up to which it has all events; 0 if it must start again.
	pos int64
	// late is when it must have reached its goal; zero before that is known.
	late time.Time
}

func newWatcher(p *play, n int) *watcher {
	rnd := p.random(6, n)
	return &watcher{play: p, name: fmt.Sprint("watcher ", n), rnd: rnd, chain: chain{sel: randomSelection(rnd)}}
}

// run opens watches until the goal is reached.
func (w *watcher) run(ctx context.Context) {
	for !w.reached && ctx.Err() == nil && !w.hopeless() {
		if w.closed() && time.Now().After(w.deadline()) {
			w.fault(w.sel.sample, w.goal, "%s of %s came to %d and never to %d", w.name, w.sel.text, w.pos, w.goal)
			return
		}
		w.session(ctx)
	}
}

// deadline returns when the watcher must have reached its goal.
func (w *watcher) deadline() time.Time {
	if w.late.IsZero() {
		w.late = time.Now().Add(w.cfg.Patience)
	}
	return w.late
}

// options returns random options of a watch.
func (w *watcher) options(ctx context.Context, d *Door) resource.WatchOptions {
	opts := resource.WatchOptions{Namespace: w.sel.namespace, Selector: w.sel.selector, Bookmarks: w.rnd.IntN(3) > 0}
	n := w.rnd.IntN(100)
	if w.pos > 0 && n < 75 {
		opts.Since = w.pos
		return opts
	}
	switch w.pos = 0; {
	case n < 80 && !w.closed():
		return opts // from now on
	case n < 85:
		opts.At = resource.At{Freshness: resource.NotOlderThan, Revision: max(w.seen.Load(), 1)}
	case n < 90:
		opts.At = resource.At{Freshness: resource.Any}
	case n < 95:
		opts.Since = w.listed(ctx, d)
	}
	opts.InitialEvents = opts.Since == 0
	return opts
}

// listed lists as a client without watch-lists does, and returns the revision to watch
// from; 0 on failure.
func (w *watcher) listed(ctx context.Context, d *Door) int64 {
	r := &reader{play: w.play, name: w.name, rnd: w.rnd}
	r.list(ctx, d, w.sel, resource.At{}, 0)
	return r.own
}

// closed reports whether the goal is known.
func (w *watcher) closed() bool { return w.closing.Err() != nil }

// session runs one watch.
func (w *watcher) session(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	d := w.door(w.rnd)
	opts := w.options(ctx, d)
	s := &session{span: w.start(w.name, d), opts: opts}
	w.sessions = append(w.sessions, s)
	watching, err := d.Store().Watch(ctx, opts)
	if err == nil {
		defer watching.Close()
		s.open = w.moments.Add(1)
		err = w.follow(ctx, s, watching)
	}
	w.finish(&s.span)
	switch {
	case err == nil:
		s.why = "left"
	case apierrors.IsResourceExpired(err):
		s.why = "expired"
		at := max(w.pos, opts.Since)
		if opts.Since == 0 && len(s.notices) == 0 {
			at = s.floor // it had not begun: there was nothing to expire
		}
		if !w.mayExpire(at) {
			w.fault(w.sel.sample, at, "%s, through %s: the watch of %s expired at %d: %v", w.name, d.Name, w.sel.text, at, err)
		}
		w.pos = 0
	case isEnd(err) && d.EndsWatches:
		s.why = "ended"
	default:
		s.why = err.Error()
		w.failed(ctx, &s.span, "watch of "+w.sel.text, err)
	}
}

// follow reads events until the watch ends (its error), or until the watcher closes it or
// has reached its goal (nil).
func (w *watcher) follow(ctx context.Context, s *session, watching resource.Watcher) error {
	leave := 1 + w.rnd.IntN(60) // events after which it goes, maybe between two that came together
	if w.rnd.IntN(3) == 0 {
		leave = math.MaxInt
	}
	w.pos = max(w.pos, s.opts.Since)
	for len(s.notices) < leave {
		if w.closed() {
			w.reached = w.pos >= w.goal
			begun := w.pos > 0 || s.opts.InitialEvents
			if w.reached || !begun || time.Now().After(w.deadline()) {
				return nil
			}
		}
		events, err := w.await(ctx, watching)
		if err != nil {
			return err
		}
		for _, e := range events[:min(len(events), leave-len(s.notices))] {
			w.note(s, e)
		}
	}
	return nil
}

// await calls Next. It cancels the call when the goal becomes known, when the watcher is
// late, and at random; no event may be lost by that.
func (w *watcher) await(ctx context.Context, watching resource.Watcher) ([]resource.Event, error) {
	patience := time.Hour
	if w.rnd.IntN(10) == 0 {
		patience = time.Duration(w.rnd.IntN(3000)) * time.Microsecond
	}
	call, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if w.closed() {
		call, cancel = context.WithDeadline(call, w.deadline())
		defer cancel()
	} else {
		// A watcher that has its last event gets no other.
		defer context.AfterFunc(w.closing, cancel)()
	}
	events, err := watching.Next(call)
	if err != nil && call.Err() != nil && ctx.Err() == nil && errors.Is(err, call.Err()) {
		return nil, nil
	}
	return events, err
}

// note records an event.
func (w *watcher) note(s *session, e resource.Event) {
	n := notice{kind: e.Type, rev: e.Revision}
	if e.Object != nil {
		var err error
		if n.state, err = factsOf(e.Object); err != nil {
			w.fault(e.Object.Key(), e.Revision, "%s, through %s: event: %v", s.client, s.door, err)
		}
		if e.Object.Revision != e.Revision {
			w.fault(e.Object.Key(), e.Revision, "%s, through %s: an event at %d holds an object at %d", s.client, s.door, e.Revision, e.Object.Revision)
		}
	}
	s.notices = append(s.notices, n)
	if !s.opts.InitialEvents || w.pos > 0 || e.Type == resource.Synced {
		w.pos = e.Revision
	}
	w.see(e.Revision)
}
