package ha

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"portico/cmd/e2e"
	"portico/cmd/internal/supervise"
	"portico/internal/testing/await"
	"portico/internal/testing/history"
)

// haproxyEnv is set in a long run: haproxy is the load balancer.
const haproxyEnv = "PORTICO_TEST_HA_HAPROXY"

// shutdownDelay is twice what balancers and gateways take to notice that a process is not ready.
const shutdownDelay = 2 * time.Second

// A process of each kind (in a long run every process, members of etcd too) is restarted in order,
// one after the other, while clients of all verbs work through a load balancer that checks
// readiness. The history is right, and no request fails, but for a creation or an update that the
// leader of etcd has not answered.
func TestRollingRestart(t *testing.T) {
	t.Parallel()
	var b *balancer
	in := install(t, shutdownDelay, func(in *installation, address string) {
		if os.Getenv(haproxyEnv) != "" {
			haproxy(t, in, address)
			return
		}
		b = balance(t, in, address)
	})
	if b != nil {
		b.uses(t)
	}
	in.serves(t, in.Endpoint)
	admin, o := in.Config(t), newObserver()
	o.restarts = true
	define(t, admin)
	served(t, admin)
	var doors []*rest.Config
	for range gateways {
		// A connection of its own.
		cfg := o.door(admin, in.Endpoint, "")
		cfg.Dial = new(net.Dialer).DialContext
		doors = append(doors, cfg)
	}
	all := probes(t, in, admin)
	restart := func(name string) func(context.Context) error {
		return func(ctx context.Context) error {
			defer o.begin("restart of "+name, name)()
			p, began := in.processes[name], time.Now()
			if err := p.terminate(ctx); err != nil {
				return err
			}
			ended := time.Since(began)
			if err := p.start(); err != nil {
				return err
			}
			if err := p.awaitReady(ctx); err != nil {
				return err
			}
			for _, probe := range all {
				if err := probe(ctx); err != nil {
					return fmt.Errorf("after a restart of %s: %w", name, err)
				}
			}
			if b != nil {
				b.uses(t)
			}
			t.Logf("%s: ended after %v, all is served after %v", name, ended.Round(time.Millisecond), time.Since(began).Round(time.Millisecond))
			return nil
		}
	}
	names := []string{"etcd-0", "core-0", "crd-0", "gateway-0"}
	if os.Getenv(faultsEnv) != "" {
		names = slices.Concat(members, backends, gateways)
	}
	seed := rand.Uint64()
	sys := history.System{Journal: in.journal(t, removeRecords(t, in, admin))}
	for _, name := range names {
		sys.Restarts = append(sys.Restarts, restart(name))
	}
	for _, cfg := range doors {
		sys.Doors = append(sys.Doors, historyDoor(t, cfg))
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	pause, between := pauses()
	clients, wait := startVerbs(ctx, o, pause, doors...)
	if err := history.Play(t.Context(), sys, history.Config{Seed: seed, InTurn: true, Pause: between, Patience: await.Patience()}); err != nil {
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

// haproxy starts Debian's haproxy in front of the gateways.
func haproxy(t *testing.T, in *installation, address string) {
	t.Helper()
	var config strings.Builder
	fmt.Fprintf(&config, "defaults\n mode tcp\n timeout check 1s\n timeout connect 1s\n timeout client 1h\n timeout server 1h\n"+
		"listen gateways\n bind %s\n balance roundrobin\n option httpchk GET /readyz\n option redispatch\n", address)
	for _, name := range gateways {
		fmt.Fprintf(&config, " server %s %s check check-ssl verify none inter 400ms fall 2 rise 1\n", name, in.address(name))
	}
	file := filepath.Join(in.Dir, "haproxy.cfg")
	e2e.WriteFile(t, file, config.String())
	cmd := exec.Command("haproxy", "-db", "-f", file)
	cmd.SysProcAttr = supervise.ChildAttributes()
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatalf("haproxy, Debian's package, does not start: %v", err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // its error is that it was killed
	})
}
