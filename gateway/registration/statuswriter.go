package registration

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"portico/apiservice/backend"
	"portico/discovery/openapi"
	"portico/gateway/routing"
	"portico/resource"
	"portico/resource/loop"
	"portico/resource/rest"
)

const (
	// statusBurst is the number of writes of one status without a pause: a new Backend
	// changes up to five times within milliseconds (its Service is found, checked, read and
	// registered), and clients wait for it. Then there is one write per statusPause.
	statusBurst = 6
	statusPause = time.Second
	// messagePause separates writes of one object that change the text of messages and
	// errors only: the errors of a server may differ with every check.
	messagePause = 10 * time.Second
)

// statusWriter writes the status of Backends while this gateway is elected.
type statusWriter struct {
	found      Findings
	backends   *rest.Resource
	leadership *leadership
	results    *atomic.Pointer[map[string]result]
	broken     func(*routing.Server) []openapi.Broken // see Config
	log        *slog.Logger
	observer   string // names this gateway in conditions
	wake       loop.Signal

	// changes limits all writes, messages those that change texts only; of the writing
	// goroutine only.
	changes, messages writeLimit
}

// run writes until ctx ends, and repeats what fails.
func (w *statusWriter) run(ctx context.Context) error {
	var again <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-w.wake.C():
		case <-again:
		}
		again = nil
		if wait := w.writeAll(time.Now()); wait > 0 {
			again = time.After(wait)
		}
	}
}

// writeAll writes the statuses that differ from the stored ones and may be written. It
// returns when there may be more to write; 0: after a change.
func (w *statusWriter) writeAll(now time.Time) (again time.Duration) {
	all := w.found.BackendStates()
	ctx, elected := w.leadership.term()
	if all == nil || !all.Whole || !elected {
		return 0
	}
	w.changes.forget(now)
	w.messages.forget(now)
	for _, st := range all.List {
		if st.Object == nil {
			continue
		}
		want := w.statusOf(st, &st.Object.Status)
		if sameStatus(&want, &st.Object.Status) {
			continue
		}
		wait, textsOnly := w.changes.wait(st.Name, now), sameButTexts(&want, &st.Object.Status)
		if textsOnly {
			wait = max(wait, w.messages.wait(st.Name, now))
		}
		if wait == 0 {
			wait = statusPause // until the written object is read
			written, err := w.write(ctx, st)
			if written || err != nil {
				w.changes.spend(st.Name, now)
				if textsOnly {
					w.messages.spend(st.Name, now)
				}
			}
			if err != nil && ctx.Err() == nil {
				w.log.Warn("writing the status of a Backend failed", "backend", st.Name, "err", err)
			}
		}
		again = sooner(again, wait)
	}
	return again
}

// write writes one status. It writes nothing if the stored one does not differ, or the
// Backend is deleted or another.
func (w *statusWriter) write(ctx context.Context, st *routing.BackendState) (written bool, err error) {
	_, err = rest.Modify(ctx, w.backends, resource.Key{Name: st.Name}, func(b *backend.Backend) error {
		written = false
		if b.UID != st.Object.UID {
			return nil
		}
		if want := w.statusOf(st, &b.Status); !sameStatus(&want, &b.Status) {
			b.Status, written = want, true
		}
		return nil
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return written, fmt.Errorf("write status of Backend %q: %w", st.Name, err)
	}
	return written, nil
}

// writeLimit limits the writes of each of several objects to burst at once, then one per
// pause. It is not safe for concurrent use.
type writeLimit struct {
	pause    time.Duration
	burst    int
	limiters map[string]*rate.Limiter // by name, unless the burst is full
}

// wait returns how long the object must not be written; 0 means that it may be.
func (l *writeLimit) wait(name string, now time.Time) time.Duration {
	limiter := l.limiters[name]
	if limiter == nil {
		return 0
	}
	return max(0, time.Duration((1-limiter.TokensAt(now))*float64(l.pause)))
}

// spend counts a write.
func (l *writeLimit) spend(name string, now time.Time) {
	if l.limiters == nil {
		l.limiters = map[string]*rate.Limiter{}
	}
	if l.limiters[name] == nil {
		l.limiters[name] = rate.NewLimiter(rate.Every(l.pause), l.burst)
	}
	l.limiters[name].AllowN(now, 1)
}

// forget drops the objects with a full burst.
func (l *writeLimit) forget(now time.Time) {
	for name, limiter := range l.limiters {
		if limiter.TokensAt(now) >= float64(l.burst) {
			delete(l.limiters, name)
		}
	}
}
