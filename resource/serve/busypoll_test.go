package serve

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"portico/resource/busypoll"
)

// A request is a sign of traffic, and the poller ends with the server.
func TestBusyPoll(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	registry := prometheus.NewRegistry()
	p, err := busypoll.New(busypoll.Config{For: time.Millisecond, Registry: registry})
	if errors.Is(err, busypoll.ErrUnsupported) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	s := newTestServer(t, ok, func(c *Config) { c.BusyPoll = p })
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	polls := func() float64 {
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		if name := families[0].GetName(); name != "portico_busy_polls_total" {
			t.Fatal(name)
		}
		return families[0].GetMetric()[0].GetCounter().GetValue()
	}
	before := polls()
	for end := time.Now().Add(20 * time.Second); polls() == before; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("nobody looks for work after a request")
		}
		if code := do(s, "GET", pathPods).Code; code != 200 {
			t.Fatal(code)
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	before = polls()
	if do(s, "GET", pathPods); polls() != before {
		t.Error("it goes on after its server")
	}
}
