package etcd

import (
	"context"
	"errors"
	"maps"
	"slices"
	"testing"

	"portico/internal/testing/await"
)

// Walk finds the keys of all families below the prefix, and ParseKey what each is. What others keep in the same etcd is not
// read.
func TestWalk(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	c := s.client(t, func(c *Config) { c.Prefix = "/here" })
	want := map[string]string{
		"/here/configmaps/a/b": "objects configmaps/a/b", "compact_rev_key": "compaction ",
		"portico/documents/here/versions/core": "documents versions/core", "portico/elections/here/crd/1": "elections crd/1",
	}
	for _, key := range append(slices.Collect(maps.Keys(want)), "/hereafter", "/there/configmaps/a", "portico/documents/there/x", "compact_rev_key2") {
		if _, err := c.etcd.Put(t.Context(), key, "value"); err != nil {
			t.Fatal(err)
		}
	}
	got := map[string]string{}
	err := c.Walk(t.Context(), func(key string, value []byte) {
		family, name := ParseKey("here", key)
		got[key] = string(family) + " " + name
	})
	if err != nil || !maps.Equal(got, want) {
		t.Errorf("found %v (%v), want %v", got, err, want)
	}
	for _, key := range []string{"/there/a", "compact_rev_key2", "portico/other", ""} {
		if family, name := ParseKey("/here/", key); family != "" {
			t.Errorf("%q is %q of %s", key, name, family)
		}
	}
}

// The version of the process that started last is recorded; one that is recorded already is not written again.
func TestRecordVersion(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	c := s.client(t)
	recorded := func() Document {
		all, err := c.Documents(VersionFamily).Read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return all["core"]
	}
	for _, version := range []string{"0.1.0", "0.2.0"} {
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- c.RecordVersion(ctx, "core", version) }()
		await.Until(t, "the version is recorded", func() bool { return string(recorded().Data) == version })
		stop()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
	before := recorded()
	if err := c.Documents(VersionFamily).set(t.Context(), "core", []byte("0.2.0")); err != nil || recorded().Revision != before.Revision {
		t.Errorf("a version that is recorded is written again, or an error: %v", err)
	}
}
