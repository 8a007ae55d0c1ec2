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
	"portico/apiservice/availability"
	"portico/apiservice/backend"
	"portico/discovery"
	"portico/discovery/sources"
	"portico/gateway/routing"
	"portico/gateway/upstream"
	"portico/internal/testing/memstore"
)

// shown is a status writer of a Backend "b" with two endpoints, with storage in memory.
type shown struct {
	*registry
	storage *memstore.Storage
	now     time.Time
}

const one, two = "https://one", "https://two"

func newShown(t *testing.T) *shown {
	t.Helper()
	g := newRegistry(t, nil)
	g.startsWith(t)
	storage := memstore.New()
	g.backends.Store = storage.Store(&g.backends.Info)
	g.add(t, "b", &backend.AutoRegister{Groups: []string{"*"}}, widgets())
	g.writer.observer = "me"
	s := &shown{registry: g, storage: storage, now: time.Now()}
	s.readBackends(t)
	b := storedBackends(t, g.backends)[0]
	b.Spec.Endpoints = []backend.Endpoint{{URL: one}, {URL: two}}
	g.found.BackendStates().ByName["b"].Server.Up.SetEndpoints(nil)
	s.put(t, b)
	return s
}

// replace replaces a stored Backend.
func (s *shown) replace(t *testing.T, b *backend.Backend) {
	t.Helper()
	o, err := s.backends.Codec.EncodeStored(b)
	if err != nil {
		t.Fatal(err)
	}
	s.drop(t, b.Name)
	if _, err := s.backends.Store.Create(t.Context(), keyNamed(b.Name), o, 0); err != nil {
		t.Fatal(err)
	}
}

func (s *shown) put(t *testing.T, b *backend.Backend) {
	t.Helper()
	s.replace(t, b)
	// The server becomes another one, with the same source.
	source := s.found.BackendStates().ByName[b.Name].Server.Source
	s.readBackends(t)
	s.world.serves(b.Name, source)
	s.readBackends(t)
}

// after lets the writer write after d, and returns the number of writes.
func (s *shown) after(t *testing.T, d time.Duration) (writes int64) {
	t.Helper()
	s.now = s.now.Add(d)
	before := s.storage.Revision()
	s.writer.writeAll(s.now)
	s.readBackends(t)
	return s.storage.Revision() - before
}

func (s *shown) status(t *testing.T) backend.Status {
	t.Helper()
	return storedBackends(t, s.backends)[0].Status
}

func (s *shown) verdict(url string, err error) {
	s.found.BackendStates().ByName["b"].Server.Up.SetVerdict(url, availability.Verdict{Known: true, Healthy: err == nil, Err: err, Since: time.Now()})
}

func state(s backend.Status) (out string) {
	for _, e := range s.Endpoints {
		out += fmt.Sprintf("%s=%s(%s) ", e.URL, e.State, e.LastError)
	}
	return strings.TrimSpace(out)
}

// Only the elected gateway writes, and differences only: a new Backend at once, and an endpoint
// that always changes once per second after a burst.
func TestStatusWritesAreLimited(t *testing.T) {
	s := newShown(t)
	s.leadership.set(ended())
	if n := s.after(t, 0); n != 0 {
		t.Errorf("%d writes of a gateway that is not elected", n)
	}
	s.leadership.set(t.Context())
	s.after(t, 0)
	if got := state(s.status(t)); got != one+"=Unknown() "+two+"=Unknown()" {
		t.Errorf("at first %s", got)
	}
	for i, change := range []func(){
		func() { s.verdict(one, errors.New("refused")) },
		func() { s.verdict(one, nil) },
		func() { s.verdict(two, nil) },
		func() { s.verdict(two, errors.New("reset")) },
		func() { s.verdict(two, nil) },
	} {
		change()
		s.readBackends(t)
		before := s.storage.Revision()
		for range 2 { // before the written object is read
			s.writer.writeAll(s.now)
		}
		if n := s.storage.Revision() - before; n != 1 {
			t.Errorf("change %d: %d writes, now %s", i, n, state(s.status(t)))
		}
		s.readBackends(t)
	}
	s.verdict(one, errors.New("refused"))
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
			err = errors.New("refused")
		}
		s.verdict(one, err)
		writes += s.after(t, 100*time.Millisecond)
	}
	if writes < 5 || writes > 11 {
		t.Errorf("%d writes in ten seconds", writes)
	}
}

// A change of the text of an error only is written once per messagePause, and not at all if
// the texts differ in the connection; it does not change lastTransitionTime. A change of the
// state is written at once.
func TestTextWritesAreLimited(t *testing.T) {
	s := newShown(t)
	s.verdict(one, errors.New("read tcp 10.0.0.1:4711->10.0.0.2:443: reset"))
	s.verdict(two, nil)
	s.readBackends(t)
	s.after(t, 0)
	s.verdict(one, errors.New("read tcp 10.0.0.1:4712->10.0.0.2:443: reset"))
	if n := s.after(t, statusPause); n != 0 || state(s.status(t)) != one+"=Unhealthy(read tcp 10.0.0.2:443: reset) "+two+"=Healthy()" {
		t.Errorf("%d writes for the same error on another connection: %s", n, state(s.status(t)))
	}
	changed, writes := s.status(t).Endpoints[0].LastTransitionTime, int64(0)
	for i := range 100 {
		s.verdict(one, fmt.Errorf("error %d", i%2))
		s.readBackends(t)
		writes += s.after(t, time.Second)
	}
	if writes < 5 || writes > 11 || s.status(t).Endpoints[0].LastTransitionTime != changed {
		t.Errorf("%d writes in a hundred seconds, or another lastTransitionTime", writes)
	}
	s.verdict(one, errors.New("another"))
	s.verdict(two, errors.New("refused"))
	s.readBackends(t)
	if n := s.after(t, time.Second); n != 1 || state(s.status(t)) != one+"=Unhealthy(another) "+two+"=Unhealthy(refused)" {
		t.Errorf("a change of a state: %d writes, now %s", n, state(s.status(t)))
	}
}

// A gateway that is newly elected and finds the same writes nothing, and keeps what it does
// not know yet.
func TestStatusOutlivesItsWriter(t *testing.T) {
	s := newShown(t)
	b := storedBackends(t, s.backends)[0]
	at := metav1.NewTime(time.Now().Add(-time.Hour).Truncate(time.Second))
	b.Generation = 1
	b.Status = backend.Status{
		Endpoints: []backend.EndpointStatus{{URL: one, State: backend.EndpointHealthy, LastTransitionTime: at}, {URL: two, State: backend.EndpointUnhealthy, LastError: "x", LastTransitionTime: at}},
		GroupVersions: []backend.GroupVersionStatus{
			{Group: "gateway.networking.k8s.io", Version: "v1", Freshness: "Current"},
			{Group: "widgets.example.com", Version: "v1", Freshness: "Current"},
		},
		Conditions: []metav1.Condition{
			{Type: backend.Available, Status: "False", Reason: "FailedDiscoveryCheck", Message: "x (observed by another)", ObservedGeneration: 1, LastTransitionTime: at},
			{Type: backend.Discovered, Status: "True", Reason: "Discovered", Message: "the discovery of the server has been read", ObservedGeneration: 1, LastTransitionTime: at},
			{Type: backend.OpenAPIValid, Status: "True", Reason: "Valid", Message: "no document is known to be broken", ObservedGeneration: 1, LastTransitionTime: at},
			{Type: backend.Registered, Status: "True", Reason: "Registered", Message: "its group/versions are registered", ObservedGeneration: 1, LastTransitionTime: at},
			{Type: "Others", Status: "True", Reason: "A", LastTransitionTime: at},
		},
	}
	s.put(t, b)
	if n := s.after(t, 0); n != 0 {
		t.Errorf("%d writes, now %+v", n, s.status(t))
	}
	s.verdict(two, errors.New("x"))
	if n := s.after(t, statusPause); n != 0 || s.status(t).Endpoints[1].LastTransitionTime != at {
		t.Errorf("%d writes for the same seen again, now %+v", n, s.status(t))
	}
	s.loses([]conflict{{name: "v1.a", by: "core"}, {name: "v1.b", by: "core"}, {name: "v1.c"}})
	s.after(t, statusPause)
	after := s.status(t)
	c := meta.FindStatusCondition(after.Conditions, backend.Registered)
	if c.Status != "False" || c.Message != `v1.a, v1.b served by Backend "core"; v1.c registered by a user` || c.LastTransitionTime == at || len(after.Conditions) != 5 {
		t.Errorf("a conflict is shown as %+v of %+v", c, after.Conditions)
	}
}

// loses gives the Backend conflicts.
func (s *shown) loses(what []conflict) {
	of := servedBy(s.found.BackendStates().ByName["b"])
	s.results.Store(&map[string]result{"b": {of: of, conflicts: what}})
}

// Registered is True once the APIServices are stored and read again.
func TestRegisteredOnceStored(t *testing.T) {
	s := newShown(t)
	registered := func() string {
		s.readBackends(t)
		s.after(t, statusPause)
		status := s.status(t)
		return string(meta.FindStatusCondition(status.Conditions, backend.Registered).Status)
	}
	if got := registered(); got != "Unknown" {
		t.Errorf("before anything was registered: %s", got)
	}
	s.sync(t, nil)
	if got := registered(); got != "Unknown" {
		t.Errorf("before what was written is seen: %s", got)
	}
	s.sync(t, nil)
	if got := registered(); got != "True" {
		t.Errorf("all is stored: %s", got)
	}
	s.world.serves("b", sources.NewSource(sources.Config{Previous: []discovery.GroupVersion{{Group: "user.example.com", Version: "v1"}}}))
	s.readBackends(t)
	if c := s.writer.registered(s.found.BackendStates().ByName["b"]); c.Status != "Unknown" {
		t.Errorf("of the new discovery: %+v", c)
	}
}

// A condition that was found before a change of the Backend gets the new observedGeneration
// once it is found again.
func TestStatusOfBeforeAChange(t *testing.T) {
	s := newShown(t)
	st := s.found.BackendStates().ByName["b"]
	st.Condition = apiservice.Condition{Status: apireg.ConditionTrue, Reason: "Passed"}
	before := s.writer.statusOf(st, &backend.Status{})
	generation := st.Object.Generation
	st.Object.Generation++
	for _, s.world.outdated = range []bool{true, false} {
		want := generation
		if !s.world.outdated {
			want++
		}
		now := s.writer.statusOf(st, &before)
		if c := meta.FindStatusCondition(now.Conditions, backend.Available); c == nil || c.Status != metav1.ConditionTrue || c.ObservedGeneration != want {
			t.Errorf("outdated: %v: %+v, want generation %d", s.world.outdated, c, want)
		}
	}
	// Another status is written at once.
	s.world.outdated, st.Condition = true, apiservice.Condition{Status: apireg.ConditionFalse, Reason: "FailedDiscoveryCheck"}
	now := s.writer.statusOf(st, &before)
	if c := meta.FindStatusCondition(now.Conditions, backend.Available); c == nil || c.Status != metav1.ConditionFalse || c.ObservedGeneration != generation+1 {
		t.Errorf("it became unavailable: %+v", c)
	}
}

// A status is bounded and fits into etcd. Its conditions say how many group/versions and
// conflicts it leaves out.
func TestStatusIsBounded(t *testing.T) {
	s := newShown(t)
	var gvs []discovery.GroupVersion
	for i := range maxStatusGroups + 44 {
		gvs = append(gvs, discovery.GroupVersion{Group: fmt.Sprintf("g%03d.%s.example.com", i, strings.Repeat("a", 220)), Version: "v1"})
	}
	s.world.serves("b", sources.NewSource(sources.Config{Previous: gvs}))
	var endpoints []upstream.Endpoint
	spec := backend.Spec{TLS: &backend.TLS{CABundle: make([]byte, 64<<10)}}
	for i := range 256 {
		url := fmt.Sprintf("https://h%d.%s:1", i, strings.Repeat("a", 1000))
		endpoints = append(endpoints, upstream.Endpoint{URL: url, Network: "tcp", Address: url, Weight: 1})
		spec.Endpoints = append(spec.Endpoints, backend.Endpoint{URL: url})
	}
	st := s.found.BackendStates().ByName["b"]
	st.Server.Up.SetEndpoints(endpoints)
	for _, e := range endpoints {
		s.verdict(e.URL, errors.New(strings.Repeat("e", 2*routing.MaxErrorText)))
	}
	status := s.writer.statusOf(st, &backend.Status{})
	c := meta.FindStatusCondition(status.Conditions, backend.Discovered)
	if want := "status.groupVersions has the first 256 of 300 group/versions, by name"; len(status.GroupVersions) != maxStatusGroups || c == nil || !strings.Contains(c.Message, want) {
		t.Errorf("%d group/versions; %+v", len(status.GroupVersions), c)
	}
	o, err := s.backends.Codec.EncodeStored(&backend.Backend{ObjectMeta: metav1.ObjectMeta{Name: "b"}, Spec: spec, Status: status})
	if err != nil {
		t.Fatal(err)
	}
	if len(status.Endpoints) != 256 || len(status.Endpoints[0].LastError) < routing.MaxErrorText || len(o.Data) > 1<<20 {
		t.Errorf("%d endpoints, errors of %d bytes, %d bytes in all", len(status.Endpoints), len(status.Endpoints[0].LastError), len(o.Data))
	}
	var lost []conflict
	for i := range 2 * maxStatusGroups {
		lost = append(lost, conflict{name: "v1." + groupName(i), by: fmt.Sprint("b", i)})
	}
	if text := conflictsText(lost); len(text) > 1000 || !strings.HasSuffix(text, " and others") {
		t.Errorf("a message of %d bytes: %s", len(text), text)
	}
	s.world.serves("b", sources.NewSource(sources.Config{Previous: gvs[:maxStatusGroups]}))
	status = s.writer.statusOf(st, &backend.Status{})
	if c := meta.FindStatusCondition(status.Conditions, backend.Discovered); c == nil || strings.Contains(c.Message, "the first") {
		t.Errorf("all are listed: %+v", c)
	}
}

// The condition Discovered names the group/versions that cannot be read; the others are
// listed.
func TestStatusNamesUnreadDocuments(t *testing.T) {
	s := newShown(t)
	v := startVersion(t, "good.example.com", "bad.example.com")
	v.serves(t, "/apis/bad.example.com/v1", "good.example.com", "bad.example.com")
	srv := s.addAt(t, "c", v)
	discovered := func(reason string) {
		t.Helper()
		var c *metav1.Condition
		var status backend.Status
		for end := time.Now().Add(20 * time.Second); c == nil || c.Reason != reason; time.Sleep(10 * time.Millisecond) {
			if err := srv.Source.Check(t.Context()); err != nil || time.Now().After(end) {
				t.Fatalf("checked: %v; never %s: %+v", err, reason, c)
			}
			status = s.writer.statusOf(s.found.BackendStates().ByName["c"], &backend.Status{})
			c = meta.FindStatusCondition(status.Conditions, backend.Discovered)
		}
		if reason == "UnreadDocuments" && (c.Status != "False" || !strings.Contains(c.Message, "bad.example.com/v1; bad status from /apis/bad.example.com/v1: 500")) {
			t.Errorf("%+v", c)
		}
		if len(status.GroupVersions) != 2 || status.GroupVersions[0].Freshness != "Current" {
			t.Errorf("%s: %+v", reason, status.GroupVersions)
		}
	}
	discovered("UnreadDocuments")
	v.serves(t, "", "good.example.com", "bad.example.com")
	discovered("Discovered")
}

// The conditions of a server that was checked and could not be read are NotRead, and not
// Checking; those that were found before remain.
func TestConditionsOfAServerThatCannotBeRead(t *testing.T) {
	g := newRegistry(t, nil)
	g.addREST(t, "d", "unix:///absent/crd", &backend.REST{Group: "user.example.com", Version: "v1"}) // never checked
	g.add(t, "b", everything(backend.KeepOther, 1000), nil)
	g.world.serves("b", sources.NewSource(sources.Config{}))
	conditions := func(name string, stored *backend.Status) map[string]string {
		t.Helper()
		out := map[string]string{}
		g.readBackends(t)
		for _, c := range g.writer.statusOf(g.found.BackendStates().ByName[name], stored).Conditions {
			out[c.Type] = string(c.Status) + " " + c.Reason
		}
		return out
	}
	checking := "Unknown " + routing.Unchecked().Reason
	if got := conditions("b", &backend.Status{}); got[backend.Registered] != checking || got[backend.OpenAPIValid] != checking {
		t.Errorf("before it was checked: %v", got)
	}
	for _, e := range g.found.BackendStates().ByName["b"].Server.Up.Endpoints() {
		g.found.BackendStates().ByName["b"].Server.Up.SetVerdict(e.URL, availability.Verdict{Known: true, Err: errors.New("refused"), Since: time.Now()})
	}
	if got := conditions("b", &backend.Status{}); got[backend.Registered] != "Unknown NotRead" || got[backend.OpenAPIValid] != "Unknown NotRead" || !strings.HasPrefix(got[backend.Discovered], "False") {
		t.Errorf("after it failed: %v", got)
	}
	before := &backend.Status{Conditions: []metav1.Condition{{Type: backend.Registered, Status: "True", Reason: "Registered"}, {Type: backend.OpenAPIValid, Status: "Unknown", Reason: routing.Unchecked().Reason}}}
	if got := conditions("b", before); got[backend.Registered] != "True Registered" || got[backend.OpenAPIValid] != "Unknown NotRead" {
		t.Errorf("of one that was read before: %v", got)
	}
	if got := conditions("d", &backend.Status{}); got[backend.Registered] != "Unknown NotRead" {
		t.Errorf("of one that is not checked: %v", got)
	}
}

// DiscoveryTruncated says how many group/versions exceed the limits and names known ones.
func TestTruncatedCondition(t *testing.T) {
	if c := truncatedCondition(0, nil); c != (apiservice.Condition{}) {
		t.Errorf("without any it is %+v", c)
	}
	c := truncatedCondition(7, []sources.Unread{
		{GroupVersion: schema.GroupVersion{Group: "large.example.com", Version: "v1"}, Err: sources.ErrBeyondLimits},
		{GroupVersion: schema.GroupVersion{Group: "away.example.com", Version: "v1"}, Err: errors.New("refused")},
	})
	want := "group/versions beyond the limits on the discovery of one server, which are left out: 7, of which these are known by name: large.example.com/v1"
	if c.Status != apireg.ConditionFalse || c.Reason != "DiscoveryTruncated" || c.Message != want {
		t.Errorf("it is %+v", c)
	}
}
