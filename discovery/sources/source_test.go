package sources

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico/discovery"
)

// backend is a server whose discovery tests can change.
type backend struct {
	*httptest.Server
	mu       sync.Mutex
	snapshot *discovery.Snapshot
	override map[string]http.HandlerFunc // by path
	legacy   bool                        // knows no v2 and no ETags
	asked    []string                    // "path status"
}

func newBackend(t *testing.T, gvs ...discovery.GroupVersion) *backend {
	t.Helper()
	b := &backend{override: map[string]http.HandlerFunc{}}
	b.serves(t, gvs...)
	b.Server = httptest.NewServer(http.HandlerFunc(b.serve))
	t.Cleanup(b.Close)
	return b
}

func (b *backend) serves(t *testing.T, gvs ...discovery.GroupVersion) {
	t.Helper()
	s, err := discovery.Build(gvs, "backend:443")
	if err != nil {
		t.Fatal(err)
	}
	b.mu.Lock()
	b.snapshot = s
	b.mu.Unlock()
}

func (b *backend) serve(w http.ResponseWriter, r *http.Request) {
	b.mu.Lock()
	defer b.mu.Unlock()
	rec := httptest.NewRecorder()
	if b.legacy {
		r.Header.Set("Accept", acceptLegacy)
		r.Header.Del("If-None-Match")
	}
	if h := b.override[r.URL.Path]; h != nil {
		h(rec, r)
	} else {
		discovery.NewHandler(discovery.Fixed(b.snapshot)).ServeHTTP(rec, r)
	}
	b.asked = append(b.asked, fmt.Sprintf("%s %d", r.URL.Path, rec.Code))
	for name, values := range rec.Header() {
		if !b.legacy || name != "Etag" {
			w.Header()[name] = values
		}
	}
	w.WriteHeader(rec.Code)
	w.Write(rec.Body.Bytes())
}

func (b *backend) answer(path string, code int, contentType, body string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.override[path] = func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		w.WriteHeader(code)
		fmt.Fprint(w, body)
	}
}

func (b *backend) heal() {
	b.mu.Lock()
	defer b.mu.Unlock()
	clear(b.override)
}

func (b *backend) forget() (asked string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	asked, b.asked = strings.Join(b.asked, ", "), nil
	return asked
}

func (b *backend) source(only ...schema.GroupVersion) *Source {
	return NewSource(b.config(only...))
}

func (b *backend) config(only ...schema.GroupVersion) Config {
	return Config{
		Name: "test", BaseURL: b.URL, Transport: http.DefaultTransport, GroupVersions: only,
		Identify: func(h http.Header) { h.Set("X-Remote-User", "system:kube-aggregator") },
	}
}

func described(group, version string, resources ...string) discovery.GroupVersion {
	gv := discovery.GroupVersion{Group: group, Version: version, GroupPriority: 1000, VersionPriority: 15}
	for _, r := range resources {
		gv.Legacy = append(gv.Legacy, metav1.APIResource{
			Name: r, SingularName: strings.TrimSuffix(r, "s"), Namespaced: true, Kind: r, Verbs: []string{"get"}, StorageVersionHash: "abc=",
		})
	}
	gv.Aggregated = discovery.Aggregate(group, version, gv.Legacy)
	return gv
}

// settle checks the source, fetches failed documents at once, waits until the queue is empty and
// returns whether something changed.
func settle(t *testing.T, s *Source) (changed bool, err error) {
	t.Helper()
	s.mu.Lock()
	s.retryAt = time.Time{}
	s.mu.Unlock()
	before := s.load()
	err = s.Check(t.Context())
	eventually(t, "the queue is empty", func() bool { return idle(s) })
	after := s.load()
	return !unchanged(before.groupVersions, after.groupVersions) || before.fetched != after.fetched || before.complete != after.complete ||
		!sameUnread(before.unread, after.unread), err
}

// idle reports whether the source fetches nothing.
func idle(s *Source) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.fetching == nil
}

func check(t *testing.T, s *Source, wantChanged bool) {
	t.Helper()
	changed, err := settle(t, s)
	if err != nil || changed != wantChanged {
		t.Fatalf("changed %v, error %v; want %v", changed, err, wantChanged)
	}
}

// fails checks the source, which must fail with the text and keep its result.
func fails(t *testing.T, s *Source, text string) {
	t.Helper()
	before, _ := s.GroupVersions()
	if err := s.Check(t.Context()); err == nil || !strings.Contains(err.Error(), text) {
		t.Errorf("error %v; want %q", err, text)
	}
	if after, _ := s.GroupVersions(); !reflect.DeepEqual(before, after) {
		t.Errorf("the last good answer was lost: %+v", after)
	}
}

func names(s *Source) (out []string) {
	gvs, _ := s.GroupVersions()
	for i := range gvs {
		for _, r := range gvs[i].Legacy {
			out = append(out, gvs[i].Name()+":"+r.Name)
		}
	}
	slices.Sort(out)
	return out
}

func same(t *testing.T, s *Source, want ...string) {
	t.Helper()
	if got := names(s); !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestCheckV2(t *testing.T) {
	b := newBackend(t, described("", "v1", "configmaps"), described("apps", "v1", "deployments"))
	s := b.source()
	if _, ok := s.GroupVersions(); ok {
		t.Fatal("something is known before the first answer")
	}
	check(t, s, true)
	same(t, s, "apps/v1:deployments", "v1:configmaps")
	gvs, _ := s.GroupVersions()
	for _, gv := range gvs {
		if gv.Legacy[0].StorageVersionHash != "abc=" || gv.Aggregated[0].ResponseKind.Kind != gv.Legacy[0].Name {
			t.Errorf("got %+v", gv)
		}
	}
	b.forget()
	check(t, s, false)
	if asked := b.forget(); asked != "/api 304, /apis 304" {
		t.Errorf("an unchanged server was asked %s", asked)
	}
	b.serves(t, described("", "v1", "configmaps"), described("apps", "v1", "deployments"), described("new.example.com", "v1", "widgets"))
	check(t, s, true)
	same(t, s, "apps/v1:deployments", "new.example.com/v1:widgets", "v1:configmaps")
}

func TestCheckLegacyOnly(t *testing.T) {
	b := newBackend(t, described("", "v1", "configmaps"), described("apps", "v1", "deployments"))
	b.legacy = true
	s := b.source()
	check(t, s, true)
	same(t, s, "apps/v1:deployments", "v1:configmaps")
	if gvs, _ := s.GroupVersions(); len(gvs[0].Aggregated) != 1 {
		t.Errorf("the v2 form was not derived: %+v", gvs[0])
	}
	check(t, s, false)
}

func TestCheckOneGroupVersion(t *testing.T) {
	for _, legacy := range []bool{false, true} {
		b := newBackend(t, described("other.example.com", "v1", "others"), described("apps", "v1", "deployments"))
		b.legacy = legacy
		s := b.source(schema.GroupVersion{Group: "apps", Version: "v1"})
		check(t, s, true)
		same(t, s, "apps/v1:deployments")
		check(t, s, false)
		b.serves(t, described("apps", "v1", "deployments", "replicasets"))
		check(t, s, true)
		same(t, s, "apps/v1:deployments", "apps/v1:replicasets")
		b.serves(t)
		fails(t, s, "404")
	}
}

func TestCheckServerWithoutCore(t *testing.T) {
	b := newBackend(t, described("apps", "v1", "deployments"))
	b.answer("/api", 404, "text/plain", "404 page not found")
	s := b.source()
	check(t, s, true)
	same(t, s, "apps/v1:deployments")
	check(t, s, false)
}

func TestBadAnswersKeepTheLastGoodOne(t *testing.T) {
	b := newBackend(t, described("apps", "v1", "deployments"))
	s := b.source()
	check(t, s, true)
	const v2 = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
	for name, c := range map[string]struct {
		path        string
		code        int
		contentType string
		body        string
		want        string
	}{
		"unavailable":    {"/apis", 503, "text/plain", "no", "bad status"},
		"absent":         {"/apis", 404, "text/plain", "no", "bad status"},
		"redirect":       {"/apis", 302, "text/plain", "no", "bad status"},
		"no JSON":        {"/apis", 200, v2, "<html>", "decode"},
		"legacy no JSON": {"/apis", 200, "application/json", "<html>", "decode"},
		"too large":      {"/apis", 200, v2, strings.Repeat(" ", int(DefaultLimits().Document)+1), "larger than"},
		"core no JSON":   {"/api", 200, v2, "[", "decode"},
	} {
		t.Run(name, func(t *testing.T) {
			b.answer(c.path, c.code, c.contentType, c.body)
			fails(t, s, c.want)
			b.heal()
			check(t, s, false)
		})
	}
	b.Close()
	fails(t, s, "refused")
}

// A group/version that is removed while its server is read is no failure: the others are known,
// and it is requested again.
func TestCheckGroupVersionGoesAwayMeanwhile(t *testing.T) {
	b := newBackend(t, described("apps", "v1", "deployments"), described("going.example.com", "v1", "widgets"))
	b.answer("/apis/going.example.com/v1", 404, "text/plain", "404 page not found")
	s := b.source()
	check(t, s, true)
	same(t, s, "apps/v1:deployments")
	if gvs, whole := s.Served(); whole || len(gvs) != 1 {
		t.Errorf("%v is said to be all that it serves", gvs)
	}
	b.heal()
	check(t, s, true)
	same(t, s, "apps/v1:deployments", "going.example.com/v1:widgets")
	if gvs, whole := s.Served(); !whole || len(gvs) != 2 {
		t.Errorf("%v, is that all: %v", gvs, whole)
	}
	check(t, s, false)
}

// A group/version that the server lists and answers with 404 remains, and is stale after the
// grace period.
func TestCheckKeepsWhatIsAbsent(t *testing.T) {
	b := newBackend(t, described("", "v1", "configmaps"), described("apps", "v1", "deployments"), described("lost.example.com", "v1", "widgets"))
	s := b.source()
	check(t, s, true)
	lost := schema.GroupVersion{Group: "lost.example.com", Version: "v1"}
	all := []string{"apps/v1:deployments", "lost.example.com/v1:widgets", "v1:configmaps"}
	b.answer("/apis/lost.example.com/v1", 404, "text/plain", "404 page not found")
	b.serves(t, described("", "v1", "configmaps"), described("apps", "v1", "deployments", "replicasets"), described("lost.example.com", "v1", "widgets", "gadgets"))
	all = append(all, "apps/v1:replicasets")
	slices.Sort(all)
	is := func(what string, changed, stale, isWhole bool) {
		t.Helper()
		check(t, s, changed)
		same(t, s, all...)
		if now := s.knownVersions()[lost]; now.Stale != stale {
			t.Errorf("%s: stale %v", what, now.Stale)
		}
		if _, whole := s.Served(); whole != isWhole {
			t.Errorf("%s: that is said to be all: %v", what, whole)
		}
	}
	is("at first", true, false, false)
	is("again", false, false, false)
	s.documents[lost].absent = s.documents[lost].absent.Add(-graceDefault)
	is("after the grace period", true, true, false)
	b.heal()
	all = append(all, "lost.example.com/v1:gadgets")
	slices.Sort(all)
	is("when it is there again", true, false, true)
	if d := s.documents[lost]; !d.absent.IsZero() {
		t.Errorf("still absent: %v", d)
	}
	b.answer("/apis/lost.example.com/v1", 404, "text/plain", "404 page not found")
	b.serves(t, described("apps", "v1", "deployments"), described("lost.example.com", "v1", "widgets"))
	check(t, s, true)
	b.serves(t, described("apps", "v1", "deployments"))
	check(t, s, true)
	same(t, s, "apps/v1:deployments")
	if d := s.documents[lost]; d != nil {
		t.Errorf("what is not listed is remembered: %v", d)
	}
}

func TestPrevious(t *testing.T) {
	b := newBackend(t, described("apps", "v1", "deployments"))
	cfg := b.source().cfg
	cfg.Previous = []discovery.GroupVersion{described("apps", "v1", "old")}
	s := NewSource(cfg)
	same(t, s, "apps/v1:old")
	check(t, s, true)
	same(t, s, "apps/v1:deployments")
}
