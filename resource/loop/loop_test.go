package loop_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"portico/resource/loop"
)

func TestRetryBacksOffUntilSuccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var at []time.Duration
		start := time.Now()
		err := loop.Retry(t.Context(), loop.Backoff{Initial: time.Second, Max: 4 * time.Second}, func(context.Context) error {
			at = append(at, time.Since(start))
			if len(at) == 6 {
				return nil
			}
			return errors.New("not yet")
		})
		if err != nil {
			t.Fatal(err)
		}
		longest := []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 4 * time.Second, 4 * time.Second}
		for i, most := range longest {
			if d := at[i+1] - at[i]; d < most/2 || d > most {
				t.Errorf("wait %d was %v, want between %v and %v", i, d, most/2, most)
			}
		}
	})
}

func TestRetryEndsWithContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	calls := 0
	err := loop.Retry(ctx, loop.Backoff{Initial: time.Hour, Max: time.Hour}, func(context.Context) error {
		calls++
		cancel()
		return errors.New("never")
	})
	if !errors.Is(err, context.Canceled) || calls != 1 {
		t.Fatalf("got %v after %d calls", err, calls)
	}
}

func TestNudgeCoalesces(t *testing.T) {
	var n loop.Nudge
	for range 5 {
		n.Poke()
	}
	<-n.C()
	select {
	case <-n.C():
		t.Fatal("five pokes woke twice")
	default:
	}
	n.Poke()
	<-n.C()
}

func TestEntriesReuseAndRetire(t *testing.T) {
	e := loop.NewEntries[string, *int](t.Context())
	var started []string
	ended := make(chan string, 10)
	start := func(life *loop.Life, key string) *int {
		started = append(started, key)
		life.Go(func(ctx context.Context) { <-ctx.Done(); ended <- key })
		return new(int)
	}
	first, retire := e.Sync(slices.Values([]string{"a", "b", "a"}), start)
	retire()
	if !slices.Equal(started, []string{"a", "b"}) || len(ended) != 0 {
		t.Fatalf("started %v, ended %d", started, len(ended))
	}
	second, retire := e.Sync(slices.Values([]string{"b", "c"}), start)
	if second["b"] != first["b"] {
		t.Error("b was not reused")
	}
	if got := slices.Sorted(maps.Keys(second)); !slices.Equal(got, []string{"b", "c"}) {
		t.Errorf("live %v", got)
	}
	if len(ended) != 0 {
		t.Error("a was retired before the swap")
	}
	if first["a"] == nil {
		t.Error("an old set was changed")
	}
	retire()
	if got := <-ended; got != "a" || len(ended) != 0 {
		t.Errorf("retired %s and %d more", got, len(ended))
	}
	// A key that comes back is made anew.
	third, retire := e.Sync(slices.Values([]string{"a", "b", "c"}), start)
	retire()
	if third["a"] == first["a"] {
		t.Error("a retired value came back")
	}
	e.Close()
	if len(ended) != 3 {
		t.Errorf("close ended %d entries, want 3", len(ended))
	}
}
