//go:build upgrade

package ha

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"portico/apiservice/backend"
	"portico/cmd/e2e"
	"portico/internal/testing/await"
	"portico/internal/testing/history"
)

// An installation of the last release is upgraded, a process at a time, while clients of
// all verbs work through a load balancer, and then taken back in the opposite order. Both versions serve side by side:
// the history is right, no acknowledged write is lost, one process leads in each election, and no request fails but those
// that a process of v0.1.0 refuses while it stops.
func TestRollingUpgrade(t *testing.T) {
	t.Parallel()
	last := e2e.Releases[len(e2e.Releases)-1]
	program, _ := last.Build(t)
	var b *balancer
	in := prepare(t, shutdownDelay, func(in *installation, address string) { b = balance(t, in, address) })
	in.startRelease(t, program)
	b.uses(t)
	admin, o := in.Config(t), newObserver()
	o.restarts, o.refusals = true, "upgrade of"
	define(t, admin)
	served(t, admin)
	var doors []*rest.Config
	for range gateways {
		// A connection of its own.
		cfg := o.door(admin, in.Endpoint, "")
		cfg.Dial = new(net.Dialer).DialContext
		doors = append(doors, cfg)
	}
	probes := probes(t, in, admin)
	replace := func(name, release string) func(context.Context) error {
		return func(ctx context.Context) error {
			what := map[bool]string{true: "upgrade of ", false: "step back of "}[release == ""] + name
			defer o.begin(what, name)()
			began := time.Now()
			if err := in.processes[name].replace(ctx, release, probes); err != nil {
				return fmt.Errorf("%s: %w", what, err)
			}
			b.uses(t)
			t.Logf("%s: all is served after %v", what, time.Since(began).Round(time.Millisecond))
			return nil
		}
	}
	// Each kind of process meets the other ones in both versions, in both directions.
	order := []string{"core-0", "crd-0", "gateway-0", "core-1", "crd-1", "gateway-1", "gateway-2"}
	seed := rand.Uint64()
	sys := history.System{Journal: in.journal(t, removeRecords(t, in, admin))}
	for _, name := range order {
		sys.Restarts = append(sys.Restarts, replace(name, ""))
	}
	for _, name := range slices.Backward(order) {
		sys.Restarts = append(sys.Restarts, replace(name, program))
	}
	for _, cfg := range doors {
		sys.Doors = append(sys.Doors, historyDoor(t, cfg))
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	clients, wait := startVerbs(ctx, o, 50*time.Millisecond, doors...)
	if err := history.Play(t.Context(), sys, history.Config{Seed: seed, InTurn: true, Pause: 20 * time.Millisecond, Patience: await.Patience()}); err != nil {
		t.Errorf("seed %d: %v", seed, err)
	}
	stop()
	wait()
	for _, v := range clients {
		v.check(t, in.Client(t))
	}
	in.oneLeaderEach(t)
	o.report(t)
}

// startRelease starts the processes of an earlier release, of which gateways start with nothing but etcd, and registers the
// servers.
func (in *installation) startRelease(t *testing.T, program string) {
	t.Helper()
	in.withoutBackends(t)
	all := slices.Concat(backends, gateways)
	for _, name := range all {
		in.processes[name].release = program
	}
	in.start(t, all...)
	for _, name := range all {
		if err := in.processes[name].awaitReady(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	in.register(t)
	// As often as the servers that a gateway starts with: a server serves on for two seconds after it is told to stop.
	for _, name := range []string{"core", "crd"} {
		_, err := e2e.DynamicClient(t, in.Config(t)).Resource(backend.GroupVersion().WithResource("backends")).Patch(t.Context(), name,
			types.MergePatchType, []byte(`{"spec":{"healthCheck":{"interval":"1s"}}}`), metav1.PatchOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range gateways {
		in.serves(t, "https://"+in.address(name))
	}
}

// replace ends the process in order, starts it in another version, and waits until all is served.
func (p *process) replace(ctx context.Context, release string, probes []func(context.Context) error) error {
	if err := p.terminate(ctx); err != nil {
		return err
	}
	p.release = release
	if err := p.start(); err != nil {
		return err
	}
	if err := p.awaitReady(ctx); err != nil {
		return err
	}
	for _, probe := range probes {
		if err := probe(ctx); err != nil {
			return err
		}
	}
	return nil
}
