package registration

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
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
	"portico/discovery/openapi"
	"portico/discovery/sources"
	"portico/gateway/routing"
	"portico/gateway/upstream"
	"portico/internal/testing/memstore"
	"portico/resource"
	"portico/resource/rest"
)

// shown is a status writer over storage in memory, of a Backend "b" with two
// endpoints.
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
	s.stands(t)
	b := storedBackends(t, g.backends)[0]
	b.Spec.Endpoints = []backend.Endpoint{{URL: one}, {URL: two}}
	g.found.BackendStates().ByName["b"].Server.Up.SetEndpoints(nil)
	s.put(t, b)
	return s
}

// replace stores a Backend in the place of what is stored.
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
	// The server becomes one with other endpoints, and says what it said.
	says := s.found.BackendStates().ByName[b.Name].Server.Source
	s.stands(t)
	s.world.says(b.Name, says)
	s.stands(t)
}

// after is a turn of the writer that much later, and how many writes it made.
func (s *shown) after(t *testing.T, d time.Duration) (writes int64) {
	t.Helper()
	s.now = s.now.Add(d)
	before := s.storage.Revision()
	s.writer.turn(s.now)
	s.stands(t)
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

// Only differences are written: the first at once, and of an endpoint that comes and
// goes all the time one a second.
func TestStatusIsWrittenSparingly(t *testing.T) {
	s := newShown(t)
	s.leadership.take(ended())
	if n := s.after(t, 0); n != 0 {
		t.Errorf("%d writes of a gateway that is not elected", n)
	}
	s.leadership.take(t.Context())
	if n := s.after(t, 0); n != 1 {
		t.Fatalf("%d writes at first", n)
	}
	if got := state(s.status(t)); got != one+"=Unknown() "+two+"=Unknown()" {
		t.Errorf("at first %s", got)
	}
	for range 5 {
		if n := s.after(t, statusPause); n != 0 {
			t.Errorf("%d writes although nothing changed", n)
		}
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
	if writes < 5 || writes > burst+10 {
		t.Errorf("%d writes in ten seconds", writes)
	}
	s.after(t, burst*statusPause)
	s.verdict(one, errors.New("read tcp 10.0.0.1:4711->10.0.0.2:443: reset"))
	s.verdict(two, nil)
	if s.after(t, statusPause); state(s.status(t)) != one+"=Unhealthy(read tcp 10.0.0.2:443: reset) "+two+"=Healthy()" {
		t.Errorf("in the end %s", state(s.status(t)))
	}
	s.verdict(one, errors.New("read tcp 10.0.0.1:4712->10.0.0.2:443: reset"))
	if n := s.after(t, statusPause); n != 0 {
		t.Errorf("%d writes for the same error on another connection", n)
	}
	changed := s.status(t).Endpoints[0].LastTransitionTime
	s.verdict(one, errors.New("another error"))
	if n := s.after(t, statusPause); n != 1 || s.status(t).Endpoints[0].LastTransitionTime != changed {
		t.Errorf("another error: %d writes, or another time of change", n)
	}
}

// Another gateway that is elected and sees the same writes nothing, and what it
// does not know yet stays as it is stored.
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
			{Type: backend.Discovered, Status: "True", Reason: "Discovered", Message: "what the server serves has been read", ObservedGeneration: 1, LastTransitionTime: at},
			{Type: backend.OpenAPIValid, Status: "True", Reason: "Valid", Message: "no document is known to be broken", ObservedGeneration: 1, LastTransitionTime: at},
			{Type: backend.Registered, Status: "True", Reason: "Registered", Message: "every group it shall have is its own", ObservedGeneration: 1, LastTransitionTime: at},
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

// A status is bounded, however much there is to say.
func TestStatusIsBounded(t *testing.T) {
	s := newShown(t)
	var many []discovery.GroupVersion
	var lost []conflict
	for i := range 2 * maxStatusGroups {
		many = append(many, discovery.GroupVersion{Group: groupName(i), Version: "v1"})
		lost = append(lost, conflict{name: "v1." + groupName(i), by: fmt.Sprint("b", i)})
	}
	s.world.says("b", sources.NewSource(sources.Config{Previous: many}))
	s.verdict(one, errors.New(strings.Repeat("x", 10*routing.MaxErrorText)))
	s.stands(t)
	s.loses(lost)
	s.after(t, statusPause)
	got := s.status(t)
	if len(got.GroupVersions) != maxStatusGroups || len(got.Endpoints[0].LastError) > routing.MaxErrorText+3 {
		t.Errorf("%d groups, an error of %d bytes", len(got.GroupVersions), len(got.Endpoints[0].LastError))
	}
	if c := meta.FindStatusCondition(got.Conditions, backend.Registered); len(c.Message) > 1000 || !strings.HasSuffix(c.Message, " and others") {
		t.Errorf("a message of %d bytes: %s", len(c.Message), c.Message)
	}
}

// loses has the Backend not get what it claims.
func (s *shown) loses(what []conflict) {
	of := answerOf(s.found.BackendStates().ByName["b"])
	s.results.Store(&map[string]result{"b": {of: of, conflicts: what}})
}

// A Backend has its groups once they are stored, not when they are known.
func TestRegisteredOnceStored(t *testing.T) {
	s := newShown(t)
	registered := func() string {
		s.stands(t)
		s.after(t, statusPause)
		status := s.status(t)
		return string(meta.FindStatusCondition(status.Conditions, backend.Registered).Status)
	}
	if got := registered(); got != "Unknown" {
		t.Errorf("before anything was registered: %s", got)
	}
	s.turn(t, nil)
	if got := registered(); got != "Unknown" {
		t.Errorf("before what was written is seen: %s", got)
	}
	s.turn(t, nil)
	if got := registered(); got != "True" {
		t.Errorf("all is stored: %s", got)
	}
	s.world.says("b", sources.NewSource(sources.Config{Previous: []discovery.GroupVersion{{Group: "user.example.com", Version: "v1"}}}))
	s.stands(t)
	if c := s.writer.registered(s.found.BackendStates().ByName["b"]); c.Status != "Unknown" {
		t.Errorf("of what the server says now: %+v", c)
	}
}

// What was found before a Backend was changed, by asking with the trust that it named
// then, is not said of the changed one: not before it is found again.
func TestStatusOfBeforeAChange(t *testing.T) {
	s := newShown(t)
	st := s.found.BackendStates().ByName["b"]
	st.Condition = apiservice.Condition{Status: apireg.ConditionTrue, Reason: "Passed"}
	before := s.writer.statusOf(st, &backend.Status{})
	generation := st.Object.Generation
	st.Object.Generation++
	for _, s.world.unsettled = range []bool{true, false} {
		want := generation
		if !s.world.unsettled {
			want++
		}
		now := s.writer.statusOf(st, &before)
		if c := meta.FindStatusCondition(now.Conditions, backend.Available); c == nil || c.Status != metav1.ConditionTrue || c.ObservedGeneration != want {
			t.Errorf("unsettled: %v: %+v, want generation %d", s.world.unsettled, c, want)
		}
	}
	// What is another is said at once.
	s.world.unsettled, st.Condition = true, apiservice.Condition{Status: apireg.ConditionFalse, Reason: "FailedDiscoveryCheck"}
	now := s.writer.statusOf(st, &before)
	if c := meta.FindStatusCondition(now.Conditions, backend.Available); c == nil || c.Status != metav1.ConditionFalse || c.ObservedGeneration != generation+1 {
		t.Errorf("it became unavailable: %+v", c)
	}
}

// A server that serves more than a status lists is no silent matter, and the
// largest status fits into etcd.
func TestStatusSaysWhatItLeavesOut(t *testing.T) {
	s := newShown(t)
	var gvs []discovery.GroupVersion
	for i := range maxStatusGroups + 44 {
		gvs = append(gvs, discovery.GroupVersion{Group: fmt.Sprintf("g%03d.%s.example.com", i, strings.Repeat("a", 220)), Version: "v1"})
	}
	s.world.says("b", sources.NewSource(sources.Config{Previous: gvs}))
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
	s.world.says("b", sources.NewSource(sources.Config{Previous: gvs[:maxStatusGroups]}))
	status = s.writer.statusOf(st, &backend.Status{})
	if c := meta.FindStatusCondition(status.Conditions, backend.Discovered); c == nil || strings.Contains(c.Message, "the first") {
		t.Errorf("all are listed: %+v", c)
	}
}

// A server of which one group/version fails is named with it, and shown all the
// others.
func TestStatusNamesUnreadDocuments(t *testing.T) {
	s := newShown(t)
	var gvs []discovery.GroupVersion
	for _, group := range []string{"good.example.com", "bad.example.com"} {
		gvs = append(gvs, discovery.FromKinds([]*rest.Kind{{
			Info: resource.Info{Group: group, Versions: []string{"v1"}, Resource: "things", Kind: "Thing", Namespaced: true},
		}})...)
	}
	snapshot, err := discovery.Build(gvs, "")
	if err != nil {
		t.Fatal(err)
	}
	var fails atomic.Bool
	fails.Store(true)
	documents := discovery.NewHandler(discovery.Fixed(snapshot))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if fails.Load() && strings.HasPrefix(r.URL.Path, "/apis/bad.example.com/") {
			http.Error(w, "no", http.StatusInternalServerError)
			return
		}
		documents.ServeHTTP(w, r)
	}))
	defer server.Close()
	source := sources.NewSource(sources.Config{
		Name: "b", BaseURL: server.URL, Transport: http.DefaultTransport, Identify: func(http.Header) {},
	})
	defer source.Close()
	s.world.says("b", source)
	st := s.found.BackendStates().ByName["b"]
	discovered := func(reason string) {
		t.Helper()
		var c *metav1.Condition
		var status backend.Status
		for end := time.Now().Add(20 * time.Second); c == nil || c.Reason != reason; {
			if _, err := source.Check(t.Context()); err != nil || time.Now().After(end) {
				t.Fatalf("checked: %v; never %s: %+v", err, reason, c)
			}
			status = s.writer.statusOf(st, &backend.Status{})
			c = meta.FindStatusCondition(status.Conditions, backend.Discovered)
			time.Sleep(10 * time.Millisecond)
		}
		if reason == "UnreadDocuments" && (c.Status != "False" || !strings.Contains(c.Message, "bad.example.com/v1; bad status from /apis/bad.example.com/v1: 500")) {
			t.Errorf("%+v", c)
		}
		if len(status.GroupVersions) != 2 || status.GroupVersions[0].Freshness != "Current" {
			t.Errorf("%s: %+v", reason, status.GroupVersions)
		}
	}
	discovered("UnreadDocuments")
	fails.Store(false)
	discovered("Discovered")
}

// What is found out of a new Backend is shown as it is found out: nobody waits for
// the writer.
func TestFirstStatusesAreWrittenAtOnce(t *testing.T) {
	s := newShown(t)
	for i, found := range []func(){
		func() {},
		func() { s.verdict(one, errors.New("refused")) },
		func() { s.verdict(one, nil) },
		func() { s.verdict(two, nil) },
		func() { s.verdict(two, errors.New("reset")) },
		func() { s.verdict(two, nil) },
	} {
		found()
		s.stands(t)
		if n := s.after(t, time.Millisecond); n != 1 {
			t.Errorf("step %d: %d writes, now %s", i, n, state(s.status(t)))
		}
		if n := s.after(t, 0); n != 0 {
			t.Errorf("step %d: %d writes although nothing changed", i, n)
		}
	}
	s.verdict(one, errors.New("refused"))
	if n := s.after(t, time.Millisecond); n != 0 {
		t.Errorf("%d writes after its burst", n)
	}
	if again := s.writer.turn(s.now); again <= 0 || again > statusPause {
		t.Errorf("looked at again after %v", again)
	}
	if n := s.after(t, statusPause); n != 1 {
		t.Errorf("%d writes a second later", n)
	}
}

// What is compared before the last write comes back costs nothing of the burst.
func TestStatusSeenLateIsNoWrite(t *testing.T) {
	s := newShown(t)
	s.after(t, 0)
	s.verdict(one, nil)
	before := s.storage.Revision()
	for range 3 * burst {
		s.writer.turn(s.now)
	}
	if n := s.storage.Revision() - before; n != 1 {
		t.Errorf("%d writes of one change", n)
	}
	s.stands(t)
	s.verdict(one, errors.New("refused"))
	if n := s.after(t, 0); n != 1 {
		t.Errorf("%d writes of the next change", n)
	}
}

// An error that reads otherwise each time is no news: it is written once at first, and
// then every thirty seconds. What becomes of the server is written at once.
func TestTextsAreWrittenSparingly(t *testing.T) {
	s := newShown(t)
	texts := []string{"no such host", "timed out after 1s: no such host"}
	s.verdict(one, errors.New(texts[1]))
	s.verdict(two, nil)
	s.stands(t)
	s.after(t, 0)
	writes := int64(0)
	for i := range 300 { // five minutes
		s.verdict(one, errors.New(texts[i%2]))
		s.stands(t)
		writes += s.after(t, time.Second)
	}
	if writes < 2 || writes > 10 {
		t.Errorf("%d writes in five minutes", writes)
	}
	s.verdict(one, errors.New("another"))
	s.after(t, 2*messagePause)
	s.verdict(one, errors.New("yet another"))
	s.verdict(two, errors.New("refused"))
	s.stands(t)
	if n := s.after(t, time.Second); n != 1 || state(s.status(t)) != one+"=Unhealthy(yet another) "+two+"=Unhealthy(refused)" {
		t.Errorf("a change of a state: %d writes, now %s", n, state(s.status(t)))
	}
	s.verdict(two, errors.New("refused again"))
	s.stands(t)
	if again := s.writer.turn(s.now); again <= 0 || again > messagePause {
		t.Errorf("what was held back is looked at after %v", again)
	}
}

// Who changes a Backend because of an error sees whether that helped, however lately
// the error was written.
func TestTextsAfterAChange(t *testing.T) {
	s := newShown(t)
	s.verdict(two, nil)
	for i, text := range []string{"not zero", "not one", "not two", "not three"} {
		b := storedBackends(t, s.backends)[0]
		b.Generation = int64(i + 2)
		s.replace(t, b)
		s.stands(t)
		s.after(t, 2*statusPause) // of the new generation, with what was said before
		s.verdict(one, errors.New(text))
		s.stands(t)
		if s.after(t, 2*statusPause); state(s.status(t)) != one+"=Unhealthy("+text+") "+two+"=Healthy()" || observed(new(s.status(t))) != b.Generation {
			t.Errorf("generation %d: %s, of generation %d", b.Generation, state(s.status(t)), observed(new(s.status(t))))
		}
		s.verdict(one, errors.New(text+" again"))
		s.stands(t)
		if n := s.after(t, 2*statusPause); n != 0 && i > 0 {
			t.Errorf("generation %d: another text is written", b.Generation)
		}
	}
}

// Where a server was checked and could not be read, no condition says that it was not
// checked; what was found out of it before stands.
func TestConditionsOfAServerThatCannotBeRead(t *testing.T) {
	g := newRegistry(t, nil)
	g.addREST(t, "d", "unix:///nobody/crd", &backend.REST{Group: "user.example.com", Version: "v1"}) // never to be asked
	g.add(t, "b", everything(backend.KeepOther, 1000), nil)
	g.world.says("b", sources.NewSource(sources.Config{}))
	conditions := func(name string, stored *backend.Status) map[string]string {
		t.Helper()
		out := map[string]string{}
		g.stands(t)
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
		t.Errorf("of one that is not to be asked: %v", got)
	}
}

// A REST server has one document, and no index that could be broken.
func TestNameOfDocument(t *testing.T) {
	for want, got := range map[string]string{
		"the index": nameOfDocument(openapi.Broken{}, false), "the server's document": nameOfDocument(openapi.Broken{}, true),
		"apis/a/v1": nameOfDocument(openapi.Broken{Key: "apis/a/v1"}, true),
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// A Backend of which something is beyond the limits says how much, and names some of it.
func TestTruncatedCondition(t *testing.T) {
	if c := truncatedCondition(0, nil); c != (apiservice.Condition{}) {
		t.Errorf("of nothing it says %+v", c)
	}
	c := truncatedCondition(7, []sources.Unread{
		{GroupVersion: schema.GroupVersion{Group: "large.example.com", Version: "v1"}, Err: sources.ErrBeyondLimits},
		{GroupVersion: schema.GroupVersion{Group: "away.example.com", Version: "v1"}, Err: errors.New("refused")},
	})
	want := "group/versions beyond the limits on the discovery of one server, which are left out: 7, of which these are known by name: large.example.com/v1"
	if c.Status != apireg.ConditionFalse || c.Reason != "DiscoveryTruncated" || c.Message != want {
		t.Errorf("it says %+v", c)
	}
}
