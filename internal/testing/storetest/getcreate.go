package storetest

import (
	"strconv"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"portico/resource"
)

var getTests = []test{
	{"Missing", func(t *testing.T, s *subject) {
		s.on(Namespaced())
		for _, f := range []resource.Freshness{resource.Latest, resource.Any} {
			_, err := s.Get(s.ctx, key("a", "none"), resource.At{Freshness: f})
			s.wantError("get", err, apierrors.IsNotFound)
		}
	}},
	{"WhatWasWritten", func(t *testing.T, s *subject) {
		s.on(Namespaced())
		k := key("a", "x")
		made := s.mustCreate(k, "1", "l", "m")
		got, err := s.Get(s.ctx, k, resource.At{})
		if err != nil {
			t.Fatal(err)
		}
		if s.value(got) != "1" || got.Revision != made.Revision || got.Key() != k || got.Labels.Get("l") != "m" {
			t.Errorf("got %s at %d, want the object made at %d", got.Data, got.Revision, made.Revision)
		}
		if got.Kind != s.Info().Kind || got.APIVersion != "storetest.portico.dev/v1" {
			t.Errorf("got a %s %s", got.APIVersion, got.Kind)
		}
	}},
	{"ClusterScoped", func(t *testing.T, s *subject) {
		s.on(ClusterScoped())
		s.mustCreate(key("", "x"), "1")
		got, err := s.Get(s.ctx, key("", "x"), resource.At{})
		if err != nil || s.value(got) != "1" || got.Namespace != "" {
			t.Errorf("got %+v, %v", got, err)
		}
	}},
	{"NotOlderThan", func(t *testing.T, s *subject) {
		s.on(Namespaced())
		k := key("a", "x")
		s.mustCreate(k, "1")
		second := s.mustSet(k, "2")
		got, err := s.Get(s.ctx, k, resource.At{Freshness: resource.NotOlderThan, Revision: second.Revision})
		if err != nil || s.value(got) != "2" {
			t.Errorf("got %v, %v", got, err)
		}
	}},
	{"Future", func(t *testing.T, s *subject) {
		s.on(Namespaced())
		at := resource.At{Freshness: resource.NotOlderThan, Revision: s.mustCreate(key("a", "x"), "1").Revision + 1_000_000}
		_, err := s.Get(s.ctx, key("a", "x"), at)
		s.wantError("get from the future", err, isTooLarge)
	}},
	{"LatestSeesEveryWrite", func(t *testing.T, s *subject) {
		s.on(Namespaced())
		k := key("a", "x")
		s.mustCreate(k, "0")
		for i := range 2 * rounds() {
			made := s.mustSet(k, strconv.Itoa(i+1))
			got, err := s.Get(s.ctx, k, resource.At{})
			if err != nil || got.Revision != made.Revision {
				t.Fatalf("read %v (%v) after a write at %d", got, err, made.Revision)
			}
		}
		s.mustDelete(k)
		_, err := s.Get(s.ctx, k, resource.At{})
		s.wantError("get after delete", err, apierrors.IsNotFound)
	}},
}

var createTests = []test{
	{"Twice", func(t *testing.T, s *subject) {
		s.on(Namespaced())
		k := key("a", "x")
		s.mustCreate(k, "1")
		_, err := s.Create(s.ctx, k, s.make(k, "2"), 0)
		s.wantError("create again", err, apierrors.IsAlreadyExists)
		if got, err := s.Get(s.ctx, k, resource.At{}); err != nil || s.value(got) != "1" {
			t.Errorf("after a refused create: %v, %v", got, err)
		}
	}},
	{"AgainAfterDelete", func(t *testing.T, s *subject) {
		s.on(Namespaced())
		k := key("a", "x")
		first := s.mustCreate(k, "1")
		gone := s.mustDelete(k)
		second := s.mustCreate(k, "2")
		if !(first.Revision < gone.Revision && gone.Revision < second.Revision) {
			t.Errorf("revisions %d, %d, %d do not grow", first.Revision, gone.Revision, second.Revision)
		}
	}},
	{"RevisionInBytesIsIgnored", func(t *testing.T, s *subject) {
		s.on(Namespaced())
		k := key("a", "x")
		made, err := s.Create(s.ctx, k, s.make(k, "1").WithRevision(999_999_999), 0)
		s.skipIfRefused(err)
		if err != nil {
			t.Fatal(err)
		}
		if s.value(made) != "1" || made.Revision == 999_999_999 {
			t.Errorf("created at %d", made.Revision)
		}
	}},
	{"OddNames", func(t *testing.T, s *subject) {
		s.on(Namespaced())
		names := []string{"a.b", "UPPER:colon", "with space", "ünïcødé", "名前", "percent%2f", "q?&#", "~", "zz\x01"}
		for _, name := range names {
			k := key("a", name)
			_, err := s.Create(s.ctx, k, s.make(k, name), 0)
			s.skipIfRefused(err)
			if err != nil {
				t.Fatalf("create %q: %v", name, err)
			}
		}
		for _, name := range names {
			got, err := s.Get(s.ctx, key("a", name), resource.At{})
			if err != nil || s.value(got) != name || got.Name != name {
				t.Errorf("get %q: %v, %v", name, got, err)
			}
		}
		if got := s.pages(resource.ListOptions{Limit: 2}); len(got) != len(names) {
			t.Errorf("pages hold %d of %d objects", len(got), len(names))
		}
	}},
	{"TTL", func(t *testing.T, s *subject) {
		s.on(Namespaced())
		goes, stays, last := key("a", "goes"), key("a", "stays"), key("a", "last")
		w := s.mustWatch(resource.WatchOptions{})
		made, err := s.Create(s.ctx, goes, s.make(goes, "1"), time.Second)
		s.skipIfRefused(err)
		if err != nil {
			t.Fatal(err)
		}
		// The TTL ends with a write that has none: when a later one has run
		// out, the object is still there.
		if _, err := s.Create(s.ctx, stays, s.make(stays, "1"), time.Second); err != nil {
			t.Fatal(err)
		}
		s.mustSet(stays, "2")
		w.want(resource.Added, goes, "1")
		w.want(resource.Added, stays, "1")
		w.want(resource.Modified, stays, "2")
		e := w.want(resource.Deleted, goes, "1")
		if e.Revision <= made.Revision || e.Object.Revision != e.Revision {
			t.Errorf("expired at %d (object says %d), created at %d", e.Revision, e.Object.Revision, made.Revision)
		}
		_, err = s.Get(s.ctx, goes, resource.At{})
		s.wantError("get after expiry", err, apierrors.IsNotFound)
		if _, err := s.Create(s.ctx, last, s.make(last, "1"), time.Second); err != nil {
			t.Fatal(err)
		}
		w.want(resource.Added, last, "1")
		w.want(resource.Deleted, last, "1")
		if got, err := s.Get(s.ctx, stays, resource.At{}); err != nil || s.value(got) != "2" {
			t.Errorf("rewritten object: %v, %v", got, err)
		}
	}},
}
