package masterlease

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"portico/internal/testing/await"
	"portico/internal/testing/memstore"
	"portico/resource"
)

func TestLeases(t *testing.T) {
	t.Parallel()
	kept := memstore.New()
	l := New(func(i *resource.Info) resource.Store { return kept.Store(i) })
	list := func() string {
		t.Helper()
		all, err := l.List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(all)
	}
	for _, text := range []string{"192.0.2.2:6443", "[2001:db8::1]:6443", "192.0.2.1:443", "192.0.2.1:443"} {
		addr, ok := Parse(text)
		if !ok {
			t.Fatalf("%s is no address", text)
		}
		if err := l.Renew(t.Context(), addr); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := list(), "[192.0.2.1:443 192.0.2.2:6443 [2001:db8::1]:6443]"; got != want {
		t.Errorf("addresses are %s, want %s", got, want)
	}
	for _, text := range []string{"", "gateway.example:6443", "192.0.2.1", "0.0.0.0:6443", "192.0.2.1:0"} {
		if addr, ok := Parse(text); ok {
			t.Errorf("%q is %s", text, addr)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	addr, _ := Parse("192.0.2.9:1")
	before := list()
	go func() { done <- l.Keep(ctx, addr, slog.New(slog.DiscardHandler)) }()
	for deadline := time.Now().Add(await.Patience()); list() == before && time.Now().Before(deadline); time.Sleep(time.Millisecond) {
	}
	if list() == before {
		t.Error("the address is not kept")
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) || list() != before {
		t.Errorf("ended with %v, addresses are %s", err, list())
	}
}
