package ha

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"portico/internal/testing/await"
	"portico/internal/testing/history"
)

// The environment of a long run (.ci/long ha): the number of faults, and the seed.
const (
	faultsEnv = "PORTICO_TEST_HA_FAULTS"
	seedEnv   = "PORTICO_TEST_HA_SEED"
)

// pauses returns the pauses of clients of ConfigMaps and of histories between two calls. Clients
// send more in a long run.
func pauses() (verbs, histories time.Duration) {
	if os.Getenv(faultsEnv) != "" {
		return 50 * time.Millisecond, 20 * time.Millisecond
	}
	return 100 * time.Millisecond, 50 * time.Millisecond
}

// faultsOfAPlay bounds the faults of one history, and so its length.
const faultsOfAPlay = 10

// Each kind of process, and both a follower and the leader of etcd, is killed, stopped and
// separated from the others, one at a time, under load through all gateways. The history of
// custom resources is right: no acknowledged write is lost, no read and no watch goes back or
// leaves anything out. So are the ConfigMaps of the core server. At most one process leads in
// each election. Requests fail where docs/operations.md says so, and nowhere else.
func TestFaults(t *testing.T) {
	t.Parallel()
	count, _ := strconv.Atoi(os.Getenv(faultsEnv)) // 0 without it
	seed, err := strconv.ParseUint(os.Getenv(seedEnv), 10, 64)
	if err != nil {
		seed = rand.Uint64()
	}
	f := &faults{rnd: rand.New(rand.NewPCG(seed, 0)), observer: newObserver(), long: count > 0}
	f.in = install(t, 500*time.Millisecond, func(in *installation, address string) { balance(t, in, address) })
	t.Logf("seed %d; the servers were ready after %v", seed, f.in.startup.Round(time.Millisecond))
	admin := f.in.Config(t)
	admin.Host = "https://" + f.in.address(gateways[0])
	define(t, admin)
	var doors []*rest.Config
	for _, name := range gateways {
		cfg := f.observer.door(admin, "https://"+f.in.address(name), name)
		served(t, cfg)
		doors = append(doors, cfg)
	}
	f.probes = probes(t, f.in, admin)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	pause, _ := pauses()
	all, wait := startVerbs(ctx, f.observer, pause, doors...)
	schedule := f.schedule(count)
	for len(schedule) > 0 && !t.Failed() {
		n := min(len(schedule), faultsOfAPlay)
		if !f.long {
			n = len(schedule)
		}
		f.play(t, seed+uint64(len(schedule)), admin, doors, schedule[:n])
		schedule = schedule[n:]
	}
	stop()
	wait()
	for _, v := range all {
		v.check(t, kubernetes.NewForConfigOrDie(admin))
	}
	f.in.oneLeaderEach(t)
	f.observer.report(t)
	for _, line := range f.lines {
		t.Log(line)
	}
}

// faults makes faults.
type faults struct {
	in       *installation
	rnd      *rand.Rand
	observer *observer
	probes   []func(ctx context.Context) error
	long     bool

	mu    sync.Mutex
	lines []string
}

// play plays a history with faults.
func (f *faults) play(t *testing.T, seed uint64, admin *rest.Config, doors []*rest.Config, schedule []func(context.Context) error) {
	t.Helper()
	from := removeRecords(t, f.in, admin)
	sys := history.System{Restarts: schedule, Journal: f.in.journal(t, from)}
	for _, cfg := range doors {
		sys.Doors = append(sys.Doors, historyDoor(t, cfg))
	}
	_, pause := pauses()
	if err := history.Play(t.Context(), sys, history.Config{Seed: seed, InTurn: true, Pause: pause, Patience: await.Patience()}); err != nil {
		t.Error(err)
	}
}

// schedule returns some faults, or one of each kind.
func (f *faults) schedule(count int) (all []func(context.Context) error) {
	for len(all) < max(count, 1) {
		var round []func(context.Context) error
		for _, of := range []string{"gateway", "core", "crd", "etcd follower", "etcd leader"} {
			for _, kind := range []string{"kill", "stop", "separate"} {
				round = append(round, func(ctx context.Context) error { return f.do(ctx, kind, of) })
			}
		}
		f.rnd.Shuffle(len(round), func(i, j int) { round[i], round[j] = round[j], round[i] })
		all = append(all, round...)
	}
	if count > 0 {
		all = all[:count]
	}
	return all
}

// lasts returns how long a fault lasts: in a long run up to longer than an election takes.
func (f *faults) lasts() time.Duration {
	if f.long {
		return 200*time.Millisecond + time.Duration(f.rnd.Int64N(int64(12*time.Second)))
	}
	return 200*time.Millisecond + time.Duration(f.rnd.Int64N(int64(600*time.Millisecond)))
}

// choose returns a process of a kind.
func (f *faults) choose(ctx context.Context, of string) *process {
	for {
		var name string
		switch of {
		case "gateway":
			name = gateways[f.rnd.IntN(len(gateways))]
		case "core", "crd":
			name = fmt.Sprint(of, "-", f.rnd.IntN(2))
		default:
			name = members[f.rnd.IntN(len(members))]
			if f.in.leads(ctx, name) != strings.HasSuffix(of, "leader") && ctx.Err() == nil {
				continue
			}
		}
		return f.in.processes[name]
	}
}

// do makes one fault, and returns when all gateways serve all again.
func (f *faults) do(ctx context.Context, kind, of string) error {
	p, lasts, name := f.choose(ctx, of), f.lasts(), kind+" "+of
	end := f.observer.begin(name, p.name)
	defer end()
	began := time.Now()
	if err := p.suffer(ctx, kind, lasts); err != nil {
		return err
	}
	over := time.Now()
	if err := p.awaitReady(ctx); err != nil {
		return err
	}
	for _, probe := range f.probes {
		if err := probe(ctx); err != nil {
			return fmt.Errorf("after %s: %w", name, err)
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lines = append(f.lines, fmt.Sprintf("%s %-26s %-9s for %8v, all is served %8v after it", clock(began), name, p.name,
		lasts.Round(time.Millisecond), time.Since(over).Round(time.Millisecond)))
	return nil
}

// suffer makes a fault of the process that lasts some time.
func (p *process) suffer(ctx context.Context, kind string, lasts time.Duration) error {
	began := time.Now()
	pause := func() {
		select {
		case <-ctx.Done():
		case <-time.After(lasts):
		}
	}
	switch kind {
	case "kill":
		p.kill()
		pause()
		return p.start()
	case "stop":
		if err := p.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
			return err
		}
		pause()
		p.impair(began)
		return p.cmd.Process.Signal(syscall.SIGCONT)
	default:
		p.in.separated.Store(true)
		p.gate.Shut()
		pause()
		p.impair(began)
		p.gate.Open()
		p.in.separated.Store(false)
		return nil
	}
}
