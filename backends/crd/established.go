package crd

import (
	"context"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"portico/backends/crd/custom"
	"portico/discovery"
	"portico/resource"
	"portico/resource/etcd"
	"portico/resource/identity"
	"portico/resource/loop"
	"portico/resource/rest"
)

const (
	// establishInterval is the time between two looks at followers and other servers while a definition or a waiter
	// waits for them.
	establishInterval = 25 * time.Millisecond
	// establishWriters is the number of concurrent writes: etcd syncs its disk once for several.
	establishWriters = 32
	// establishPatience is the longest time from the first look at a definition until it is established, whatever followers and
	// other servers show.
	establishPatience = 20 * time.Second
	// startPatience is how long after its start a server waits for all running gateways to follow it.
	startPatience = 5 * time.Second
	// changePatience bounds how long the answer to a change of a definition waits. It is as long as package discovery
	// waits for a follower that acknowledges nothing: a follower on a busy machine is waited for as well.
	changePatience = 15 * time.Second
)

// reasonInstalling is the reason of Established until the definition is served everywhere.
const reasonInstalling = "Installing"

// establisher sets the condition Established of a definition once every running CRD server serves it and every gateway
// that follows one of them routes it and shows it in discovery (docs/wire.md 9.3). Every server has an establisher; the
// first one writes.
type establisher struct {
	server *Server
	log    *slog.Logger
	// followers are the gateways that follow the discovery of this server.
	followers *discovery.Followers
	wake      loop.Signal
	began     time.Time
	leases    *identity.Leases // nil without etcd
	presence  *etcd.Presence   // nil without etcd: there is no other server

	mu      sync.Mutex
	states  []publishedState
	waiting []*waiter

	// shown is the revision up to which all servers and gateways show the definitions.
	shown atomic.Int64

	// Of run only:
	told    int64                   // the revision that presence has for other servers
	since   map[types.UID]time.Time // when definitions were first seen that are not established
	written map[types.UID]bool      // definitions that were established since
}

// publishedState says that a state of discovery has all changes of definitions up to a revision.
type publishedState struct{ serial, revision int64 }

// waiter is the answer to a change of a definition, which waits until all servers and gateways show its revision.
type waiter struct {
	revision int64
	shown    chan struct{}
}

func newEstablisher(s *Server) *establisher {
	e := &establisher{server: s, log: s.log, began: time.Now(), since: map[types.UID]time.Time{}, written: map[types.UID]bool{}}
	e.followers = discovery.NewFollowers(e.wake.Set)
	if s.etcd != nil {
		e.leases = identity.Open(s.etcd.Store)
	}
	return e
}

// published notes that the present state of discovery has all changes up to a revision.
func (e *establisher) published(serial, revision int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if n := len(e.states); n > 0 && e.states[n-1].serial == serial {
		e.states[n-1].revision = revision
	} else {
		e.states = append(e.states, publishedState{serial, revision})
	}
	e.wake.Set()
}

// shownHere returns the revision up to which this server serves definitions and its followers show them, 0 before the
// first state; and the revision up to which it serves them.
func (e *establisher) shownHere() (revision, latest int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.states) == 0 {
		return 0, 0
	}
	last := e.states[len(e.states)-1]
	serial := e.followers.Shown(last.serial)
	n := 0
	for i := range e.states {
		if e.states[i].serial <= serial {
			n = i
		}
	}
	if e.states[n].serial > serial {
		return 0, last.revision
	}
	e.states = slices.Delete(e.states, 0, n)
	return e.states[0].revision, last.revision
}

// run works until ctx ends.
func (e *establisher) run(ctx context.Context) error {
	if e.server.etcd == nil {
		return e.work(ctx)
	}
	e.presence = e.server.etcd.Presence(name, e.presenceName())
	return loop.Together(ctx, e.presence.Run, e.work)
}

func (e *establisher) work(ctx context.Context) error {
	tick := time.NewTicker(establishInterval)
	defer tick.Stop()
	busy := false
	for {
		ticks := tick.C
		if !busy {
			ticks = nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-e.wake.C():
		case <-ticks:
		}
		busy = e.step(ctx)
	}
}

// presenceName is the same for the next process with these addresses on this machine.
func (e *establisher) presenceName() string {
	out := []string{identity.Host()}
	for _, a := range e.server.server.Addresses() {
		out = append(out, a.String())
	}
	return strings.ReplaceAll(strings.Join(out, "_"), "/", "_")
}

// step establishes what can be, and reports whether something waits.
func (e *establisher) step(ctx context.Context) (busy bool) {
	now := e.server.served.Load()
	if now == nil {
		return false
	}
	pending := e.pending(now)
	here, latest := e.shownHere()
	shown, known := e.shownEverywhere(ctx, here)
	if known {
		e.release(shown)
	}
	busy = here < latest
	var ready []*custom.Outline
	for _, o := range pending {
		late := time.Since(e.since[o.UID]) > establishPatience
		switch {
		case known && o.Stored.Revision <= shown:
		case late:
			e.log.Warn("a definition is established although not every server and gateway is known to show it", "definition", o.Name, "after", establishPatience)
		default:
			busy = true
			continue
		}
		ready = append(ready, o)
	}
	return e.establish(ctx, ready) || busy || e.hasWaiters()
}

// pending returns the definitions that are to be established.
func (e *establisher) pending(now *served) (all []*custom.Outline) {
	seen := map[types.UID]bool{}
	for _, o := range now.outlines {
		if !isInstalling(o.CustomResourceDefinition) {
			continue
		}
		seen[o.UID] = true
		if e.since[o.UID].IsZero() {
			e.since[o.UID] = time.Now()
		}
		if !e.written[o.UID] {
			all = append(all, o)
		}
	}
	for uid := range e.since {
		if !seen[uid] {
			delete(e.since, uid)
			delete(e.written, uid)
		}
	}
	return all
}

// isInstalling reports whether a definition is served and waits to be established.
func isInstalling(crd *apiextensionsv1.CustomResourceDefinition) bool {
	c := apihelpers.FindCRDCondition(crd, apiextensionsv1.Established)
	return c != nil && c.Status == apiextensionsv1.ConditionFalse && c.Reason == reasonInstalling && crd.DeletionTimestamp == nil && isServed(crd)
}

// shownEverywhere returns the revision up to which all servers serve definitions and all gateways show them, given the
// revision of this server. known is false if the other servers cannot be asked, or gateways are missing after the start.
func (e *establisher) shownEverywhere(ctx context.Context, revision int64) (everywhere int64, known bool) {
	if time.Since(e.began) < startPatience && !e.followed(ctx) {
		revision = 0
	}
	if e.presence == nil {
		return revision, revision > 0
	}
	others, err := e.presence.Others(ctx)
	if err != nil {
		e.log.Debug("reading the states of other CRD servers failed", "err", err)
		return 0, false
	}
	if len(others) > 0 {
		e.tell(ctx, revision)
	}
	for _, d := range others {
		theirs, err := strconv.ParseInt(string(d.Data), 10, 64)
		if err != nil {
			theirs = 0 // it has just started
		}
		revision = min(revision, theirs)
	}
	return revision, revision > 0
}

// tell stores the revision that is shown here, which the other servers read.
func (e *establisher) tell(ctx context.Context, revision int64) {
	if e.told == revision {
		return
	}
	if err := e.presence.Set(ctx, strconv.AppendInt(nil, revision, 10)); err != nil {
		e.log.Debug("telling other CRD servers what is served here failed", "err", err)
		return
	}
	e.told = revision
}

// followed reports whether as many gateways follow this server as are running.
func (e *establisher) followed(ctx context.Context) bool {
	if e.leases == nil {
		return true
	}
	all, err := e.leases.List(ctx)
	gateways := 0
	for i := range all {
		if all[i].Component == "gateway" && !all[i].Silent(time.Now()) {
			gateways++
		}
	}
	return err == nil && e.followers.Count() >= gateways
}

// establish writes the condition of definitions, and reports whether a write failed.
func (e *establisher) establish(ctx context.Context, ready []*custom.Outline) (failed bool) {
	slots := make(chan struct{}, establishWriters)
	errs := make([]error, len(ready))
	var wg sync.WaitGroup
	for i, o := range ready {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			_, errs[i] = rest.Modify(ctx, e.server.definitions, resource.Key{Name: o.Name}, func(crd *apiextensionsv1.CustomResourceDefinition) error {
				if crd.UID == o.UID && isInstalling(crd) {
					apihelpers.SetCRDCondition(crd, established())
				}
				return nil
			})
		})
	}
	wg.Wait()
	for i, err := range errs {
		if err == nil || apierrors.IsNotFound(err) {
			e.written[ready[i].UID] = true
			continue
		}
		failed = true
		if ctx.Err() == nil {
			e.log.Warn("establishing a definition failed", "definition", ready[i].Name, "err", err)
		}
	}
	return failed
}

func (e *establisher) hasWaiters() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.waiting) > 0
}

// release ends the waits for revisions up to one.
func (e *establisher) release(shown int64) {
	e.shown.Store(max(e.shown.Load(), shown))
	e.mu.Lock()
	defer e.mu.Unlock()
	e.waiting = slices.DeleteFunc(e.waiting, func(w *waiter) bool {
		if w.revision <= shown {
			close(w.shown)
		}
		return w.revision <= shown
	})
}

// await waits until all servers and gateways show a revision of the named definition, until ctx ends, or for changePatience.
func (e *establisher) await(ctx context.Context, name string, revision int64) {
	if revision <= e.shown.Load() {
		return
	}
	w := &waiter{revision, make(chan struct{})}
	e.mu.Lock()
	e.waiting = append(e.waiting, w)
	e.mu.Unlock()
	e.wake.Set()
	timer := time.NewTimer(changePatience)
	defer timer.Stop()
	select {
	case <-w.shown:
		return
	case <-ctx.Done():
	case <-timer.C:
		e.log.Warn("a change of a definition is answered although not every server and gateway is known to show it", "definition", name, "after", changePatience)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.waiting = slices.DeleteFunc(e.waiting, func(other *waiter) bool { return other == w })
}

// shownStore is the Store of definitions for clients. The answer to a change of a definition that is established waits
// until every server and every gateway shows the change, so that a version that was added can be used.
type shownStore struct {
	resource.Store
	established *establisher
}

// Update implements resource.Store.
func (s *shownStore) Update(ctx context.Context, key resource.Key, mutate resource.Mutate) (*resource.Object, error) {
	o, err := s.Store.Update(ctx, key, mutate)
	if err == nil && o != nil {
		s.established.await(ctx, key.Name, o.Revision)
	}
	return o, err
}
