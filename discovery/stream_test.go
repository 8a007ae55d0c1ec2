package discovery

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apidiscovery "k8s.io/api/apidiscovery/v2"
	"k8s.io/apimachinery/pkg/watch"

	"portico/resource"
	"portico/resource/authn"
	"portico/resource/serve/filter"
)

// shows replaces the snapshot of a server.
func shows(t *testing.T, current *Current, gvs ...[]GroupVersion) {
	t.Helper()
	s, err := BuildAfter(current.Load(), slices.Concat(gvs...), "")
	if err != nil {
		t.Fatal(err)
	}
	current.Store(s)
}

// requestDeadline is the deadline of requests in these tests.
const requestDeadline = 20 * time.Millisecond

// serverOf serves discovery behind the filters of a server, which permit one request at a time.
func serverOf(t *testing.T, current *Current) *httptest.Server {
	t.Helper()
	chain, err := filter.New(filter.Config{
		Handler: NewHandler(current), Authenticator: authn.Anonymous(), Logger: slog.New(slog.DiscardHandler), RequestTimeout: requestDeadline, MaxInFlight: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(chain)
	t.Cleanup(server.Close)
	return server
}

// follow requests a stream and returns a function that reads the next event.
func follow(t *testing.T, server *httptest.Server, path string) (next func() StreamEvent) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", acceptV2+",application/json")
	res, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { res.Body.Close() })
	if got := res.Header.Get("Content-Type"); res.StatusCode != http.StatusOK || got != acceptV2+StreamParameter {
		t.Fatalf("%d %q", res.StatusCode, got)
	}
	decoder := json.NewDecoder(res.Body)
	return func() (e StreamEvent) {
		t.Helper()
		if err := decoder.Decode(&e); err != nil {
			t.Fatalf("read stream: %v", err)
		}
		return e
	}
}

// untilBookmark reads the events up to a BOOKMARK and returns them as "ADDED GROUP VERSION:RESOURCE",
// and the ETag in the BOOKMARK.
func untilBookmark(next func() StreamEvent) (events []string, etag string) {
	for {
		e := next()
		if e.Type == watch.Bookmark {
			return events, e.Object.ResourceVersion
		}
		text := string(e.Type) + " " + e.Object.Name
		for _, v := range e.Object.Versions {
			for _, r := range v.Resources {
				text += " " + v.Version + ":" + r.Resource
			}
		}
		events = append(events, text)
	}
}

// A stream begins with all groups, and then has those that change. Neither the deadline nor the limit of
// requests applies to it.
func TestStream(t *testing.T) {
	t.Parallel()
	current := &Current{}
	core, a, b, c := customGroup("", "configmaps"), customGroup("a.example.com", "things"), customGroup("b.example.com", "things"), customGroup("c.example.com", "things")
	shows(t, current, core, c, a)
	server := serverOf(t, current)
	follow(t, server, "/apis?watch=true")
	next := follow(t, server, "/apis?watch=true")
	expect := func(what string, want ...string) {
		t.Helper()
		got, etag := untilBookmark(next)
		if !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", what, got, want)
		}
		if plain := ask(current.Load(), "/apis", "Accept", acceptV2).Header().Get("ETag"); etag != plain || etag == "" {
			t.Errorf("%s: the bookmark says %q, the document %q", what, etag, plain)
		}
	}
	expect("the first state", "ADDED a.example.com v1:things", "ADDED c.example.com v1:things")
	time.Sleep(3 * requestDeadline)
	shows(t, current, core, a, b, c)
	expect("a group is added", "ADDED b.example.com v1:things")
	shows(t, current, core, customGroup("a.example.com", "others", "things"), b, c)
	expect("a group changes", "MODIFIED a.example.com v1:others v1:things")
	shows(t, current, core, customGroup("a.example.com", "others", "things"), c)
	expect("a group is removed, another is described again", "DELETED b.example.com")
	shows(t, current, customGroup("", "configmaps", "secrets"), customGroup("a.example.com", "others", "things"), c)
	expect("the core group is not in the stream")
}

// Events have both forms of a version, and neither of one that is not known.
func TestStreamCarriesBothForms(t *testing.T) {
	current := &Current{}
	a := customGroup("a.example.com", "things")
	stale := GroupVersion{Group: "b.example.com", Version: "v1", Stale: true, Legacy: a[0].Legacy, Aggregated: a[0].Aggregated}
	unknown := GroupVersion{Group: "c.example.com", Version: "v1", Unknown: true}
	shows(t, current, a, []GroupVersion{stale, unknown})
	next := follow(t, serverOf(t, current), "/apis?watch")
	for _, want := range []GroupVersion{a[0], stale, unknown} {
		e := next()
		v := e.Object.Versions[0]
		if e.Object.Name != want.Group || (v.Freshness == apidiscovery.DiscoveryFreshnessStale) != (want.Stale || want.Unknown) {
			t.Errorf("%s is %s %s", want.Group, e.Object.Name, v.Freshness)
		}
		legacy, told := e.Resources["v1"]
		if told == want.Unknown || !reflect.DeepEqual(legacy, want.Legacy) || !reflect.DeepEqual(v.Resources, want.Aggregated) {
			t.Errorf("%s: got %+v\n%+v", want.Group, legacy, v.Resources)
		}
		if told && legacy[0].StorageVersionHash == "" {
			t.Error("storageVersionHash was lost")
		}
	}
}

// Requests for other forms or paths get the document instead of a stream.
func TestStreamIsForTheAggregatedForm(t *testing.T) {
	for _, c := range []struct{ path, accept, contentType string }{
		{"/apis?watch=true", "application/json", mediaJSON},
		{"/apis?watch=true", mediaProtobuf + aggregatedParams, mediaProtobuf + aggregatedParams},
		{"/apis?watch=false", acceptV2, acceptV2},
		{"/apis?watch=0", acceptV2, acceptV2},
		{"/apis", acceptV2, acceptV2},
		{"/apis/apps?watch=true", acceptV2 + ",application/json", mediaJSON},
		{"/apis/apps/v1?watch=true", acceptV2 + ",application/json", mediaJSON},
	} {
		r := httptest.NewRequest(http.MethodGet, c.path, nil)
		r.Header.Set("Accept", c.accept)
		w := httptest.NewRecorder()
		NewHandler(Fixed(sample(t))).ServeHTTP(w, r.WithContext(resource.WithAction(r.Context(), resource.ParseAction(r))))
		if got := w.Header().Get("Content-Type"); w.Code != http.StatusOK || got != c.contentType {
			t.Errorf("%s %s: %d %q", c.path, c.accept, w.Code, got)
		}
	}
}

// sink records what is written to a response.
type sink struct {
	http.ResponseWriter
	mu      sync.Mutex
	written bytes.Buffer
	stuck   chan struct{} // writes wait until it is closed; nil: they do not
}

func newSink() *sink { return &sink{ResponseWriter: httptest.NewRecorder()} }

func (s *sink) Write(p []byte) (int, error) {
	if s.stuck != nil {
		<-s.stuck
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.written.Write(p)
}

func (s *sink) Flush() {}

func (s *sink) lines() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Split(strings.TrimSuffix(s.written.String(), "\n"), "\n")
}

// stream serves a stream into a sink until the returned function is called.
func stream(t *testing.T, current *Current, w http.ResponseWriter) (end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r := httptest.NewRequest(http.MethodGet, "/apis?watch=true", nil).WithContext(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		serveStream(w, r, current)
	}()
	return func() {
		cancel()
		<-ended
	}
}

// Without changes a stream has a BOOKMARK every streamHeartbeat, and it ends with its request.
func TestStreamHeartbeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		current := Fixed(sample(t))
		w := newSink()
		end := stream(t, current, w)
		synctest.Wait()
		first := len(w.lines())
		time.Sleep(5*streamHeartbeat + time.Second)
		synctest.Wait()
		beats := w.lines()[first:]
		if len(beats) != 5 {
			t.Errorf("%d heartbeats in 5 times %v", len(beats), streamHeartbeat)
		}
		for _, line := range beats {
			if e := decode[StreamEvent](t, []byte(line)); e.Type != watch.Bookmark || e.Object.ResourceVersion != current.Load().ETag() {
				t.Errorf("heartbeat %s", line)
			}
		}
		end()
	})
}

// A slow reader does not delay others and gets the changes that it missed as one.
func TestStreamSlowReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		current := &Current{}
		shows(t, current, customGroup("a.example.com", "things"))
		slow, quick := newSink(), newSink()
		slow.stuck = make(chan struct{})
		endSlow, endQuick := stream(t, current, slow), stream(t, current, quick)
		synctest.Wait()
		for i := range 100 {
			shows(t, current, customGroup("a.example.com", "things"), customGroup("b.example.com", fmt.Sprint("resource", i)))
			synctest.Wait()
		}
		shows(t, current, customGroup("b.example.com", "last"))
		synctest.Wait()
		if n := len(quick.lines()); n != 2+2*100+3 {
			t.Errorf("the quick reader got %d lines", n)
		}
		close(slow.stuck)
		synctest.Wait()
		var got []string
		for _, line := range slow.lines() {
			e := decode[StreamEvent](t, []byte(line))
			got = append(got, string(e.Type)+" "+e.Object.Name)
		}
		want := []string{"ADDED a.example.com", "BOOKMARK ", "ADDED b.example.com", "DELETED a.example.com", "BOOKMARK "}
		if !slices.Equal(got, want) {
			t.Errorf("the slow reader got %q, want %q", got, want)
		}
		endSlow()
		endQuick()
	})
}

// The encoded part of a group is shared by snapshots while the group does not change, also if it is
// described again with the same content.
func TestPartsOfUnchangedGroupsAreShared(t *testing.T) {
	described := func() []GroupVersion {
		return slices.Concat(customGroup("a.example.com", "things"), customGroup("b.example.com", "things"))
	}
	first := build(t, described()...)
	for name, c := range map[string]struct {
		change func(gv *GroupVersion)
		shared bool
	}{
		"again":   {func(*GroupVersion) {}, true},
		"stale":   {func(gv *GroupVersion) { gv.Stale = true }, false},
		"unknown": {func(gv *GroupVersion) { gv.Unknown, gv.Legacy, gv.Aggregated = true, nil, nil }, false},
		"hash":    {func(gv *GroupVersion) { gv.Legacy[0].StorageVersionHash = "another=" }, false},
		"version": {func(gv *GroupVersion) { gv.Version = "v2" }, false},
	} {
		gvs := described()
		c.change(&gvs[0])
		next, err := BuildAfter(first, gvs, "gw.example.com:6443")
		if err != nil {
			t.Fatal(err)
		}
		if shared := next.byGroup["a.example.com"] == first.byGroup["a.example.com"]; shared != c.shared || next.Equal(first) != c.shared {
			t.Errorf("%s: the part of the group is shared: %v, the snapshots are equal: %v, want %v", name, shared, next.Equal(first), c.shared)
		}
		if next.byGroup["b.example.com"] != first.byGroup["b.example.com"] {
			t.Errorf("%s: another group is encoded again", name)
		}
	}
}
