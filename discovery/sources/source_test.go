package sources

import (
	"cmp"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico/discovery"
	"portico/internal/testing/await"
)

const typeAggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

// described returns the description of a group/version.
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
// reports whether something changed.
func settle(t *testing.T, s *Source) (changed bool, err error) {
	t.Helper()
	s.mu.Lock()
	s.retryAt = time.Time{}
	s.mu.Unlock()
	before := s.load()
	err = s.Check(t.Context())
	await.Until(t, "the queue is empty", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.fetching == nil
	})
	after := s.load()
	return !unchanged(before.groupVersions, after.groupVersions) || before.fetched != after.fetched || before.complete != after.complete ||
		!sameUnread(before.unread, after.unread), err
}

// check is settle for a check that must pass.
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
	before, complete := s.Served()
	if err := s.Check(t.Context()); err == nil || !strings.Contains(err.Error(), text) {
		t.Errorf("error %v, want %q", err, text)
	}
	if after, still := s.Served(); !reflect.DeepEqual(before, after) || complete != still {
		t.Errorf("a failed check changed the result to %+v", after)
	}
}

// same compares the resources of a source with "group/version:resource", sorted.
func same(t *testing.T, s *Source, want ...string) {
	t.Helper()
	var got []string
	gvs, _ := s.GroupVersions()
	for i := range gvs {
		for _, r := range gvs[i].Legacy {
			got = append(got, gvs[i].Name()+":"+r.Name)
		}
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("resources %v, want %v", got, want)
	}
}

// Every form of discovery is read. An unchanged server changes nothing, and a change is found.
func TestCheck(t *testing.T) {
	apps := []schema.GroupVersion{{Group: "apps", Version: "v1"}}
	all := []string{"apps/v1:deployments", "apps/v1:replicasets", "new.example.com/v1:widgets", "v1:configmaps"}
	for name, c := range map[string]struct {
		legacy, noCore bool
		only           []schema.GroupVersion
		want           []string
		unchanged      string // requests
	}{
		"aggregated":               {want: all, unchanged: "/api 304, /apis 304"},
		"legacy":                   {legacy: true, want: all, unchanged: "/api 200, /apis 200"},
		"one group/version":        {only: apps, want: all[:2], unchanged: "/apis/apps/v1 304"},
		"one group/version, older": {legacy: true, only: apps, want: all[:2], unchanged: "/apis/apps/v1 200"},
		"without the core group":   {noCore: true, want: all[:3], unchanged: "/api 404, /apis 304"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBackend(t, described("", "v1", "configmaps"), described("apps", "v1", "deployments"))
			b.legacy = c.legacy
			if c.noCore {
				b.answer("/api", 404, "text/plain", "404 page not found")
			}
			s := b.source(c.only...)
			defer s.Close()
			if _, ok := s.GroupVersions(); ok {
				t.Fatal("something is known before the first answer")
			}
			check(t, s, true)
			gvs, _ := s.GroupVersions()
			for _, gv := range gvs {
				if gv.Legacy[0].StorageVersionHash != "abc=" || gv.Aggregated[0].ResponseKind.Kind != gv.Legacy[0].Name {
					t.Errorf("got %+v", gv)
				}
			}
			b.requests()
			check(t, s, false)
			if asked := b.requests(); asked != c.unchanged {
				t.Errorf("requests to an unchanged server: %s, want %s", asked, c.unchanged)
			}
			b.serves(t, described("", "v1", "configmaps"), described("apps", "v1", "deployments", "replicasets"), described("new.example.com", "v1", "widgets"))
			check(t, s, true)
			same(t, s, c.want...)
		})
	}
}

// The description of one group/version is read from the aggregated form at /apis if the server has no document of it.
func TestAggregatedFormWithoutADocument(t *testing.T) {
	t.Parallel()
	b := newBackend(t, described("apps", "v1", "deployments"))
	s := b.source(schema.GroupVersion{Group: "apps", Version: "v1"})
	defer s.Close()
	b.answer("/apis/apps/v1", http.StatusOK, acceptLegacy, "")
	check(t, s, true)
	gvs, _ := s.GroupVersions()
	if len(gvs) != 1 || gvs[0].Legacy[0].Name != "deployments" || gvs[0].Aggregated[0].ResponseKind.Kind != "deployments" {
		t.Fatalf("got %+v", gvs)
	}
	b.requests()
	check(t, s, false)
	if asked := b.requests(); asked != "/apis/apps/v1 200, /apis 200" {
		t.Errorf("requests to an unchanged server: %s", asked)
	}
	b.serves(t, described("apps", "v1", "deployments", "replicasets"))
	check(t, s, true)
	same(t, s, "apps/v1:deployments", "apps/v1:replicasets")
	gvs, _ = s.GroupVersions()
	s.cfg.Limits.Memory = gvs[0].Size()
	many := []string{"deployments", "replicasets"}
	for i := range 20 {
		many = append(many, fmt.Sprint("sets", i))
	}
	b.serves(t, described("apps", "v1", many...))
	check(t, s, true)
	same(t, s, "apps/v1:deployments", "apps/v1:replicasets")
	if gvs, _ := s.GroupVersions(); !gvs[0].Stale {
		t.Error("a description beyond the limits is current")
	}
	s.cfg.Limits = DefaultLimits()
	s.cfg.Limits.Group = 1000
	b.serves(t, described("apps", "v1", many[1:]...))
	fails(t, s, "/apis is beyond the limits")
	s.cfg.Limits = DefaultLimits()
	b.serves(t, described("batch", "v1", "jobs"))
	fails(t, s, "not a JSON object")
	b.heal()
	b.serves(t, described("apps", "v1", "deployments"))
	check(t, s, true)
	same(t, s, "apps/v1:deployments")
}

// An answer that is no discovery fails the check and removes nothing.
func TestBadAnswersKeepTheResult(t *testing.T) {
	const (
		groups   = `{"kind":"APIGroupList","apiVersion":"v1","groups":[]}`
		groupsV2 = `{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","items":[]}`
		document = "/apis/apps/v1"
	)
	for name, c := range map[string]struct {
		path, contentType, body, want string
		code                          int // 0: 200
	}{
		"unavailable":              {path: "/apis", code: 503, want: "bad status"},
		"absent":                   {path: "/apis", code: 404, want: "bad status"},
		"redirect":                 {path: "/apis", code: 302, want: "bad status"},
		"document that is absent":  {path: document, code: 404, want: "404"},
		"no JSON":                  {"/apis", typeAggregated, "<html>", "decode", 0},
		"legacy no JSON":           {"/apis", acceptLegacy, "<html>", "decode", 0},
		"core no JSON":             {"/api", typeAggregated, "[", "decode", 0},
		"too large":                {"/apis", typeAggregated, strings.Repeat(" ", 1<<20), "larger than", 0},
		"nothing":                  {"/apis", acceptLegacy, `{}`, "answer of ", 0},
		"null":                     {"/apis", acceptLegacy, `null`, "is no APIGroupList", 0},
		"a message":                {"/apis", acceptLegacy, `{"message":"maintenance"}`, "is no APIGroupList", 0},
		"unknown kind":             {"/apis", acceptLegacy, `{"kind":"Secret<b>","groups":[]}`, "is no APIGroupList", 0},
		"a Status":                 {"/apis", acceptLegacy, `{"kind":"Status","apiVersion":"v1","status":"Failure"}`, "is no APIGroupList but of kind Status", 0},
		"nothing of v2":            {"/apis", typeAggregated, `{}`, "is no APIGroupDiscoveryList", 0},
		"the older list as v2":     {"/apis", typeAggregated, groups, "is no APIGroupDiscoveryList but of kind APIGroupList", 0},
		"v2 as the older list":     {"/apis", acceptLegacy, groupsV2, "is no APIGroupList but of kind APIGroupDiscoveryList", 0},
		"nothing of core":          {"/api", acceptLegacy, `{}`, "is no APIVersions", 0},
		"a Status of v2 of core":   {"/api", typeAggregated, `{"kind":"Status"}`, "is no APIGroupDiscoveryList but of kind Status", 0},
		"nothing of one":           {document, acceptLegacy, `{}`, "is no APIResourceList", 0},
		"only the name of one":     {document, acceptLegacy, `{"groupVersion":"apps/v1"}`, "is no APIResourceList", 0},
		"another document for one": {document, acceptLegacy, groups, "is no APIResourceList but of kind APIGroupList", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBackend(t, described("", "v1", "pods"), described("apps", "v1", "deployments"))
			cfg := b.config()
			if c.path == document {
				cfg = b.config(schema.GroupVersion{Group: "apps", Version: "v1"})
				b.legacy = true // TestAggregatedFormWithoutADocument has the aggregated form
			}
			cfg.Limits = DefaultLimits()
			cfg.Limits.Document = 1<<20 - 1
			s := NewSource(cfg)
			defer s.Close()
			check(t, s, true)
			b.answer(c.path, cmp.Or(c.code, http.StatusOK), c.contentType, c.body)
			for range 2 {
				fails(t, s, c.want)
			}
			if err := s.Check(t.Context()); strings.Contains(err.Error(), "Secret") {
				t.Errorf("the error contains text of the server: %v", err)
			}
			b.heal()
			check(t, s, false)
			b.Close()
			fails(t, s, "refused")
		})
	}
}

// A server is not available, and has no discovery, if the status of its first answer is not 200.
func TestFirstAnswerMustBeGood(t *testing.T) {
	for _, code := range []int{http.StatusNoContent, http.StatusFound, http.StatusNotModified, http.StatusUnauthorized, http.StatusForbidden, http.StatusServiceUnavailable} {
		for path, only := range map[string][]schema.GroupVersion{"/apis": nil, "/apis/apps/v1": {{Group: "apps", Version: "v1"}}} {
			b := newBackend(t, described("apps", "v1", "deployments"))
			b.handle(path, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Location", "/test")
				w.WriteHeader(code)
			})
			s := b.source(only...)
			fails(t, s, fmt.Sprintf("bad status from %s: %d", path, code))
			if gvs, known := s.GroupVersions(); known {
				t.Errorf("%s %d: known are %v", path, code, gvs)
			}
			if asked := b.requests(); !strings.HasSuffix(asked, fmt.Sprintf("%s %d", path, code)) {
				t.Errorf("%s %d: requests %s", path, code, asked)
			}
			s.Close()
		}
	}
}

// A group/version that is listed and answered with 404 is left out if it was never read. Otherwise it
// remains, and is stale after the grace period. The server is complete again once it has it.
func TestListedAndAbsent(t *testing.T) {
	const lostPath = "/apis/lost.example.com/v1"
	b := newBackend(t, described("apps", "v1", "deployments"), described("lost.example.com", "v1", "widgets"))
	b.answer(lostPath, 404, "text/plain", "404 page not found")
	s := b.source()
	defer s.Close()
	lost := schema.GroupVersion{Group: "lost.example.com", Version: "v1"}
	is := func(when string, changed, stale, complete bool, resources ...string) {
		t.Helper()
		check(t, s, changed)
		same(t, s, resources...)
		if now := s.knownVersions()[lost]; now.Stale != stale {
			t.Errorf("%s: stale %v", when, now.Stale)
		}
		if _, got := s.Served(); got != complete {
			t.Errorf("%s: complete %v", when, got)
		}
	}
	is("never read", true, false, false, "apps/v1:deployments")
	b.heal()
	is("read", true, false, true, "apps/v1:deployments", "lost.example.com/v1:widgets")
	b.answer(lostPath, 404, "text/plain", "404 page not found")
	b.serves(t, described("apps", "v1", "deployments"), described("lost.example.com", "v1", "gadgets"))
	is("absent", true, false, false, "apps/v1:deployments", "lost.example.com/v1:widgets")
	is("still absent", false, false, false, "apps/v1:deployments", "lost.example.com/v1:widgets")
	s.documents[lost].absent = s.documents[lost].absent.Add(-graceDefault)
	is("after the grace period", true, true, false, "apps/v1:deployments", "lost.example.com/v1:widgets")
	b.heal()
	is("present again", true, false, true, "apps/v1:deployments", "lost.example.com/v1:gadgets")
	b.serves(t, described("apps", "v1", "deployments"))
	is("not listed", true, false, true, "apps/v1:deployments")
}

// Restored group/versions remain until the server has answered, and those of Config.Previous count as
// answered.
func TestRestore(t *testing.T) {
	b := newBackend(t, described("apps", "v1", "deployments"))
	s := b.source()
	defer s.Close()
	old := []discovery.GroupVersion{described("old.example.com", "v1", "things")}
	b.answer("/apis", 503, "text/plain", "later")
	if !s.Restore([]discovery.GroupVersion{}) || !s.Restore(old) {
		t.Error("not restored before the server answered")
	}
	fails(t, s, "bad status")
	same(t, s, "old.example.com/v1:things")
	if s.Fetched() {
		t.Error("restored group/versions count as fetched")
	}
	b.heal()
	check(t, s, true)
	if !s.Fetched() || s.Restore(old) {
		t.Error("the answer of the server was replaced")
	}
	same(t, s, "apps/v1:deployments")

	cfg := b.config()
	cfg.Previous = old
	s = NewSource(cfg)
	defer s.Close()
	if same(t, s, "old.example.com/v1:things"); !s.Fetched() || s.Restore(nil) {
		t.Error("previous group/versions do not count as fetched")
	}
	check(t, s, true)
	same(t, s, "apps/v1:deployments")
}
