package gateway

import (
	"context"
	"fmt"
	"log/slog"
	"testing"

	"portico/gateway/lastgood"
	"portico/gateway/routing"
	"portico/resource"
	"portico/resource/loop"
)

// newLastGood is one without etcd, of a gateway that knows no server.
func newLastGood(t *testing.T) *lastGood {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	s := routing.New(routing.Config{Logger: log})
	l := &lastGood{log: log, sync: s, core: newCoreClient(s.Table, s.SetServices, log)}
	if err := l.keep(nil, ""); err != nil {
		t.Fatal(err)
	}
	return l
}

func TestBoundSecrets(t *testing.T) {
	var b boundObjects
	key := func(i int) resource.Key { return resource.Key{Namespace: "a", Name: fmt.Sprint(i)} }
	for i := range maxBound + 10 {
		b.set(key(i), "u")
	}
	if kept := b.kept(); len(kept["a"]) != maxBound {
		t.Errorf("%d are remembered, the bound is %d", len(kept["a"]), maxBound)
	}
	last := key(maxBound + 9)
	if uid, ok := b.get(last); !ok || uid != "u" {
		t.Error("the latest is not remembered")
	}
	before := b.changes()
	b.set(last, "u")
	if b.changes() != before {
		t.Error("nothing changed and counts as a change")
	}
	b.set(last, "")
	if _, ok := b.get(last); ok {
		t.Error("a secret that is gone is remembered")
	}
	var next boundObjects
	next.set(key(1), "newer")
	next.restore(lastgood.Identities{"a": {"1": "old", "2": "u"}})
	one, _ := next.get(key(1))
	two, _ := next.get(key(2))
	if one != "newer" || two != "u" {
		t.Errorf("restored %q and %q", one, two)
	}
}

// A followed service account with another uid than the token's may be an earlier one of its name: the
// core server, which is away here, is asked.
func TestRecreatedAccount(t *testing.T) {
	t.Parallel()
	l := newLastGood(t)
	l.core.serviceAccounts.Store(&loop.Snapshot{Items: []*resource.Object{{Header: resource.Header{Namespace: "default", Name: "reader", UID: "u1"}}}})
	if uid, found, err := l.core.lookupServiceAccount(t.Context(), "default", "reader", "u1"); uid != "u1" || !found || err != nil {
		t.Errorf("a known account: %q %v %v", uid, found, err)
	}
	if uid, _, err := l.core.lookupServiceAccount(t.Context(), "default", "reader", ""); uid != "u1" || err != nil {
		t.Errorf("for an older token: %q %v", uid, err)
	}
	if uid, found, err := l.core.lookupServiceAccount(t.Context(), "default", "reader", "u2"); found || err == nil {
		t.Errorf("another uid: %q %v", uid, found)
	}
}

// Stored service accounts are valid while the core server is unavailable; others are unknown.
func TestRestoredAccounts(t *testing.T) {
	l := newLastGood(t)
	l.Restore(map[string][]byte{
		"core/serviceaccounts": packedFor(t, lastgood.Identities{"default": {"reader": "u1"}}),
		"core/secrets":         packedFor(t, lastgood.Identities{"default": {"key": "u2"}}),
	})
	ctx := context.Background()
	if uid, found, err := l.core.lookupServiceAccount(ctx, "default", "reader", "u1"); uid != "u1" || !found || err != nil {
		t.Errorf("a known account: %q %v %v", uid, found, err)
	}
	if _, found, err := l.core.lookupServiceAccount(ctx, "default", "reader", "u2"); found || err == nil {
		t.Errorf("a known account with another uid: %v %v", found, err)
	}
	if _, found, err := l.core.lookupServiceAccount(ctx, "default", "other", "u1"); found || err == nil {
		t.Errorf("an unknown account: %v %v", found, err)
	}
	if uid, found, err := l.core.lookupBound(ctx, "Secret", "default", "key"); uid != "u2" || !found || err != nil {
		t.Errorf("a known secret: %q %v %v", uid, found, err)
	}
	if _, found, err := l.core.lookupBound(ctx, "Secret", "default", "other"); found || err == nil {
		t.Errorf("an unknown secret: %v %v", found, err)
	}
}

func packedFor(t *testing.T, v any) []byte {
	t.Helper()
	data, err := lastgood.Pack(v)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
