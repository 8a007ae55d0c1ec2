package history

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"portico/resource"
)

// outcome is the result of a write.
type outcome uint8

const (
	uncertain outcome = iota
	acknowledged
	refused
)

// write is one write and its result.
type write struct {
	span
	op    string
	key   resource.Key
	token string // of the state that it makes
	// removes means that it may delete the object, begins that it may begin its deletion.
	removes, begins bool

	outcome outcome
	err     error
	// For an acknowledged write: gone, or the new state, at rev; 0 if the answer does not have it.
	rev   int64
	gone  bool
	state facts
}

// writer writes through all doors.
type writer struct {
	*play
	n      int
	name   string
	rnd    *rand.Rand
	tokens int
	// known are the revisions of objects in the last responses.
	known map[resource.Key]int64
}

func (w *writer) run(ctx context.Context, steps int) {
	for i := 0; w.working(ctx, i, steps); i++ {
		w.written.Add(1)
		w.pause(w.rnd)
		w.step(ctx, randomKey(w.rnd))
	}
}

func (w *writer) step(ctx context.Context, key resource.Key) {
	t := randomTraits(w.rnd)
	switch n := w.rnd.IntN(100); {
	case n < 20:
		w.do(ctx, "create", key, func(ctx context.Context, d *Door, rec *write) (*resource.Object, error) {
			o, err := next(key, nil, rec.token, t)
			if err != nil {
				return nil, err
			}
			return d.Store().Create(ctx, key, o, 0)
		})
	case n < 50:
		w.do(ctx, "set", key, w.set(key, t, true, 0))
	case n < 60:
		w.do(ctx, "replace", key, w.set(key, t, false, w.known[key]))
	case n < 65:
		w.touch(ctx, key)
	case n < 85:
		w.delete(ctx, key)
	default:
		w.release(ctx, key)
	}
}

// attempt makes one call; it may set rec.gone.
type attempt func(ctx context.Context, d *Door, rec *write) (*resource.Object, error)

// do makes one write and records its result.
func (w *writer) do(ctx context.Context, op string, key resource.Key, try attempt) *write {
	d := w.favourite(w.rnd, w.n)
	w.tokens++
	rec := &write{
		span: w.start(w.name, d), op: op, key: key, token: fmt.Sprintf("%s-%d", w.name, w.tokens),
		removes: op == "delete" || op == "release", begins: op == "delete",
	}
	w.mu.Lock()
	w.writes = append(w.writes, rec) // also one that never ends
	w.mu.Unlock()
	call, cancel := context.WithTimeout(ctx, w.cfg.Patience)
	defer cancel()
	o, err := try(call, d, rec)
	if err == nil {
		rec.rev = o.Revision
		rec.state, err = factsOf(o)
		if err != nil {
			w.fault(key, o.Revision, "%s: answer of %s: %v", w.name, op, err)
		}
		if d.Holds {
			rec.gone = rec.removes && o.Finalizers == nil && (op == "delete" || o.Terminating())
		}
		if d.Silent && rec.gone && op == "delete" {
			rec.rev = 0
		}
		rec.outcome = acknowledged
		w.known[key] = rec.rev
		w.finish(&rec.span, rec.rev)
		return rec
	}
	w.finish(&rec.span)
	rec.err = err
	if definite(err) {
		rec.outcome = refused
		return rec
	}
	w.failed(ctx, &rec.span, op+" "+key.String(), err)
	return rec
}

// set writes a state, and creates the object only if create. A revision above 0 must be
// that of the current state.
func (w *writer) set(key resource.Key, t traits, create bool, rev int64) attempt {
	return func(ctx context.Context, d *Door, rec *write) (*resource.Object, error) {
		return d.Store().Update(ctx, key, func(cur *resource.Object) (resource.Mutation, error) {
			switch {
			case cur == nil && !create:
				return resource.Mutation{}, notFound(key)
			case cur != nil && rev > 0 && cur.Revision != rev:
				return resource.Mutation{}, conflict(key)
			}
			o, err := next(key, cur, rec.token, t)
			return resource.Mutation{Object: o}, err
		})
	}
}

// touch is an update that changes nothing: a read of the latest state.
func (w *writer) touch(ctx context.Context, key resource.Key) {
	d := w.favourite(w.rnd, w.n)
	g := &getting{span: w.start(w.name, d), key: key}
	call, cancel := context.WithTimeout(ctx, w.cfg.Patience)
	defer cancel()
	o, err := d.Store().Update(call, key, func(cur *resource.Object) (resource.Mutation, error) {
		if cur == nil {
			return resource.Mutation{}, notFound(key)
		}
		return resource.Mutation{Object: cur}, nil
	})
	w.got(ctx, g, "touch", o, err)
}

// delete deletes an object, or begins its deletion if it has finalizers.
func (w *writer) delete(ctx context.Context, key resource.Key) {
	known, conditional := w.known[key], w.rnd.IntN(4) == 0
	check := func(cur *resource.Object) error {
		if conditional && cur.Revision != known {
			return conflict(key)
		}
		return nil
	}
	w.do(ctx, "delete", key, func(ctx context.Context, d *Door, rec *write) (*resource.Object, error) {
		if d.Holds {
			return d.Store().Delete(ctx, key, check)
		}
		return d.Store().Update(ctx, key, func(cur *resource.Object) (resource.Mutation, error) {
			rec.gone = false
			switch {
			case cur == nil:
				return resource.Mutation{}, notFound(key)
			case check(cur) != nil:
				return resource.Mutation{}, check(cur)
			case len(cur.Finalizers) == 0:
				rec.gone = true
				return resource.Mutation{Delete: true}, nil
			}
			o, err := doomed(cur, rec.token)
			return resource.Mutation{Object: o}, err
		})
	})
}

// release removes the finalizers, which ends a deletion that waits for them.
func (w *writer) release(ctx context.Context, key resource.Key) {
	w.do(ctx, "release", key, func(ctx context.Context, d *Door, rec *write) (*resource.Object, error) {
		return d.Store().Update(ctx, key, func(cur *resource.Object) (resource.Mutation, error) {
			if cur == nil {
				return resource.Mutation{}, notFound(key)
			}
			o, err := released(cur, rec.token)
			rec.gone = !d.Holds && cur.Terminating()
			return resource.Mutation{Object: o, Delete: rec.gone}, err
		})
	})
}

// satisfy writes an object of the selection until that is acknowledged, and returns its
// revision.
func (w *writer) satisfy(ctx context.Context, sel *selection) int64 {
	for ctx.Err() == nil {
		rec := w.do(ctx, "satisfy", sel.sample, w.set(sel.sample, sel.traits, true, 0))
		if rec.outcome == acknowledged {
			return rec.rev
		}
		if w.hopeless() {
			return 0
		}
	}
	return 0
}

// hopeless reports whether there are so many faults that the history ends.
func (p *play) hopeless() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.faults) > 20
}

func notFound(key resource.Key) error {
	return apierrors.NewNotFound(Info().GroupResource(), key.Name)
}

func conflict(key resource.Key) error {
	return apierrors.NewConflict(Info().GroupResource(), key.Name, errors.New("it has changed"))
}
