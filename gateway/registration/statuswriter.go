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

// statusPause is the shortest time between two writes of one Backend's status:
// an endpoint that comes and goes ten times a second is not ten writes.
const statusPause = time.Second

// statusWriter writes what the elected gateway sees of each Backend to its
// status: differences only, and of one Backend at most one each statusPause.
type statusWriter struct {
	found    Findings
	backends *rest.Resource
	elected  *atomic.Bool
	outcomes *atomic.Pointer[map[string]outcome]
	// broken returns the OpenAPI documents of a server that are known to be broken.
	broken func(*routing.Server) []openapi.Broken
	log    *slog.Logger
	// observer names this gateway in conditions.
	observer string
	wake     loop.Nudge

	// next is when a status may be written again, by name.
	next map[string]time.Time
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
		again := w.turn(ctx, time.Now())
		if again == 0 {
			again = time.Hour // something will wake it
		}
		timer.Reset(again)
	}
}

// turn writes what differs and may be written at that time. It returns after
// what time there is more to do; 0 is no time.
func (w *statusWriter) turn(ctx context.Context, now time.Time) (again time.Duration) {
	all := w.found.Standings()
	if all == nil || !all.Whole || !w.elected.Load() {
		return 0
	}
	next := map[string]time.Time{}
	for _, st := range all.List {
		if st.Object == nil {
			continue
		}
		wait := w.next[st.Name].Sub(now)
		if wait > 0 {
			next[st.Name] = w.next[st.Name]
		}
		want := w.statusOf(st, &st.Object.Status)
		if sameStatus(&want, &st.Object.Status) {
			continue
		}
		if wait <= 0 {
			// The object as it was written comes back, and is compared again.
			wait = statusPause
			next[st.Name] = now.Add(wait)
			if err := w.write(ctx, st); err != nil && ctx.Err() == nil {
				w.log.Warn("writing the status of a Backend failed", "backend", st.Name, "err", err)
			}
		}
		if again == 0 || wait < again {
			again = wait
		}
	}
	w.next = next
	return again
}

// write writes one status. That the Backend is gone, or another, is no error.
func (w *statusWriter) write(ctx context.Context, st *routing.Standing) error {
	_, err := rest.Modify(ctx, w.backends, resource.Key{Name: st.Name}, func(b *backend.Backend) error {
		if b.UID != st.Object.UID {
			return nil
		}
		if want := w.statusOf(st, &b.Status); !sameStatus(&want, &b.Status) {
			b.Status = want
		}
		return nil
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("write status of Backend %q: %w", st.Name, err)
	}
	return nil
}
