package registration

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apireg "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico/apiservice"
	"portico/apiservice/backend"
	"portico/discovery"
	"portico/discovery/sources"
	"portico/gateway/routing"
	"portico/gateway/upstream"
)

// shown is the status writer of a Backend "b" with two endpoints.
type shown struct {
	*registry
	now time.Time
}

const one, two = "https://one", "https://two"

func newShown(t *testing.T) *shown {
	t.Helper()
	g := newRegistry(t, nil)
	g.startsWith(t)
	g.add(t, "b", &backend.AutoRegister{Groups: []string{"*"}}, widgets(), one, two)
	g.readBackends(t)
	return &shown{registry: g, now: time.Now()}
}

// after lets the writer write after d, and returns the number of writes.
func (s *shown) after(t *testing.T, d time.Duration) int64 {
	t.Helper()
	s.now = s.now.Add(d)
	defer s.readBackends(t)
	return s.writes(func() { s.writer.writeAll(s.now) })
}

func (s *shown) verdict(url string, err error) { s.registry.verdict("b", url, err) }

// status returns the stored status, and the states of its endpoints as one text.
func (s *shown) status(t *testing.T) (status backend.Status, endpoints string) {
	t.Helper()
	status = listed[*backend.Backend](t, s.backends)[0].Status
	for _, e := range status.Endpoints {
		endpoints += fmt.Sprintf("%s=%s(%s) ", e.URL, e.State, e.LastError)
	}
	return status, strings.TrimSpace(endpoints)
}

// condition returns a condition of the status that is computed for a Backend.
func (g *registry) condition(name, kind string) metav1.Condition {
	status := g.writer.statusOf(g.state(name), &backend.Status{})
	if c := meta.FindStatusCondition(status.Conditions, kind); c != nil {
		return *c
	}
	return metav1.Condition{}
}

// Only the elected gateway writes, and differences only: a new Backend at once, and an endpoint that
// always changes once per second after a burst.
func TestStatusWritesAreLimited(t *testing.T) {
	s := newShown(t)
	s.leadership.set(ended())
	if n := s.after(t, 0); n != 0 {
		t.Errorf("%d writes of a gateway that is not elected", n)
	}
	s.leadership.set(t.Context())
	s.after(t, 0)
	if _, got := s.status(t); got != one+"=Unknown() "+two+"=Unknown()" {
		t.Errorf("at first %s", got)
	}
	for i := range statusBurst - 1 {
		var err error
		if i%2 == 0 {
			err = errRefused
		}
		s.verdict(two, err)
		s.readBackends(t)
		n := s.writes(func() {
			for range 2 { // before the written object is read
				s.writer.writeAll(s.now)
			}
		})
		if n != 1 {
			t.Errorf("change %d: %d writes", i, n)
		}
		s.readBackends(t)
	}
	s.verdict(one, errRefused)
	if n := s.after(t, 0); n != 0 {
		t.Errorf("%d writes after the burst", n)
	}
	if again := s.writer.writeAll(s.now); again <= 0 || again > statusPause {
		t.Errorf("the next write is after %v", again)
	}
	writes := int64(0)
	for i := range 100 { // ten seconds
		var err error
		if i%2 == 0 {
			err = errRefused
		}
		s.verdict(one, err)
		writes += s.after(t, 100*time.Millisecond)
	}
	if writes < 5 || writes > 11 {
		t.Errorf("%d writes in ten seconds", writes)
	}
}

// A change of the text of an error only is written once per messagePause, and not at all if the texts
// differ in the connection; it does not change lastTransitionTime. A change of the state is written at
// once.
func TestTextWritesAreLimited(t *testing.T) {
	s := newShown(t)
	set := func(url string, err error) { s.verdict(url, err); s.readBackends(t) }
	s.verdict(two, nil)
	set(one, errors.New("read tcp 10.0.0.1:4711->10.0.0.2:443: reset"))
	s.after(t, 0)
	set(one, errors.New("read tcp 10.0.0.1:4712->10.0.0.2:443: reset"))
	n := s.after(t, statusPause)
	if _, got := s.status(t); n != 0 || got != one+"=Unhealthy(read tcp 10.0.0.2:443: reset) "+two+"=Healthy()" {
		t.Errorf("%d writes for the same error on another connection: %s", n, got)
	}
	before, _ := s.status(t)
	writes := int64(0)
	for i := range 100 {
		set(one, fmt.Errorf("error %d", i%2))
		writes += s.after(t, time.Second)
	}
	if after, _ := s.status(t); writes < 5 || writes > 11 || after.Endpoints[0].LastTransitionTime != before.Endpoints[0].LastTransitionTime {
		t.Errorf("%d writes in a hundred seconds, or another lastTransitionTime", writes)
	}
	s.verdict(one, errors.New("another"))
	set(two, errRefused)
	n = s.after(t, time.Second)
	if _, got := s.status(t); n != 1 || got != one+"=Unhealthy(another) "+two+"=Unhealthy(refused)" {
		t.Errorf("a change of a state: %d writes, now %s", n, got)
	}
}

// A gateway that is newly elected and finds the same writes nothing, and keeps what it does not know
// yet.
func TestStatusOutlivesItsWriter(t *testing.T) {
	s := newShown(t)
	at := metav1.NewTime(time.Now().Add(-time.Hour).Truncate(time.Second))
	condition := func(kind, status, reason, message string) metav1.Condition {
		return metav1.Condition{Type: kind, Status: metav1.ConditionStatus(status), Reason: reason, Message: message, ObservedGeneration: 1, LastTransitionTime: at}
	}
	modify(t, s.backends, "b", func(b *backend.Backend) {
		b.Generation = 1
		b.Status = backend.Status{
			Endpoints: []backend.EndpointStatus{{URL: one, State: backend.EndpointHealthy, LastTransitionTime: at}, {URL: two, State: backend.EndpointUnhealthy, LastError: "x", LastTransitionTime: at}},
			GroupVersions: []backend.GroupVersionStatus{
				{Group: "gateway.networking.k8s.io", Version: "v1", Freshness: "Current"}, {Group: "widgets.example.com", Version: "v1", Freshness: "Current"},
			},
			Conditions: []metav1.Condition{
				condition(backend.Available, "False", "FailedDiscoveryCheck", "x (observed by another)"),
				condition(backend.Discovered, "True", "Discovered", "the discovery of the server has been read"),
				condition(backend.OpenAPIValid, "True", "Valid", "no document is known to be broken"),
				condition(backend.Registered, "True", "Registered", "its group/versions are registered"),
				condition("Others", "True", "A", ""),
			},
		}
	})
	s.readBackends(t)
	if n := s.after(t, 0); n != 0 {
		now, _ := s.status(t)
		t.Errorf("%d writes, now %+v", n, now)
	}
	s.verdict(two, errors.New("x"))
	n := s.after(t, statusPause)
	if now, _ := s.status(t); n != 0 || now.Endpoints[1].LastTransitionTime != at {
		t.Errorf("%d writes for the same verdict, now %+v", n, now)
	}
	conflicts := []conflict{{name: "v1.a", by: "core"}, {name: "v1.b", by: "core"}, {name: "v1.c"}}
	s.results.Store(&map[string]result{"b": {of: servedBy(s.state("b")), conflicts: conflicts}})
	s.after(t, statusPause)
	after, _ := s.status(t)
	c := meta.FindStatusCondition(after.Conditions, backend.Registered)
	if c.Status != "False" || c.Message != `v1.a, v1.b served by Backend "core"; v1.c registered by a user` || c.LastTransitionTime == at || len(after.Conditions) != 5 {
		t.Errorf("a conflict is shown as %+v of %+v", c, after.Conditions)
	}
}

// A drained endpoint does not count as unhealthy, and the last error has its time, which outlives
// the writer.
func TestDrainedEndpointsAndErrorsInStatus(t *testing.T) {
	s := newShown(t)
	s.verdict(one, nil)
	s.verdict(two, errRefused)
	s.readBackends(t)
	if c := s.condition("b", backend.Available); c.Message != "1 of 2 endpoints are healthy" {
		t.Errorf("one is down: %+v", c)
	}
	drained := func(b *backend.Backend) { b.Spec.Endpoints[1].Weight = new(int32(0)) }
	modify(t, s.backends, "b", drained)
	s.readBackends(t)
	if c := s.condition("b", backend.Available); c.Message != "all checks passed; drained endpoints (weight 0): 1" {
		t.Errorf("the other is drained: %+v", c)
	}
	s.verdict(one, errRefused)
	s.verdict(one, nil)
	status := s.writer.statusOf(s.state("b"), &backend.Status{})
	if e := status.Endpoints[0]; e.State != backend.EndpointHealthy || e.LastErrorTime.IsZero() || time.Since(e.LastErrorTime.Time) > time.Hour {
		t.Errorf("healthy again: %+v", e)
	}
	before := metav1.NewTime(time.Now().Add(-time.Hour).Truncate(time.Second))
	stored := &backend.Status{Endpoints: []backend.EndpointStatus{{URL: two, State: backend.EndpointDraining, LastError: "x", LastErrorTime: before}}}
	fresh := newShown(t)
	modify(t, fresh.backends, "b", drained)
	fresh.readBackends(t)
	if e := fresh.writer.statusOf(fresh.state("b"), stored).Endpoints[1]; e.LastError != "x" || !e.LastErrorTime.Equal(&before) {
		t.Errorf("after a restart: %+v", e)
	}
}

// Registered is True once the APIServices are stored and read again.
func TestRegisteredOnceStored(t *testing.T) {
	s := newShown(t)
	for i, want := range []metav1.ConditionStatus{"Unknown", "Unknown", "True"} {
		if i > 0 {
			s.sync(t, nil)
		}
		s.readBackends(t)
		s.after(t, statusPause)
		if status, _ := s.status(t); !meta.IsStatusConditionPresentAndEqual(status.Conditions, backend.Registered, want) {
			t.Errorf("after %d writes: %+v, want %s", i, status.Conditions, want)
		}
	}
	s.serves("b", serving("user.example.com", "v1"))
	s.readBackends(t)
	if c := s.writer.registered(s.state("b")); c.Status != "Unknown" {
		t.Errorf("of the new discovery: %+v", c)
	}
}

// A condition that was found before a change of the Backend gets the new observedGeneration once it is
// found again; another status is written at once.
func TestObservedGeneration(t *testing.T) {
	s := newShown(t)
	st := s.state("b")
	st.Condition = apiservice.Passed()
	before := s.writer.statusOf(st, &backend.Status{})
	generation := st.Object.Generation
	st.Object.Generation++
	for _, c := range []struct {
		outdated   bool
		condition  apiservice.Condition
		generation int64
	}{
		{true, apiservice.Passed(), generation}, {false, apiservice.Passed(), generation + 1},
		{true, apiservice.FailedDiscoveryCheck("u", errRefused), generation + 1},
	} {
		s.findings.outdated, st.Condition = c.outdated, c.condition
		now := s.writer.statusOf(st, &before)
		if got := meta.FindStatusCondition(now.Conditions, backend.Available); string(got.Status) != string(c.condition.Status) || got.ObservedGeneration != c.generation {
			t.Errorf("%+v: got %+v", c, got)
		}
	}
}

// A status is bounded and fits into etcd. Its conditions say how many group/versions and conflicts it
// leaves out.
func TestStatusIsBounded(t *testing.T) {
	s := newShown(t)
	var gvs []discovery.GroupVersion
	for i := range maxStatusGroups + 44 {
		gvs = append(gvs, discovery.GroupVersion{Group: fmt.Sprintf("g%03d.%s.example.com", i, strings.Repeat("a", 220)), Version: "v1"})
	}
	s.serves("b", gvs)
	var endpoints []upstream.Endpoint
	spec := backend.Spec{TLS: &backend.TLS{CABundle: make([]byte, 64<<10)}}
	for i := range backend.MaxEndpoints {
		url := fmt.Sprintf("https://h%d.%s:1", i, strings.Repeat("a", 1000))
		endpoints = append(endpoints, upstream.Endpoint{URL: url, Network: "tcp", Address: url, Weight: 1})
		spec.Endpoints = append(spec.Endpoints, backend.Endpoint{URL: url})
	}
	s.state("b").Server.Up.SetEndpoints(endpoints)
	for _, e := range endpoints {
		s.verdict(e.URL, errors.New(strings.Repeat("e", 2*routing.MaxErrorText)))
	}
	status := s.writer.statusOf(s.state("b"), &backend.Status{})
	o, err := s.backends.Codec.EncodeStored(&backend.Backend{ObjectMeta: metav1.ObjectMeta{Name: "b"}, Spec: spec, Status: status})
	if err != nil {
		t.Fatal(err)
	}
	if len(status.GroupVersions) != maxStatusGroups || len(status.Endpoints) != backend.MaxEndpoints || len(status.Endpoints[0].LastError) < routing.MaxErrorText || len(o.Data) > 1<<20 {
		t.Errorf("%d group/versions, %d endpoints, errors of %d bytes, %d bytes in all",
			len(status.GroupVersions), len(status.Endpoints), len(status.Endpoints[0].LastError), len(o.Data))
	}
	const omitted = "status.groupVersions has the first 256 of 300 group/versions, by name"
	if c := s.condition("b", backend.Discovered); !strings.Contains(c.Message, omitted) {
		t.Errorf("with group/versions left out: %+v", c)
	}
	s.serves("b", gvs[:maxStatusGroups])
	if c := s.condition("b", backend.Discovered); strings.Contains(c.Message, "the first") {
		t.Errorf("with all group/versions: %+v", c)
	}
	var lost []conflict
	for i := range 2 * maxStatusGroups {
		lost = append(lost, conflict{name: fmt.Sprintf("v1.group-%04d.example.com", i), by: fmt.Sprint("b", i)})
	}
	if text := conflictsText(lost); len(text) > 1000 || !strings.HasSuffix(text, " and others") {
		t.Errorf("a message of %d bytes: %s", len(text), text)
	}
}

// unreadSource is the discovery of a server of which a part could not be read.
type unreadSource struct {
	*sources.Source
	unread  []sources.Unread
	dropped int
}

func (s unreadSource) Unread() []sources.Unread { return s.unread }
func (s unreadSource) Dropped() int             { return s.dropped }

// The conditions Discovered and Registered name the group/versions that cannot be read, are beyond the
// limits or cannot be registered, and groups of spec.autoRegister that the server does not serve.
func TestConditionsNameOmittedGroupVersions(t *testing.T) {
	unread := func(group string, err error) sources.Unread {
		return sources.Unread{GroupVersion: schema.GroupVersion{Group: group, Version: "v1"}, Err: err}
	}
	large, away := unread("large.example.com", sources.ErrBeyondLimits), unread("away.example.com", errRefused)
	const truncated = "group/versions beyond the limits on the discovery of one server, which are left out: 7"
	for name, c := range map[string]struct {
		groups          []string // of autoRegister
		unread          []sources.Unread
		dropped         int
		kind            string
		reason, message string
	}{
		"unread":       {nil, []sources.Unread{away}, 0, backend.Discovered, "UnreadDocuments", "cannot be read: away.example.com/v1; refused"},
		"truncated":    {nil, []sources.Unread{large}, 7, backend.Discovered, "DiscoveryTruncated", truncated + ", of which these are known by name: large.example.com/v1"},
		"both":         {nil, []sources.Unread{away}, 7, backend.Discovered, "UnreadDocuments", "cannot be read: away.example.com/v1; refused; " + truncated},
		"invalid name": {nil, []sources.Unread{unread("UPPER.io", sources.ErrInvalidName)}, 0, backend.Registered, "LeftOut", `cannot be registered: "UPPER.io/v1"; ` + sources.ErrInvalidName.Error()},
		"not served":   {[]string{"widgets.example.com", "absent.example.com"}, nil, 0, backend.Registered, "LeftOut", `spec.autoRegister.groups: the server does not serve "absent.example.com"`},
	} {
		t.Run(name, func(t *testing.T) {
			g := newRegistry(t, []discovery.GroupVersion{})
			if c.groups == nil {
				c.groups = []string{"*"}
			}
			g.add(t, "c", &backend.AutoRegister{Groups: c.groups}, widgets())
			g.state("c").Server.Source = unreadSource{sources.NewSource(sources.Config{Previous: widgets()}), c.unread, c.dropped}
			g.sync(t, nil)
			if got := g.sync(t, nil); got[widget] == nil {
				t.Error("the others are not registered")
			}
			if got := g.condition("c", c.kind); got.Status != "False" || got.Reason != c.reason || got.Message != c.message {
				t.Errorf("got %+v, want %s %q", got, c.reason, c.message)
			}
		})
	}
}

// The conditions of a server that was checked and could not be read are NotRead, and not Checking;
// those that were found before remain.
func TestConditionsOfAServerThatCannotBeRead(t *testing.T) {
	g := newRegistry(t, nil)
	g.addBackend(t, "d", backend.Spec{Endpoints: []backend.Endpoint{{URL: "unix:///absent/crd"}}, REST: &backend.REST{Group: "user.example.com", Version: "v1"}}) // never checked
	g.add(t, "b", everything(backend.KeepOther, 1000), nil)
	is := func(when, name string, stored backend.Status, want map[string]string) {
		t.Helper()
		g.readBackends(t)
		status := g.writer.statusOf(g.state(name), &stored)
		for kind, text := range want {
			c := meta.FindStatusCondition(status.Conditions, kind)
			if got := string(c.Status) + " " + c.Reason; got != text {
				t.Errorf("%s: %s is %s, want %s", when, kind, got, text)
			}
		}
	}
	checking, notRead := "Unknown "+routing.Unchecked().Reason, "Unknown NotRead"
	is("unchecked", "b", backend.Status{}, map[string]string{backend.Registered: checking, backend.OpenAPIValid: checking})
	g.verdict("b", "https://b", errRefused)
	is("failed", "b", backend.Status{}, map[string]string{
		backend.Registered: notRead, backend.OpenAPIValid: notRead, backend.Discovered: string(apireg.ConditionFalse) + " FailedDiscoveryCheck",
	})
	is("read before", "b", backend.Status{Conditions: []metav1.Condition{
		{Type: backend.Registered, Status: "True", Reason: "Registered"}, {Type: backend.OpenAPIValid, Status: "Unknown", Reason: routing.Unchecked().Reason},
	}}, map[string]string{backend.Registered: "True Registered", backend.OpenAPIValid: notRead})
	is("never checked", "d", backend.Status{}, map[string]string{backend.Registered: notRead})
}
