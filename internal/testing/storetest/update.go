package storetest

import (
	"errors"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"portico/resource"
)

// errRefused is what the suite's own functions refuse with.
var errRefused = apierrors.NewConflict(Namespaced().GroupResource(), "x", errors.New("refused by the test"))

var updateTests = []test{
	{"Replaces", func(t *testing.T, s *subject) {
		s.on(Namespaced())
		k := key("a", "x")
		made := s.mustCreate(k, "1")
		got, err := s.Update(s.ctx, k, func(cur *resource.Object) (resource.Mutation, error) {
			if cur.Revision != made.Revision || s.value(cur) != "1" {
				t.Errorf("mutate sees %s at %d", cur.Data, cur.Revision)
			}
			return resource.Mutation{Object: s.make(k, "2")}, nil
		})
		if err != nil || s.value(got) != "2" || got.Revision <= made.Revision {
			t.Fatalf("updated to %v, %v", got, err)
		}
		if read, err := s.Get(s.ctx, k, resource.At{}); err != nil || read.Revision != got.Revision || s.value(read) != "2" {
			t.Errorf("read %v, %v", read, err)
		}
	}},
	{"MissingIsNil", func(t *testing.T, s *subject) {
		s.on(Namespaced())
		_, err := s.Update(s.ctx, key("a", "x"), func(cur *resource.Object) (resource.Mutation, error) {
			if cur != nil {
				t.Errorf("mutate sees %s", cur.Data)
			}
			return resource.Mutation{}, errRefused
		})
		s.wantError("update of nothing", err, apierrors.IsConflict)
	}},
	{"CreatesWhatIsMissing", func(t *testing.T, s *subject) {
		s.on(Namespaced())
		k := key("a", "x")
		made := s.mustSet(k, "1")
		if got, err := s.Get(s.ctx, k, resource.At{}); err != nil || s.value(got) != "1" || got.Revision != made.Revision {
			t.Errorf("got %v, %v", got, err)
		}
	}},
	{"NoChangeWritesNothing", func(t *testing.T, s *subject) {
		s.on(Namespaced())
		k := key("a", "x")
		made := s.mustCreate(k, "1")
		for range 3 {
			got, err := s.Update(s.ctx, k, func(cur *resource.Object) (resource.Mutation, error) {
				same, err := resource.Parse(cur.Stored())
				return resource.Mutation{Object: same}, err
			})
			if err != nil || got.Revision != made.Revision || s.value(got) != "1" {
				t.Fatalf("got %v, %v; want the object of revision %d", got, err, made.Revision)
			}
		}
		if got, err := s.Get(s.ctx, k, resource.At{}); err != nil || got.Revision != made.Revision {
			t.Errorf("read %v, %v; want revision %d", got, err, made.Revision)
		}
	}},
	{"ErrorWritesNothing", func(t *testing.T, s *subject) {
		s.on(Namespaced())
		k := key("a", "x")
		made := s.mustCreate(k, "1")
		_, err := s.Update(s.ctx, k, func(cur *resource.Object) (resource.Mutation, error) {
			return resource.Mutation{Object: s.make(k, "2")}, errRefused
		})
		s.wantError("refused update", err, apierrors.IsConflict)
		if got, err := s.Get(s.ctx, k, resource.At{}); err != nil || got.Revision != made.Revision {
			t.Errorf("read %v, %v; want revision %d", got, err, made.Revision)
		}
	}},
	{"ErrorIsReachedFromTheCurrentState", func(t *testing.T, s *subject) {
		s.on(Namespaced())
		k := key("a", "x")
		s.mustCreate(k, "0")
		// An error that holds of the state before the last write only must
		// never come out, however often it is tried.
		for range 2 * rounds() {
			want := s.mustSet(k, "1").Revision
			got, err := s.Update(s.ctx, k, func(cur *resource.Object) (resource.Mutation, error) {
				if cur == nil || cur.Revision != want {
					return resource.Mutation{}, errRefused
				}
				return resource.Mutation{Object: s.make(k, "2")}, nil
			})
			if err != nil || s.value(got) != "2" {
				t.Fatalf("update against revision %d: %v", want, err)
			}
		}
	}},
	{"Deletes", func(t *testing.T, s *subject) {
		s.on(Namespaced())
		k := key("a", "x")
		made := s.mustCreate(k, "1")
		got, err := s.Update(s.ctx, k, func(cur *resource.Object) (resource.Mutation, error) {
			return resource.Mutation{Object: s.make(k, "last"), Delete: true}, nil
		})
		if err != nil || s.value(got) != "last" || got.Revision <= made.Revision {
			t.Fatalf("got %v, %v", got, err)
		}
		_, err = s.Get(s.ctx, k, resource.At{})
		s.wantError("get after a deleting update", err, apierrors.IsNotFound)
	}},
}

var deleteTests = []test{
	{"Missing", func(t *testing.T, s *subject) {
		s.on(Namespaced())
		_, err := s.Delete(s.ctx, key("a", "x"), func(*resource.Object) error {
			t.Error("check is called without an object")
			return nil
		})
		s.wantError("delete of nothing", err, apierrors.IsNotFound)
	}},
	{"ReturnsTheLastState", func(t *testing.T, s *subject) {
		s.on(Namespaced())
		k := key("a", "x")
		s.mustCreate(k, "1")
		last := s.mustSet(k, "2")
		gone := s.mustDelete(k)
		if s.value(gone) != "2" || gone.Revision <= last.Revision {
			t.Errorf("deleted %s at %d, last written at %d", gone.Data, gone.Revision, last.Revision)
		}
		_, err := s.Delete(s.ctx, k, nil)
		s.wantError("second delete", err, apierrors.IsNotFound)
	}},
	{"CheckMayRefuse", func(t *testing.T, s *subject) {
		s.on(Namespaced())
		k := key("a", "x")
		made := s.mustCreate(k, "1")
		_, err := s.Delete(s.ctx, k, func(cur *resource.Object) error {
			if s.value(cur) != "1" || cur.Revision != made.Revision {
				t.Errorf("check sees %s at %d", cur.Data, cur.Revision)
			}
			return errRefused
		})
		s.wantError("refused delete", err, apierrors.IsConflict)
		if got, err := s.Get(s.ctx, k, resource.At{}); err != nil || got.Revision != made.Revision {
			t.Errorf("read %v, %v", got, err)
		}
	}},
	{"CheckSeesTheCurrentState", func(t *testing.T, s *subject) {
		s.on(Namespaced())
		k := key("a", "x")
		for range 2 * rounds() {
			s.mustCreate(k, "1")
			want := s.mustSet(k, "2").Revision
			_, err := s.Delete(s.ctx, k, func(cur *resource.Object) error {
				if cur.Revision != want {
					return errRefused
				}
				return nil
			})
			if err != nil {
				t.Fatalf("delete against revision %d: %v", want, err)
			}
		}
	}},
}
