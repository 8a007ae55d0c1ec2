package sources

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"portico/discovery"
)

// scripted is a server whose stream consists of the lines of a test.
type scripted struct {
	*httptest.Server
	lines chan string // closed: the stream ends
}

func newScripted(t *testing.T) *scripted {
	t.Helper()
	s := &scripted{lines: make(chan string)}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == pathCore {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json"+discovery.StreamParameter)
		for line := range s.lines {
			io.WriteString(w, line)
			w.(http.Flusher).Flush()
		}
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *scripted) source(known ...discovery.GroupVersion) *Source {
	return NewSource(Config{Name: "test", BaseURL: s.URL, Transport: http.DefaultTransport, Identify: func(http.Header) {}, Previous: known})
}

const bookmarkLine = `{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"\"X\""},"versions":null}}` + "\n"

func groupLine(kind, group, freshness, resources string) string {
	return fmt.Sprintf(`{"type":%q,"object":{"metadata":{"name":%q},"versions":[{"version":"v1","freshness":%q,"resources":[{"resource":"things","responseKind":null,"scope":"Cluster","verbs":["get"]}]}]}%s}`+"\n",
		kind, group, freshness, resources)
}

// run follows a stream of these lines, which then ends, and counts the changes.
func (s *scripted) run(t *testing.T, source *Source, lines ...string) (changes int, err error) {
	t.Helper()
	go func() {
		defer close(s.lines)
		for _, line := range lines {
			s.lines <- line
		}
	}()
	err = source.Follow(t.Context(), func() { changes++ })
	if err == nil || IsNoStream(err) {
		t.Errorf("Follow returned %v", err)
	}
	return changes, err
}

// Events without a BOOKMARK after them are a part of a state and are discarded.
func TestFollowHalfAState(t *testing.T) {
	for name, lines := range map[string][]string{
		"nothing":           {},
		"half of it":        {groupLine("ADDED", "a.example.com", "Current", "")},
		"a word":            {`{"type":"ADDED","object":{"metadata":{"na`},
		"no JSON":           {"<html>"},
		"a nameless group":  {groupLine("ADDED", "", "Current", ""), bookmarkLine},
		"a nameless one go": {groupLine("DELETED", "", "Current", ""), bookmarkLine},
		"a nameless version": {
			`{"type":"ADDED","object":{"metadata":{"name":"a.example.com"},"versions":[{"version":""}]}}` + "\n", bookmarkLine,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScripted(t)
			source := s.source(described("known.example.com", "v1", "things"))
			if news, err := s.run(t, source, lines...); news != 0 {
				t.Errorf("%d news, %v", news, err)
			}
			same(t, source, "known.example.com/v1:things")
		})
	}
}

// Group/versions with invalid names are left out, reported with clipped names, and affect nothing
// else.
func TestFollowLeavesOutInvalidNames(t *testing.T) {
	s := newScripted(t)
	source := s.source()
	long := strings.Repeat("x", 1<<20)
	if news, err := s.run(t, source, groupLine("ADDED", long, "Current", ""), groupLine("ADDED", "A_B", "Current", ""),
		groupLine("ADDED", "a.example.com", "Current", ""), bookmarkLine); news != 1 {
		t.Errorf("%d news, %v", news, err)
	}
	same(t, source, "a.example.com/v1:things")
	var names []string
	for _, u := range source.Unread() {
		if !errors.Is(u.Err, ErrInvalidName) {
			t.Error(u.Err)
		}
		names = append(names, u.Name())
	}
	if want := []string{`"A_B/v1"`, `"` + long[:maxNameKept] + `/v1"`}; !slices.Equal(names, want) {
		t.Errorf("left out: %.300q, want %q", names, want)
	}
	// A deleted group is not reported.
	s = newScripted(t)
	source = s.source()
	s.run(t, source, groupLine("ADDED", long, "Current", ""), groupLine("DELETED", long, "", ""), bookmarkLine)
	if left := source.Unread(); len(left) > 0 {
		t.Errorf("left out: %d", len(left))
	}
}

// The unaggregated form is derived if the stream does not have it.
func TestFollowDerivesTheLegacyForm(t *testing.T) {
	s := newScripted(t)
	source := s.source()
	if news, err := s.run(t, source, groupLine("ADDED", "a.example.com", "Current", ""), bookmarkLine, bookmarkLine); news != 1 {
		t.Errorf("%d news, %v", news, err)
	}
	same(t, source, "a.example.com/v1:things")
	if gvs, _ := source.GroupVersions(); gvs[0].Aggregated[0].ResponseKind == nil {
		t.Error("responseKind is null")
	}
}

// The description of a version that the server reports as stale remains and is marked stale.
func TestStaleKeepsWhatWasKnown(t *testing.T) {
	expect := func(t *testing.T, source *Source, before discovery.GroupVersion) {
		t.Helper()
		gvs, _ := source.GroupVersions()
		if len(gvs) != 2 {
			t.Fatalf("known: %+v", gvs)
		}
		known, never := gvs[0], gvs[1]
		if !known.Stale || known.Unknown || !reflect.DeepEqual(known.Legacy, before.Legacy) || !reflect.DeepEqual(known.Aggregated, before.Aggregated) {
			t.Errorf("what was known became %+v", known)
		}
		if never.Group != "never.example.com" || !never.Unknown || never.Legacy != nil {
			t.Errorf("what was never known became %+v", never)
		}
	}
	before := described("known.example.com", "v1", "things")
	t.Run("asked", func(t *testing.T) {
		b := newBackend(t, before)
		s := b.source()
		check(t, s, true)
		b.serves(t, discovery.GroupVersion{Group: "known.example.com", Version: "v1", Unknown: true}, discovery.GroupVersion{Group: "never.example.com", Version: "v1", Unknown: true})
		check(t, s, true)
		expect(t, s, before)
		check(t, s, false)
		b.serves(t, before)
		check(t, s, true)
		if gvs, _ := s.GroupVersions(); len(gvs) != 1 || gvs[0].Stale {
			t.Errorf("back again: %+v", gvs)
		}
	})
	t.Run("told", func(t *testing.T) {
		s := newScripted(t)
		source := s.source(before)
		if _, err := s.run(t, source, groupLine("ADDED", "known.example.com", "Stale", ""), groupLine("ADDED", "never.example.com", "Stale", ""), bookmarkLine); err == nil {
			t.Error("no error")
		}
		expect(t, source, before)
	})
	t.Run("told with what that server knew last", func(t *testing.T) {
		s := newScripted(t)
		source := s.source()
		if _, err := s.run(t, source, groupLine("ADDED", "a.example.com", "Stale", `,"resources":{"v1":[{"name":"things","kind":"Thing","verbs":["get"]}]}`), bookmarkLine); err == nil {
			t.Error("no error")
		}
		same(t, source, "a.example.com/v1:things")
		if gvs, _ := source.GroupVersions(); !gvs[0].Stale {
			t.Error("it passes for current")
		}
	})
}

// While a stream is followed, a check requests /api alone, and does not hold up the stream.
func TestCheckBesideAStream(t *testing.T) {
	server := newStreaming(t)
	var mu sync.Mutex
	var asked []string
	hang, hanging := make(chan struct{}), make(chan struct{}, 1)
	documents := server.Config.Handler
	server.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		asked = append(asked, r.URL.String())
		check := len(sortedPlain(asked)) == 2 && !strings.Contains(r.URL.RawQuery, "watch")
		mu.Unlock()
		if check {
			hanging <- struct{}{}
			<-hang
		}
		documents.ServeHTTP(w, r)
	})
	server.serves(t, "a.example.com")
	s := server.source()
	follow(t, s)
	eventually(t, "the first state", func() bool { return slices.Equal(groupsOf(s), []string{"a.example.com"}) })

	checked := make(chan error, 1)
	go func() {
		checked <- s.Check(t.Context())
	}()
	<-hanging
	server.serves(t, "a.example.com", "b.example.com")
	eventually(t, "news beside a check that hangs", func() bool { return slices.Equal(groupsOf(s), []string{"a.example.com", "b.example.com"}) })
	close(hang)
	if err := <-checked; err != nil {
		t.Errorf("check: %v", err)
	}
	mu.Lock()
	defer mu.Unlock()
	// The first state of the core group takes a request, and the check one.
	if want := []string{"/api", "/api"}; !slices.Equal(sortedPlain(asked), want) {
		t.Errorf("asked for %q although the stream tells the rest", asked)
	}
}

// sortedPlain returns the URLs that are no streams.
func sortedPlain(urls []string) (out []string) {
	for _, u := range urls {
		if !strings.Contains(u, "watch") {
			out = append(out, u)
		}
	}
	slices.Sort(out)
	return out
}

// An index that was requested before the stream began does not replace what the stream says.
func TestStreamReplacesIndex(t *testing.T) {
	b := newBackend(t, described("old.example.com", "v1", "things"))
	s := b.source()
	for _, path := range s.paths() {
		if err := s.requestIndex(t.Context(), path); err != nil {
			t.Fatal(err)
		}
	}
	s.fetchAndUpdate(t.Context(), nil)
	st := &stream{source: s, groups: map[string]streamGroup{}}
	if err := st.put("new.example.com", streamGroup{groupVersions: []discovery.GroupVersion{described("new.example.com", "v1", "things")}}); err != nil {
		t.Fatal(err)
	}
	st.store(`"X"`)
	if s.fetchAndUpdate(t.Context(), nil) {
		t.Error("the index replaced the stream")
	}
	same(t, s, "new.example.com/v1:things")
}

// silent is a server that accepts requests and sends nothing, or headers only.
type silent struct{ headers bool }

func (s silent) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL.Path == pathCore {
		return &http.Response{StatusCode: http.StatusNotFound, Body: http.NoBody}, nil
	}
	if !s.headers {
		<-req.Context().Done()
		return nil, req.Context().Err()
	}
	reader, writer := io.Pipe()
	context.AfterFunc(req.Context(), func() { writer.CloseWithError(req.Context().Err()) })
	return &http.Response{
		StatusCode: http.StatusOK, Body: reader,
		Header: http.Header{"Content-Type": {"application/json" + discovery.StreamParameter}},
	}, nil
}

func TestFollowGivesUpSilence(t *testing.T) {
	for _, headers := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := NewSource(Config{Name: "test", BaseURL: "http://test", Transport: silent{headers}, Identify: func(http.Header) {}})
			began := time.Now()
			err := s.Follow(t.Context(), func() { t.Error("news") })
			if took := time.Since(began); !errors.Is(err, errSilent) || took != streamSilence {
				t.Errorf("headers %v: %v after %v", headers, err, took)
			}
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Second, cancel)
			if err := s.Follow(ctx, func() {}); !errors.Is(err, context.Canceled) {
				t.Errorf("headers %v: %v after its context ended", headers, err)
			}
		})
	}
}
