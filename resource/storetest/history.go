package storetest

import (
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"portico/resource"
)

// RunHistory checks what happens when a store no longer keeps the history that
// is asked for. open is as for Run, and its compact makes the store forget
// what was before a revision.
func RunHistory(t *testing.T, open func(t *testing.T, info *resource.Info) (store resource.Store, compact func(t *testing.T, rev int64))) {
	var compact func(t *testing.T, rev int64)
	run(t, historyTests(&compact), func(t *testing.T, info *resource.Info) (s resource.Store) {
		s, compact = open(t, info)
		return s
	})
}

func historyTests(compact *func(t *testing.T, rev int64)) []test {
	return []test{
		{"ExactList", func(t *testing.T, s *subject) {
			s.on(Namespaced())
			first := s.mustCreate(key("a", "x"), "1")
			last := s.mustSet(key("a", "x"), "2")
			(*compact)(t, last.Revision)
			_, err := s.List(s.ctx, resource.ListOptions{At: resource.At{Freshness: resource.Exact, Revision: first.Revision}})
			s.wantError("exact list", err, apierrors.IsResourceExpired)
			l := s.mustList(resource.ListOptions{At: resource.At{Freshness: resource.Exact, Revision: last.Revision}})
			s.wantNames("oldest kept", l.Items, "a/x=2")
		}},
		{"Continue", func(t *testing.T, s *subject) {
			s.on(Namespaced())
			s.fill(6)
			first := s.mustList(resource.ListOptions{Limit: 2})
			last := s.mustSet(key("a", "x0003"), "changed")
			(*compact)(t, last.Revision)
			_, err := s.List(s.ctx, resource.ListOptions{Limit: 2, Continue: first.Continue})
			s.wantError("page", err, apierrors.IsResourceExpired)
			token := resource.AsStatus(err).Continue
			if token == "" {
				t.Fatal("the error holds no token to go on with")
			}
			l := s.mustList(resource.ListOptions{Limit: 2, Continue: token})
			s.wantNames("inconsistent page", l.Items, "a/x0002=1", "a/x0003=changed")
		}},
		{"Watch", func(t *testing.T, s *subject) {
			s.on(Namespaced())
			k := key("a", "x")
			first := s.mustCreate(k, "1")
			s.mustSet(k, "2")
			last := s.mustSet(k, "3")
			(*compact)(t, last.Revision)
			w, err := s.Watch(s.ctx, resource.WatchOptions{Since: first.Revision})
			if err == nil {
				defer w.Close()
				_, err = w.Next(s.ctx)
				if _, again := w.Next(s.ctx); again != err {
					t.Errorf("second Next after %v: %v", err, again)
				}
			}
			s.wantError("watch", err, apierrors.IsResourceExpired)
			fresh := s.mustWatch(resource.WatchOptions{Since: last.Revision})
			s.mustSet(k, "4")
			fresh.want(resource.Modified, k, "4")
		}},
	}
}

// RunHinted checks writes that start from a state the caller has at hand. The
// stores that open makes must be resource.Hinted.
func RunHinted(t *testing.T, open func(t *testing.T, info *resource.Info) resource.Store) {
	run(t, hintedTests, open)
}

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
