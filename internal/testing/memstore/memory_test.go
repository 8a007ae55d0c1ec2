package memstore_test

import (
	"context"
	"strconv"
	"testing"

	"portico/internal/testing/memstore"
	"portico/internal/testing/storetest"
	"portico/resource"
)

func open(t *testing.T, info *resource.Info) resource.Store { return memstore.New().Store(info) }

func TestStore(t *testing.T)  { storetest.RunInBubble(t, open) }
func TestHinted(t *testing.T) { storetest.RunHinted(t, open) }

func TestHistory(t *testing.T) {
	storetest.RunHistory(t, func(t *testing.T, info *resource.Info) (resource.Store, func(*testing.T, int64)) {
		s := memstore.New()
		return s.Store(info), func(t *testing.T, rev int64) { s.Compact(rev) }
	})
}

func TestFeed(t *testing.T) {
	storetest.RunFeed(t, func(t *testing.T, a, b *resource.Info) (resource.Store, resource.Store, resource.Feed) {
		s := memstore.New()
		return s.Store(a), s.Store(b), s.Feed()
	})
}

func TestFeedStartsAnewAfterCompaction(t *testing.T) {
	s := memstore.New()
	store := s.Store(storetest.Namespaced())
	slow := &slowSink{Replica: storetest.NewReplica(), hold: make(chan struct{})}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go s.Feed().Run(ctx, slow)
	for i := range 10 {
		obj, err := resource.Parse([]byte(`{"apiVersion":"storetest.portico.dev/v1","kind":"Setting","metadata":{"namespace":"a","name":"x` + strconv.Itoa(i) + `"}}`))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := store.Create(ctx, obj.Key(), obj, 0); err != nil {
			t.Fatal(err)
		}
	}
	s.Compact(s.Revision())
	close(slow.hold)
	if err := slow.Wait(ctx, storetest.At(s.Revision())); err != nil {
		t.Fatal(err)
	}
	slow.Compare(ctx, t, store)
}

// slowSink blocks in its first Reset.
type slowSink struct {
	*storetest.Replica
	hold chan struct{}
}

func (s *slowSink) Reset(rev int64, state []resource.Change) {
	<-s.hold
	s.Replica.Reset(rev, state)
}
