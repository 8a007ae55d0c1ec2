package etcd

import (
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"portico/internal/testing/storetest"
)

// A bar stops creations with its name, of every process, and nothing else.
func TestBar(t *testing.T) {
	t.Parallel()
	server := newServer(t)
	share := func(cfg *Config) { cfg.Prefix = "/shared" }
	c, other := server.client(t, share), server.client(t, share)
	store := c.Store(storetest.Namespaced())
	barred := c.UnlessBarred(t.Context(), "deleted", apierrors.NewForbidden(storetest.Namespaced().GroupResource(), "x", nil))
	create := func(name string) error {
		o := setting(t, name, "1")
		_, err := store.Create(barred, o.Key(), o, 0)
		return err
	}
	if err := create("before"); err != nil {
		t.Fatal(err)
	}
	for range 2 { // again after a failure
		if err := other.Bar(t.Context(), "deleted", time.Minute); err != nil {
			t.Fatal(err)
		}
	}
	if err := create("after"); !apierrors.IsForbidden(err) {
		t.Errorf("a creation: %v", err)
	}
	if err := create("before"); !apierrors.IsForbidden(err) && !apierrors.IsAlreadyExists(err) {
		t.Errorf("a creation of what exists: %v", err)
	}
	if _, err := store.Update(barred, setting(t, "before", "").Key(), asSetting(t, "before", "2")); err != nil {
		t.Errorf("an update: %v", err)
	}
	free := setting(t, "free", "1")
	if _, err := store.Create(c.UnlessBarred(t.Context(), "else", nil), free.Key(), free, 0); err != nil {
		t.Errorf("a creation with another name: %v", err)
	}
}
