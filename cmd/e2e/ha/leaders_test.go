package ha

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"testing"
	"time"
)

// interval is a time.
type interval struct{ from, to time.Time }

// term is the time in which a process believed to be the elected leader.
type term struct {
	interval
	process  *process
	election string
}

// overtime is how long a leader that was stopped or separated may believe to lead after that is
// over: its writes as leader fail from the moment on at which another one was elected
// (TestLeaderIsFenced).
const overtime = 2 * time.Second

// leaseTime is longer than the lease of a leader and what etcd takes to elect its own.
const leaseTime = 10 * time.Second

var leaderLine = regexp.MustCompile(`(?m)^time=(\S+) .* msg="(elected leader|leadership ended)" election=(\S+) `)

// terms returns the terms of a process by its log.
func (p *process) terms(t *testing.T) (all []term) {
	t.Helper()
	log, err := os.ReadFile(p.logFile())
	if err != nil {
		t.Fatal(err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	open := map[string]time.Time{}
	end := func(election string, at time.Time) {
		from, leads := open[election]
		if !leads {
			return
		}
		if i := slices.IndexFunc(p.ended, func(e time.Time) bool { return e.After(from) }); i >= 0 && p.ended[i].Before(at) {
			at = p.ended[i]
		}
		all = append(all, term{interval{from, at}, p, election})
		delete(open, election)
	}
	for _, m := range leaderLine.FindAllStringSubmatch(string(log), -1) {
		at, err := time.Parse(time.RFC3339Nano, m[1])
		if err != nil {
			t.Fatal(err)
		}
		end(m[3], at)
		if m[2] == "elected leader" {
			open[m[3]] = at
		}
	}
	for election := range open {
		end(election, time.Now())
	}
	return all
}

// oneLeaderEach checks that no two processes led in the same election at the same time, but
// for one that could not know.
func (in *installation) oneLeaderEach(t *testing.T) {
	t.Helper()
	byElection := map[string][]term{}
	for _, name := range slices.Concat(gateways, backends) {
		for _, term := range in.processes[name].terms(t) {
			byElection[term.election] = append(byElection[term.election], term)
		}
	}
	for _, election := range []string{"gateway", "controllers", "garbage-collector", "service-repair", "crd"} {
		terms := byElection[election]
		if len(terms) == 0 {
			t.Errorf("nothing was elected in %s", election)
		}
		slices.SortFunc(terms, func(a, b term) int { return a.from.Compare(b.from) })
		changes := ""
		for i, a := range terms {
			changes += " " + a.process.name
			for _, b := range terms[i+1:] {
				if b.from.Before(a.to) && !a.process.couldNotKnow(b.from, a.to) {
					t.Errorf("%s: %s leads from %s to %s, and %s from %s on", election, a.process.name, clock(a.from), clock(a.to), b.process.name, clock(b.from))
				}
			}
		}
		t.Logf("leaders in %s:%s", election, changes)
	}
}

func clock(at time.Time) string { return fmt.Sprint(at.UTC().Format("15:04:05.000")) }

// couldNotKnow reports whether the process was stopped or separated at a time, and until shortly
// before another one, or could not renew its lease because of a member of etcd.
func (p *process) couldNotKnow(at, until time.Time) bool {
	if until.Sub(at) < overtime && slices.ContainsFunc(members, func(name string) bool { return p.in.processes[name].failedBefore(at) }) {
		return true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.ContainsFunc(p.impaired, func(i interval) bool { return i.from.Before(at) && until.Before(i.to.Add(overtime)) })
}

// failedBefore reports whether the process ended, or was stopped or separated, in the duration of a
// lease before a time.
func (p *process) failedBefore(at time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	recent := func(fault time.Time) bool { return fault.Before(at) && at.Sub(fault) < leaseTime }
	return slices.ContainsFunc(p.ended, recent) || slices.ContainsFunc(p.impaired, func(i interval) bool { return recent(i.from) || recent(i.to) })
}
