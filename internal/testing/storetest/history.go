package storetest

import (
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"portico/resource"
)

// OpenHistory is Open with a function that removes the history before a revision.
type OpenHistory = func(t *testing.T, info *resource.Info) (store resource.Store, compact func(t *testing.T, rev int64))

// RunHistory checks the responses of a store to requests for history that was removed.
func RunHistory(t *testing.T, open OpenHistory) {
	runHistory(t, false, open)
}

// RunLongHistory is RunHistory for a store that may have more history than the one beneath
// it, which compact applies to: a response that is not Expired must be right.
func RunLongHistory(t *testing.T, open OpenHistory) {
	runHistory(t, true, open)
}

func runHistory(t *testing.T, long bool, open OpenHistory) {
	for _, tt := range historyTests {
		run(t, []test{{tt.name, func(t *testing.T, s *subject) {
			h := &past{subject: s, long: long}
			s.open = func(t *testing.T, info *resource.Info) (store resource.Store) {
				store, h.compact = open(t, info)
				return store
			}
			tt.f(t, h)
		}}}, nil, false)
	}
}

// past is a subject with compacted history.
type past struct {
	*subject
	compact func(t *testing.T, rev int64)
	long    bool
}

// gone reports whether an error is Expired, as it must be unless the store may have the
// history.
func (h *past) gone(what string, err error) bool {
	h.Helper()
	if err == nil && h.long {
		return false
	}
	h.wantError(what, err, apierrors.IsResourceExpired)
	return true
}

var historyTests = []struct {
	name string
	f    func(t *testing.T, h *past)
}{
	{"ExactList", func(t *testing.T, h *past) {
		h.on(Namespaced())
		first := h.mustCreate(key("a", "x"), "1")
		last := h.mustSet(key("a", "x"), "2")
		h.compact(t, last.Revision)
		l, err := h.List(h.ctx, resource.ListOptions{At: resource.At{Freshness: resource.Exact, Revision: first.Revision}})
		if !h.gone("exact list", err) {
			h.wantNames("remembered", l.Items, "a/x=1")
		}
		l = h.mustList(resource.ListOptions{At: resource.At{Freshness: resource.Exact, Revision: last.Revision}})
		h.wantNames("oldest kept", l.Items, "a/x=2")
	}},
	{"Continue", func(t *testing.T, h *past) {
		h.on(Namespaced())
		h.fill(6)
		first := h.mustList(resource.ListOptions{Limit: 2})
		last := h.mustSet(key("a", "x0003"), "changed")
		h.compact(t, last.Revision)
		l, err := h.List(h.ctx, resource.ListOptions{Limit: 2, Continue: first.Continue})
		if !h.gone("page", err) {
			h.wantNames("remembered page", l.Items, "a/x0002=1", "a/x0003=1")
			return
		}
		token := resource.AsStatus(err).Continue
		if token == "" {
			t.Fatal("the error holds no token to go on with")
		}
		l = h.mustList(resource.ListOptions{Limit: 2, Continue: token})
		h.wantNames("inconsistent page", l.Items, "a/x0002=1", "a/x0003=changed")
	}},
	{"Watch", func(t *testing.T, h *past) {
		h.on(Namespaced())
		k := key("a", "x")
		first := h.mustCreate(k, "1")
		h.mustSet(k, "2")
		last := h.mustSet(k, "3")
		h.compact(t, last.Revision)
		w, err := h.Watch(h.ctx, resource.WatchOptions{Since: first.Revision})
		if err == nil {
			defer w.Close()
			old := &watching{Watcher: w, s: h.subject}
			var e resource.Event
			if e, err = old.next(); err == nil {
				old.pending = append([]resource.Event{e}, old.pending...)
			} else if _, again := w.Next(h.ctx); again != err {
				t.Errorf("second Next after %v: %v", err, again)
			}
			if !h.gone("watch", err) {
				old.want(resource.Modified, k, "2")
				old.want(resource.Modified, k, "3")
			}
		} else {
			h.skipIfRefused(err)
			h.gone("watch", err)
		}
		fresh := h.mustWatch(resource.WatchOptions{Since: last.Revision})
		h.mustSet(k, "4")
		fresh.want(resource.Modified, k, "4")
	}},
}

// RunHinted checks writes with hints. The stores of open must be resource.Hinted.
func RunHinted(t *testing.T, open Open) { run(t, hintedTests, open, false) }

var hintedTests = []test{
	{"UpdateStartsFromTheHint", func(t *testing.T, s *subject) {
		h := s.on(Namespaced()).Store.(resource.Hinted)
		k := key("a", "x")
		made, calls := s.mustCreate(k, "1"), 0
		got, err := h.UpdateFrom(s.ctx, k, made, func(cur *resource.Object) (resource.Mutation, error) {
			calls++
			return resource.Mutation{Object: s.make(k, s.value(cur)+"+")}, nil
		})
		if err != nil || s.value(got) != "1+" || calls != 1 {
			t.Errorf("got %v, %v after %d calls", got, err, calls)
		}
	}},
	{"StaleHintIsNotCommitted", func(t *testing.T, s *subject) {
		h := s.on(Namespaced()).Store.(resource.Hinted)
		k := key("a", "x")
		stale := s.mustCreate(k, "1")
		s.mustSet(k, "2")
		got, err := h.UpdateFrom(s.ctx, k, stale, func(cur *resource.Object) (resource.Mutation, error) {
			return resource.Mutation{Object: s.make(k, s.value(cur)+"+")}, nil
		})
		if err != nil || s.value(got) != "2+" {
			t.Errorf("got %v, %v", got, err)
		}
	}},
	{"StaleErrorIsNotReported", func(t *testing.T, s *subject) {
		h := s.on(Namespaced()).Store.(resource.Hinted)
		k := key("a", "x")
		stale := s.mustCreate(k, "1")
		current := s.mustSet(k, "2")
		got, err := h.UpdateFrom(s.ctx, k, stale, func(cur *resource.Object) (resource.Mutation, error) {
			if cur.Revision != current.Revision {
				return resource.Mutation{}, errRefused
			}
			return resource.Mutation{Object: s.make(k, "3")}, nil
		})
		if err != nil || s.value(got) != "3" {
			t.Errorf("got %v, %v", got, err)
		}
		_, err = h.UpdateFrom(s.ctx, k, got, func(*resource.Object) (resource.Mutation, error) {
			return resource.Mutation{}, errRefused
		})
		s.wantError("error from a current hint", err, apierrors.IsConflict)
	}},
	{"StaleNoChangeWrites", func(t *testing.T, s *subject) {
		h := s.on(Namespaced()).Store.(resource.Hinted)
		k := key("a", "x")
		stale := s.mustCreate(k, "1")
		s.mustSet(k, "2")
		back := func(*resource.Object) (resource.Mutation, error) {
			return resource.Mutation{Object: s.make(k, "1")}, nil
		}
		got, err := h.UpdateFrom(s.ctx, k, stale, back)
		if err != nil || s.value(got) != "1" || got.Revision == stale.Revision {
			t.Errorf("got %v, %v", got, err)
		}
		same, err := h.UpdateFrom(s.ctx, k, got, back)
		if err != nil || same.Revision != got.Revision {
			t.Errorf("no change from a current hint: %v, %v", same, err)
		}
	}},
	{"HintOfADeletedObject", func(t *testing.T, s *subject) {
		h := s.on(Namespaced()).Store.(resource.Hinted)
		k := key("a", "x")
		stale := s.mustCreate(k, "1")
		s.mustDelete(k)
		_, err := h.DeleteFrom(s.ctx, k, stale, nil)
		s.wantError("delete of what is gone", err, apierrors.IsNotFound)
		again := s.mustCreate(k, "2")
		gone, err := h.DeleteFrom(s.ctx, k, stale, func(cur *resource.Object) error {
			if s.value(cur) == "1" {
				return errRefused
			}
			return nil
		})
		if err != nil || s.value(gone) != "2" || gone.Revision <= again.Revision {
			t.Errorf("deleted %v, %v", gone, err)
		}
	}},
}
