package sources

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"portico/discovery"
	"portico/resource"
	"portico/resource/rest"
)

// streaming is a server whose discovery can be followed.
type streaming struct {
	*httptest.Server
	current discovery.Current
	built   map[string][]discovery.GroupVersion
}

func newStreaming(t *testing.T) *streaming {
	t.Helper()
	s := &streaming{built: map[string][]discovery.GroupVersion{}}
	documents := discovery.NewHandler(&s.current)
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		documents.ServeHTTP(w, r.WithContext(resource.WithAction(r.Context(), resource.ParseAction(r))))
	}))
	t.Cleanup(s.Close)
	return s
}

// serves sets the groups that the server lists. Each is described once.
func (s *streaming) serves(t *testing.T, groups ...string) {
	t.Helper()
	var gvs []discovery.GroupVersion
	for _, group := range groups {
		if s.built[group] == nil {
			s.built[group] = discovery.FromKinds([]*rest.Kind{{Info: resource.Info{
				Group: group, Versions: []string{"v1"}, Resource: "things", Kind: "Thing",
			}}})
		}
		gvs = append(gvs, s.built[group]...)
	}
	snapshot, err := discovery.BuildAfter(s.current.Load(), gvs, "")
	if err != nil {
		t.Fatal(err)
	}
	s.current.Store(snapshot)
}

func (s *streaming) source() *Source {
	return NewSource(Config{Name: "test", BaseURL: s.URL, Transport: http.DefaultTransport, Identify: func(http.Header) {}})
}

func groupsOf(s *Source) (names []string) {
	gvs, _ := s.GroupVersions()
	for _, gv := range gvs {
		names = append(names, gv.Group)
	}
	return names
}

// follow follows until the test ends and counts the changes.
func follow(t *testing.T, s *Source) (changes *atomic.Int32, ended <-chan error) {
	t.Helper()
	changes = &atomic.Int32{}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- s.Follow(ctx, func() { changes.Add(1) })
		close(done)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return changes, done
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within 20 s: %s", what)
		}
	}
}

func TestFollow(t *testing.T) {
	server := newStreaming(t)
	server.serves(t, "", "a.example.com")
	s := server.source()
	changes, _ := follow(t, s)
	eventually(t, "the first state", func() bool { return slices.Equal(groupsOf(s), []string{"", "a.example.com"}) && changes.Load() >= 1 })
	first, _ := s.GroupVersions()

	server.serves(t, "", "a.example.com", "b.example.com")
	eventually(t, "a group comes", func() bool { return slices.Equal(groupsOf(s), []string{"", "a.example.com", "b.example.com"}) })
	second, _ := s.GroupVersions()
	if &first[1].Aggregated[0] != &second[1].Aggregated[0] {
		t.Error("a group that did not change was made anew")
	}
	if len(second[2].Legacy) != 1 || second[2].Legacy[0].StorageVersionHash == "" || second[2].Aggregated[0].ResponseKind.Kind != "Thing" {
		t.Errorf("the new group is known as %+v", second[2])
	}

	server.serves(t, "", "b.example.com")
	eventually(t, "a group goes", func() bool { return slices.Equal(groupsOf(s), []string{"", "b.example.com"}) })
	check(t, s, false)
}

// GroupVersions remain when the stream breaks, and the next stream continues from them.
func TestFollowAgain(t *testing.T) {
	server := newStreaming(t)
	server.serves(t, "a.example.com")
	s := server.source()
	_, ended := follow(t, s)
	eventually(t, "the first state", func() bool { return slices.Equal(groupsOf(s), []string{"a.example.com"}) })
	server.CloseClientConnections()
	if err := <-ended; err == nil || IsNoStream(err) {
		t.Fatalf("a broken stream ended with %v", err)
	}
	before, _ := s.GroupVersions()
	if got := groupsOf(s); !slices.Equal(got, []string{"a.example.com"}) {
		t.Errorf("after the stream broke: %q", got)
	}
	server.serves(t, "a.example.com", "b.example.com")
	follow(t, s)
	eventually(t, "the state of now", func() bool { return slices.Equal(groupsOf(s), []string{"a.example.com", "b.example.com"}) })
	after, _ := s.GroupVersions()
	if &before[0].Aggregated[0] != &after[0].Aggregated[0] || &before[0].Legacy[0] != &after[0].Legacy[0] {
		t.Error("a group that did not change was made anew by another stream")
	}
}

// A server that does not know the request has no stream; one that refuses it for now may have one.
func TestFollowRefused(t *testing.T) {
	for code, none := range map[int]bool{
		http.StatusBadRequest: true, http.StatusNotFound: true, http.StatusMethodNotAllowed: true, http.StatusNotImplemented: true,
		http.StatusForbidden: false, http.StatusTooManyRequests: false, http.StatusServiceUnavailable: false,
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == pathCore {
				http.NotFound(w, r) // it has no core group
				return
			}
			w.WriteHeader(code)
		}))
		s := NewSource(Config{Name: "test", BaseURL: server.URL, Transport: http.DefaultTransport, Identify: func(http.Header) {}})
		if err := s.Follow(t.Context(), func() {}); err == nil || IsNoStream(err) != none {
			t.Errorf("%d: %v", code, err)
		}
		server.Close()
	}
}

func TestFollowWithoutStream(t *testing.T) {
	server := newStreaming(t)
	server.serves(t, "a.example.com")
	plain := httptest.NewServer(discovery.NewHandler(&server.current)) // no Action: the parameter is not seen
	defer plain.Close()
	s := NewSource(Config{Name: "test", BaseURL: plain.URL, Transport: http.DefaultTransport, Identify: func(http.Header) {}})
	if err := s.Follow(t.Context(), func() {}); !IsNoStream(err) {
		t.Errorf("got %v", err)
	}
	if changed, err := settle(t, s); !changed || err != nil {
		t.Errorf("asking found nothing: %v, %v", changed, err)
	}
	if got := groupsOf(s); !slices.Equal(got, []string{"a.example.com"}) {
		t.Errorf("known: %q", got)
	}
}
