package etcd

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
)

// Running processes read each other's documents. The document of a process that ends is removed, and the document of one that
// loses its lease comes back.
func TestPresence(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	c := s.client(t, under("/presence"))
	one, two := c.Presence("test", "one"), s.client(t, under("/presence")).Presence("test", "two")
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan error, 2)
	go func() { ended <- one.Run(t.Context()) }()
	go func() { ended <- two.Run(ctx) }()
	sees := func(what string, p *Presence, want ...string) {
		t.Helper()
		eventually(t, what, func(ctx context.Context) error {
			others, err := p.Others(ctx)
			texts := []string{}
			for _, name := range slices.Sorted(maps.Keys(others)) {
				texts = append(texts, name+"="+string(others[name].Data))
			}
			if err == nil && !slices.Equal(texts, want) {
				err = fmt.Errorf("the documents are %q, want %q", texts, want)
			}
			return err
		})
	}
	sees("one sees two", one, "two=")
	sees("two sees one", two, "one=")
	if err := two.Set(t.Context(), []byte("7")); err != nil {
		t.Fatal(err)
	}
	sees("one sees what two says", one, "two=7")
	two.mu.Lock()
	lease := two.lease
	two.mu.Unlock()
	if _, err := c.etcd.Revoke(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
	sees("two comes back", one, "two=7")
	end()
	<-ended
	sees("two is gone", one)
}
