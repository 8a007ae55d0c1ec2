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
	"portico/apiservice/explain"
	"portico/cmd/e2e"
)

// ejectAfter is the default number of consecutive errors that ejects an endpoint.
const ejectAfter = 5

// endpointFault is a fault of one of three endpoints, and its end.
type endpointFault struct {
	name         string
	strike, heal func(t *testing.T, n *node)
	// answers, if not nil, is how a server in the place of the node responds.
	answers answering
	// because is in the explanation of the route; "" is any reason.
	because string
	// healthy means that the endpoint stays healthy.
	healthy bool
	// relayed means that clients get the endpoint's responses until it is ejected.
	relayed bool
	// silent means that writes sent to the endpoint may wait until the fault ends.
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
				n.certify(t, -time.Hour)
				n.start(t)
			},
			heal: func(t *testing.T, n *node) {
				n.kill(t)
				n.certify(t, time.Hour)
				n.start(t)
			},
		},
		{name: "slow", healthy: true, answers: answersSlowly(time.Second)},
		{name: "answering 500", relayed: true, answers: answers500},
		{name: "answering garbage", because: "malformed HTTP response", answers: answersGarbage},
		{name: "closing mid-response", relayed: true, answers: closesMidResponse},
	}
}

// Under load, one of three endpoints fails in several ways, and then all are restarted one after
// the other.
//
//   - A read fails only if it was in flight when the fault began, or if the broken endpoint
//     responded to it before it was ejected.
//   - No write is executed twice, or sent to another endpoint after a first has received it.
//   - Acknowledged writes are stored.
//   - The state of the endpoint is in the Backend's status, and its reason in the explanation
//     of the route.
func TestFaults(t *testing.T) {
	t.Parallel()
	f := startFleet(t, 3)
	load := startFaultLoad(t, f)
	for _, fault := range endpointFaults() {
		t.Run(fault.name, func(t *testing.T) { f.suffer(t, load, fault) })
	}
	t.Run("restarts", func(t *testing.T) { f.restart(t, load) })
	load.judge(t, f)
}

// suffer applies a fault to the last of the endpoints.
func (f *fleet) suffer(t *testing.T, load *faultLoad, fault endpointFault) {
	n := f.crds[2]
	strike, heal := func() { fault.strike(t, n) }, sync.OnceFunc(func() { fault.heal(t, n) })
	var broken *brokenServer
	if fault.answers != nil {
		broken = f.replace(t, load, n)
		strike, heal = func() { broken.set(fault.answers) }, sync.OnceFunc(func() { broken.set(answersRightly) })
		t.Cleanup(func() { f.restore(t, n, broken) })
	}
	load.settle(t, "before the fault")
	before := load.reads.Load()
	began := time.Now()
	strike()
	t.Cleanup(heal)
	if !fault.healthy {
		status := f.state(t, n, backend.EndpointUnhealthy, backend.EndpointEjected)
		t.Logf("after %v it is %s: %.100s", time.Since(began).Round(10*time.Millisecond), status.State, status.LastError)
		f.metric(t, n, backend.EndpointUnhealthy, backend.EndpointEjected)
		f.up.Shows(t, explain.Path+"?path="+faultPath, fault.because)
	}
	out := time.Now()
	writes := int64(10)
	if fault.silent {
		writes = 0
	}
	// Soon: an endpoint that was ejected gets requests again later.
	load.progress(t, "while it lasts", 40, writes)
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

// judge checks the requests that failed. The fault began at began; at out the endpoint was out
// of use.
func (fault endpointFault) judge(t *testing.T, failed []failedRequest, began, out time.Time) {
	t.Helper()
	reads := 0
	for _, r := range failed {
		switch {
		case !r.safe() && r.began.Before(out):
			t.Logf("unknown result: %v", r)
		case r.safe() && r.began.Before(began), r.safe() && fault.relayed && r.began.Before(out):
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

// replace starts a brokenServer in the place of a node, and returns when it gets requests.
func (f *fleet) replace(t *testing.T, load *faultLoad, n *node) *brokenServer {
	t.Helper()
	s := startBroken(t, n, f.crds[0])
	e2e.Eventually(t, "the server in its place gets requests", func() error {
		if s.count() < 10 {
			return fmt.Errorf("%d times", s.count())
		}
		return nil
	})
	f.state(t, n, backend.EndpointHealthy)
	load.settle(t, "after "+n.name+" was replaced")
	return s
}

// restore starts the node in the place of the server.
func (f *fleet) restore(t *testing.T, n *node, s *brokenServer) {
	t.Helper()
	s.Close()
	n.start(t)
}

// metric waits until a node is in one of some states in the gateway's metrics.
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

// restart stops each endpoint by SIGTERM and starts it again. No request fails.
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
