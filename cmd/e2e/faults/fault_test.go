package faults

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"portico/apiservice/backend"
	"portico/cmd/e2e"
)

// ejectAfter is how many answers in a row that are errors eject an endpoint by
// default.
const ejectAfter = 5

// endpointFault is something that happens to one of three endpoints, and its
// end.
type endpointFault struct {
	name         string
	strike, heal func(t *testing.T, n *node)
	// answers: instead, a server has taken the place of the node, and answers so.
	answers answering
	// because is what `portico backends` gives as the reason; "" is anything.
	because string
	// healthy: nothing is wrong with its state, and requests are only slow.
	healthy bool
	// told: clients are told what the endpoint answers, in part or in full, until
	// it is out.
	told bool
	// silent: writes that were sent to it may wait for as long as it lasts.
	silent bool
}

func endpointFaults() []endpointFault {
	return []endpointFault{
		{
			name:   "killed",
			strike: func(t *testing.T, n *node) { n.kill(t) },
			heal:   func(t *testing.T, n *node) { n.start(t) },
		},
		{
			name: "hung", silent: true,
			strike: func(t *testing.T, n *node) { n.signal(t, syscall.SIGSTOP) },
			heal:   func(t *testing.T, n *node) { n.signal(t, syscall.SIGCONT) },
		},
		{
			name: "with an expired certificate", because: "certificate has expired",
			strike: func(t *testing.T, n *node) {
				n.kill(t)
				n.expire(t)
				n.start(t)
			},
			heal: func(t *testing.T, n *node) {
				n.kill(t)
				n.certificate(t, "--force")
				n.start(t)
			},
		},
		{name: "slow", healthy: true, answers: answersSlowly(time.Second)},
		{name: "answering 500", told: true, answers: answers500},
		{name: "answering garbage", because: "malformed HTTP response", answers: answersGarbage},
		{name: "closing mid-response", told: true, answers: closesMidResponse},
	}
}

// One of three endpoints fails in every way there is, under load; then all are
// restarted in turn, and etcd falls silent. The clients hardly notice:
//
//   - no read fails that was not under way at that moment, or was answered by
//     the broken endpoint itself before it was out;
//   - no write is carried out twice, or sent to a second endpoint after a first
//     had it;
//   - what was acknowledged is there;
//   - the state of the endpoint, and why, is in the Backend's status.
func TestFaults(t *testing.T) {
	t.Parallel()
	f := startFleet(t)
	load := startFaultLoad(t, f)
	for _, fault := range endpointFaults() {
		t.Run(fault.name, func(t *testing.T) { f.suffer(t, load, fault) })
	}
	t.Run("restarted in turn", func(t *testing.T) { f.restart(t, load) })
	t.Run("etcd silent", func(t *testing.T) { f.silence(t, load) })
	load.judge(t, f)
}

// suffer has a fault happen to the last of the endpoints.
func (f *fleet) suffer(t *testing.T, load *faultLoad, fault endpointFault) {
	n := f.crds[2]
	strike, heal := func() { fault.strike(t, n) }, sync.OnceFunc(func() { fault.heal(t, n) })
	var broken *brokenServer
	if fault.answers != nil {
		broken = f.replace(t, load, n)
		strike, heal = func() { broken.turn(fault.answers) }, sync.OnceFunc(func() { broken.turn(answersRightly) })
		t.Cleanup(func() { f.restore(t, n, broken) })
	}
	load.settle(t, "before the fault")
	before := load.reads.Load()
	began := time.Now()
	strike()
	// Also if the test fails here: the next fault is another one.
	t.Cleanup(heal)
	if !fault.healthy {
		status := f.state(t, n, backend.EndpointUnhealthy, backend.EndpointEjected)
		t.Logf("after %v it is %s: %.100s", time.Since(began).Round(10*time.Millisecond), status.State, status.LastError)
		f.metric(t, n, backend.EndpointUnhealthy, backend.EndpointEjected)
		e2e.Eventually(t, "the reason is shown", func() error {
			if text := f.portico(t, "backends", fleetBackend); !strings.Contains(text, fault.because) {
				return errors.New(text)
			}
			return nil
		})
	}
	out := time.Now()
	writes := int64(10)
	if fault.silent {
		writes = 0
	}
	load.progress(t, "while it lasts", 100, writes)
	if fault.healthy {
		f.state(t, n, backend.EndpointHealthy)
		if asked, all := broken.count(), load.reads.Load()-before; int64(asked) > all/4 {
			t.Errorf("the slow one of three got %d of %d reads", asked, all)
		}
	}
	if broken != nil {
		broken.noneElsewhere(t, load)
	}
	healing := time.Now()
	heal()
	f.state(t, n, backend.EndpointHealthy)
	f.metric(t, n, backend.EndpointHealthy)
	t.Logf("healthy again after %v", time.Since(healing).Round(10*time.Millisecond))
	load.progress(t, "afterwards", 40, 10)
	fault.judge(t, load.failures(), began, out)
}

// judge says of what failed whether it had to. The fault was there from began
// on, and everybody knew from out on.
func (fault endpointFault) judge(t *testing.T, failed []failedRequest, began, out time.Time) {
	t.Helper()
	reads := 0
	for _, r := range failed {
		switch {
		case !r.safe() && r.began.Before(out):
			t.Logf("not known how it ended: %v", r)
		case r.safe() && r.began.Before(began), r.safe() && fault.told && r.began.Before(out):
			reads++
			t.Logf("failed with the endpoint: %v", r)
		default:
			t.Errorf("failed: %v", r)
		}
	}
	if reads > ejectAfter+faultReaders {
		t.Errorf("%d reads failed before the endpoint was out", reads)
	}
}

// replace puts a server in the place of a node that can be broken, and returns
// when it has its share of the requests.
func (f *fleet) replace(t *testing.T, load *faultLoad, n *node) *brokenServer {
	t.Helper()
	s := takePlace(t, n, f.crds[0])
	e2e.Eventually(t, "the server in its place is asked", func() error {
		if s.count() < 10 {
			return fmt.Errorf("%d times", s.count())
		}
		return nil
	})
	f.state(t, n, backend.EndpointHealthy)
	load.settle(t, "after "+n.name+" was replaced")
	return s
}

// restore puts the node back.
func (f *fleet) restore(t *testing.T, n *node, s *brokenServer) {
	t.Helper()
	s.Close()
	n.start(t)
}

// metric waits until the gateway's metrics say that a node is in one of some
// states.
func (f *fleet) metric(t *testing.T, n *node, states ...backend.EndpointState) {
	t.Helper()
	client := e2e.HTTPClient(t, f.up.Config(t))
	e2e.Eventually(t, fmt.Sprintf("a metric says that %s is %v", n.name, states), func() error {
		_, text := e2e.Get(t, client, f.up.Endpoint+"/metrics", "")
		for _, state := range states {
			if strings.Contains(text, fmt.Sprintf("portico_upstream_endpoint_state{backend=%q,endpoint=%q,state=%q} 1\n", fleetBackend, n.url(), state)) {
				return nil
			}
		}
		return errors.New("it does not")
	})
}

// restart ends one endpoint after the other by SIGTERM and starts it again when
// it has ended. Not one request fails, of whatever verb.
func (f *fleet) restart(t *testing.T, load *faultLoad) {
	load.settle(t, "before the restarts")
	for _, n := range f.crds {
		n.terminate(t)
		f.state(t, n, backend.EndpointUnhealthy, backend.EndpointEjected)
		n.start(t)
		f.state(t, n, backend.EndpointHealthy)
		load.progress(t, "after the restart of "+n.name, 40, 10)
	}
	for _, r := range load.failures() {
		t.Errorf("failed: %v", r)
	}
}
