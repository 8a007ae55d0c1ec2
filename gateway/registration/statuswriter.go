package registration

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"portico/apiservice/backend"
	"portico/discovery/openapi"
	"portico/gateway/routing"
	"portico/resource"
	"portico/resource/loop"
	"portico/resource/rest"
)

// statusPause is the time between two writes of one Backend's status once its burst is
// used up: an endpoint that comes and goes ten times a second is not ten writes.
const statusPause = time.Second

// statusWriter writes what the elected gateway sees of each Backend to its
// status: differences only, and of one Backend a few at once and then one each
// statusPause; where only texts differ, one each messagePause.
type statusWriter struct {
	found      Findings
	backends   *rest.Resource
	leadership *leadership
	results    *atomic.Pointer[map[string]result]
	// broken returns the OpenAPI documents of a server that are known to be broken.
	broken func(*routing.Server) []openapi.Broken
	log    *slog.Logger
	// observer names this gateway in conditions.
	observer string
	wake     loop.Signal

	// paced holds back writes, and texts those of which nothing else differs; of the
	// writing goroutine only.
	paced, texts allowance
}

// run writes until ctx ends. What fails is tried again.
func (w *statusWriter) run(ctx context.Context) error {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-w.wake.C():
		case <-timer.C:
		}
		again := w.turn(time.Now())
		if again == 0 {
			again = time.Hour // something will wake it
		}
		timer.Reset(again)
	}
}

// turn writes what differs and may be written at that time. It returns after
// what time there is more to do; 0 is no time.
func (w *statusWriter) turn(now time.Time) (again time.Duration) {
	all := w.found.BackendStates()
	ctx, elected := w.leadership.term()
	if all == nil || !all.Whole || !elected {
		return 0
	}
	w.paced.pause, w.paced.atOnce = statusPause, burst
	w.texts.pause, w.texts.atOnce = messagePause, 1
	w.paced.forget(now)
	w.texts.forget(now)
	for _, st := range all.List {
		if st.Object == nil {
			continue
		}
		want := w.statusOf(st, &st.Object.Status)
		if sameStatus(&want, &st.Object.Status) {
			continue
		}
		reworded := sameButTexts(&want, &st.Object.Status)
		wait := w.paced.wait(st.Name, now)
		if reworded {
			wait = max(wait, w.texts.wait(st.Name, now))
		}
		if wait == 0 {
			// The object as it was written comes back, and is compared again. Before
			// it does, there may be nothing to write.
			wait = statusPause
			written, err := w.write(ctx, st)
			if written || err != nil {
				w.paced.spend(st.Name, now)
				switch {
				case reworded:
					w.texts.spend(st.Name, now)
				case observed(&want) > observed(&st.Object.Status):
					// Somebody has changed the Backend. What is said of it may still be
					// from before, and whether the change helped is waited for.
					w.texts.renew(st.Name)
				}
			}
			if err != nil && ctx.Err() == nil {
				w.log.Warn("writing the status of a Backend failed", "backend", st.Name, "err", err)
			}
		}
		if again == 0 || wait < again {
			again = wait
		}
	}
	return again
}

// write writes one status, and reports whether that was needed. That the Backend is
// gone, or another, is no error.
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
