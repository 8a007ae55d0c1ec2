package upstream

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// racers connect to addresses: "250ms" connects after that time, "250ms!" fails
// then, and "-" is silent. They take down what is closed.
type racers struct{ closed chan string }

func (r racers) dial(ctx context.Context, address string) (net.Conn, error) {
	text, fails := strings.CutSuffix(address, "!")
	if text == "-" {
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return nil, err
	}
	time.Sleep(d) // and does not care who waits
	if fails {
		return nil, errors.New(address)
	}
	return namedConn{nil, address, r.closed}, nil
}

type namedConn struct {
	net.Conn
	name   string
	closed chan<- string
}

func (c namedConn) Close() error { c.closed <- c.name; return nil }

// Of several addresses the next is tried when the one before has failed or had its
// head start; the first that connects is taken, and all others are let go.
func TestRace(t *testing.T) {
	for _, c := range []struct {
		list, wins string
		lost       int
		after      time.Duration
		closed     string
	}{
		{"5ms", "5ms", 0, 5 * time.Millisecond, ""},
		{"5ms 1ms", "5ms", 0, 5 * time.Millisecond, ""},
		{"- 1ms", "1ms", 1, 251 * time.Millisecond, ""},
		{"7ms! 8ms! 1ms", "1ms", 2, 16 * time.Millisecond, ""},
		{"400ms 1ms", "1ms", 1, 251 * time.Millisecond, "400ms"},
		{"300ms 100ms", "300ms", 0, 300 * time.Millisecond, "100ms"},
		{"- - 1ms", "1ms", 2, 501 * time.Millisecond, ""},
		{"- - - - - - - 1ms", "1ms", 7, 876 * time.Millisecond, ""},
		{"5ms! 6ms!", "5ms!", 0, 11 * time.Millisecond, ""},
		{"- 6ms!", "6ms!", 0, time.Second, ""},
		{"- -", errSlow.Error(), 0, time.Second, ""},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, errSlow)
			defer cancel()
			began, r := time.Now(), racers{make(chan string, 10)}
			conn, lost, err := race(ctx, strings.Fields(c.list), r.dial)
			got := fmt.Sprint(err)
			if err == nil {
				got = conn.(namedConn).name
			}
			if d := time.Since(began); got != c.wins || len(lost) != c.lost || d.Round(time.Millisecond) != c.after {
				t.Errorf("%s: %q after %v, %d lost, want %q after %v, %d", c.list, got, d, len(lost), c.wins, c.after, c.lost)
			}
			cancel()
			time.Sleep(time.Second)
			var left []string
			for len(r.closed) > 0 {
				left = append(left, <-r.closed)
			}
			if strings.Join(left, " ") != c.closed {
				t.Errorf("%s: %v were closed", c.list, left)
			}
		})
	}
}

// Families take turns, those that lost come last, and all of it is bounded.
func TestOrderOfAddresses(t *testing.T) {
	mixed := []string{"::1", "::2", "::3", "127.0.0.1", "127.0.0.2"}
	starts := map[string]bool{}
	var n names
	for range 100 {
		list := n.order(mixed)
		starts[list[0]] = true
		if len(list) != 5 || isIPv6(list[0]) == isIPv6(list[1]) || isIPv6(list[1]) == isIPv6(list[2]) || isIPv6(list[2]) == isIPv6(list[3]) {
			t.Fatalf("the families do not take turns: %v", list)
		}
	}
	if len(starts) != len(mixed) {
		t.Errorf("of 100 orders, these began one: %v", starts)
	}
	now := time.Now()
	n.avoid([]string{"::2", "127.0.0.1"}, now)
	for range 20 {
		if list := n.order(mixed); !slices.Contains(list[3:], "::2") || !slices.Contains(list[3:], "127.0.0.1") {
			t.Fatalf("those that lost are tried early: %v", list)
		}
	}
	many := make([]string, 2*maxAvoided)
	for i := range many {
		many[i] = "10.0.0." + strconv.Itoa(i)
	}
	n.avoid(many, now)
	if len(n.avoided) != maxAvoided || len(n.order(many)) != maxAddresses {
		t.Errorf("%d are kept and %d tried", len(n.avoided), len(n.order(many)))
	}
	n.avoid([]string{"::1"}, now.Add(avoidedFor+1))
	if len(n.avoided) != 1 {
		t.Errorf("%d of long ago", len(n.avoided)-1)
	}
}

// A resolver that is away, or silent, does not take an address from who has one; a
// name that is gone does.
func TestResolverAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n names
		answer := func(list []string, err error) func(context.Context, string) ([]string, error) {
			return func(context.Context, string) ([]string, error) { return list, err }
		}
		silent := func(ctx context.Context, _ string) ([]string, error) {
			<-ctx.Done()
			return nil, context.Cause(ctx)
		}
		away, gone := &net.DNSError{Err: "server misbehaving", IsTemporary: true}, &net.DNSError{Err: "no such host", IsNotFound: true}
		for i, c := range []struct {
			lookup func(context.Context, string) ([]string, error)
			want   string
			after  time.Duration
		}{
			{answer(nil, away), "", 0},
			{silent, "", time.Second},
			{answer([]string{"::1"}, nil), "::1", 0},
			{answer(nil, away), "::1", 0},
			{silent, "::1", time.Second / 2},
			{answer([]string{"::2"}, nil), "::2", 0},
			{answer(nil, gone), "", 0},
			{answer(nil, away), "", 0},
		} {
			ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, errSlow)
			began := time.Now()
			list, err := n.find(ctx, "server.test", c.lookup)
			if strings.Join(list, " ") != c.want || (err == nil) != (c.want != "") || time.Since(began) != c.after {
				t.Errorf("%d: %v %v after %v, want %q after %v", i, list, err, time.Since(began), c.want, c.after)
			}
			cancel()
		}
	})
}
