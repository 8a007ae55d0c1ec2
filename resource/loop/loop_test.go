package loop_test

import (
	"context"
	"errors"
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

func TestSignalCoalesces(t *testing.T) {
	var s loop.Signal
	for range 5 {
		s.Set()
	}
	<-s.C()
	select {
	case <-s.C():
		t.Fatal("five calls of Set woke twice")
	default:
	}
	s.Set()
	<-s.C()
}
