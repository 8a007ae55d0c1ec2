package aggregate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"portico/discovery"
)

// scripted is a server whose stream says what a test writes.
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

// run follows a stream that says these lines and then ends.
func (s *scripted) run(t *testing.T, source *Source, lines ...string) (news int, err error) {
	t.Helper()
	go func() {
		defer close(s.lines)
		for _, line := range lines {
			s.lines <- line
		}
	}()
	err = source.Follow(t.Context(), func() { news++ })
	if err == nil || IsNoStream(err) {
		t.Errorf("Follow returned %v", err)
	}
	return news, err
}

// What comes without the BOOKMARK behind it is a part of a state, and counts for
// nothing.
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

func TestFollowBoundsWhatItReads(t *testing.T) {
	s := newScripted(t)
	source := s.source(described("known.example.com", "v1", "things"))
	long := groupLine("ADDED", "a.example.com", "Current", `,"more":"`+strings.Repeat("x", 8<<20)+`"`)
	if news, err := s.run(t, source, long, long, long, long, long); news != 0 || !errors.Is(err, errTooLong) {
		t.Errorf("%d news, %v", news, err)
	}
	same(t, source, "known.example.com/v1:things")
	// With bookmarks between them it is no endless state, and of a line that is too long
	// only its group is left out.
	with := func(n int) (lines []string) {
		lines = append(lines, groupLine("ADDED", "b.example.com", "Current", ""))
		for range n {
			lines = append(lines, long, bookmarkLine)
		}
		return lines
	}
	s = newScripted(t)
	source = s.source()
	if news, err := s.run(t, source, with(5)...); news != 5 || IsTooLong(err) || source.Dropped() != 1 {
		t.Errorf("%d news, %d left out, %v", news, source.Dropped(), err)
	}
	same(t, source, "b.example.com/v1:things")
	// For how long it sends does not matter either, nor on how many streams.
	s = newScripted(t)
	source.cfg.BaseURL = s.URL
	if news, err := s.run(t, source, with(5)...); news > 3 || !IsTooLong(err) {
		t.Errorf("%d news, %v", news, err)
	}
}

// What a stream tells is bounded in all, as what a server lists is, however many
// bookmarks it has. What is beyond the bounds is left out and nothing else; what the
// stream takes back makes room, for which it is asked for everything again.
func TestFollowBoundsWhatItIsTold(t *testing.T) {
	most := DefaultLimits().GroupVersions
	many := func(n int) (lines []string) {
		for i := range n {
			lines = append(lines, groupLine("ADDED", fmt.Sprintf("g%d.example.com", i), "Current", ""))
		}
		return append(lines, bookmarkLine)
	}
	big := func(name string, resources int) string {
		return groupLine("MODIFIED", name, "Current", `,"resources":{"v1":[`+strings.Repeat("{},", resources)+`{}]}`)
	}
	const ended = "the server ended it"
	for name, tc := range map[string]struct {
		lines                []string
		news, known, dropped int
		err                  string
	}{
		"as many as may be":         {many(most), 1, most, 0, ended},
		"one more":                  {many(most + 1), 1, most, 1, ended},
		"the same again":            {append(many(most), many(most)...), 2, most, 0, ended},
		"others in their place":     {append(many(most), groupLine("DELETED", "g1.example.com", "", ""), groupLine("ADDED", "x.example.com", "Current", ""), bookmarkLine), 2, most, 0, ended},
		"one more after a bookmark": {append(many(most), groupLine("ADDED", "x.example.com", "Current", ""), groupLine("MODIFIED", "x.example.com", "Current", ""), bookmarkLine), 2, most, 1, ended},
		"it is gone again":          {append(many(most), groupLine("ADDED", "x.example.com", "Current", ""), groupLine("DELETED", "x.example.com", "", ""), bookmarkLine), 2, most, 0, ended},
		"room for it":               {append(many(most+1), groupLine("DELETED", "g1.example.com", "", "")), 1, most, 1, "asked for everything again"},
		"too many elements":         {[]string{big("a.example.com", DefaultLimits().Elements), groupLine("ADDED", "b.example.com", "Current", ""), bookmarkLine}, 1, 2, 1, ended},
		"large ones":                {[]string{big("a.example.com", 40000), big("b.example.com", 40000), big("a.example.com", 40000), bookmarkLine}, 1, 2, 0, ended},
		"too many large ones":       {[]string{big("a.example.com", 40000), bookmarkLine, big("b.example.com", 40000), bookmarkLine, big("c.example.com", 40000), bookmarkLine}, 3, 3, 1, ended},
		"room for a large one":      {[]string{big("a.example.com", 40000), big("b.example.com", 40000), big("c.example.com", 40000), bookmarkLine, groupLine("DELETED", "a.example.com", "", "")}, 1, 3, 1, "asked for everything again"},
		"too large, and no group":   {[]string{strings.Replace(big("a.example.com", 60000), "MODIFIED", "BOOKMARK", 1)}, 0, 0, 0, "of no group"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScripted(t)
			source := s.source()
			news, err := s.run(t, source, tc.lines...)
			gvs, _ := source.GroupVersions()
			if news != tc.news || len(gvs) != tc.known || source.Dropped() != tc.dropped || err == nil || !strings.Contains(err.Error(), tc.err) {
				t.Errorf("%d news, %d known, %d left out, %v", news, len(gvs), source.Dropped(), err)
			}
			for _, u := range source.Unread() {
				if !errors.Is(u.Err, ErrBeyondLimits) {
					t.Error(u.Err)
				}
			}
		})
	}
}

// A group that grows too large is known as it was, and is stale.
func TestFollowKeepsWhatGrewTooLarge(t *testing.T) {
	s := newScripted(t)
	source := s.source(described("a.example.com", "v1", "things"))
	if _, err := s.run(t, source, groupLine("ADDED", "a.example.com", "Current", `,"more":"`+strings.Repeat("x", 8<<20)+`"`), bookmarkLine); IsTooLong(err) {
		t.Error(err)
	}
	same(t, source, "a.example.com/v1:things")
	if gvs, _ := source.GroupVersions(); len(gvs) != 1 || !gvs[0].Stale || source.Dropped() != 1 {
		t.Errorf("known %+v, %d left out", gvs, source.Dropped())
	}
}

// Whatever a server streams, following it takes less than 64 MB.
func TestFollowHoldsLittle(t *testing.T) {
	limits := DefaultLimits()
	dense := func(i int, element string) string {
		return groupLine("ADDED", fmt.Sprintf("g%d.example.com", i), "Current", `,"resources":{"v1":[`+strings.Repeat(element+",", limits.Elements/2-100)+element+`]}`)
	}
	for name, line := range map[string]func(i int) string{
		"empty resources": func(i int) string { return dense(i, "{}") },
		"subresources": func(i int) string {
			return strings.Replace(groupLine("ADDED", fmt.Sprintf("g%d.example.com", i), "Current", ""), `"responseKind":null`, `"subresources":[`+strings.Repeat("{},", limits.Elements-100)+`{}]`, 1)
		},
		"long lines": func(i int) string {
			return groupLine("ADDED", fmt.Sprintf("g%d.example.com", i), "Current", `,"more":"`+strings.Repeat("x", limits.Group-1000)+`"`)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScripted(t)
			source := s.source()
			lines := make([]string, 0, 12)
			for i := range 6 {
				lines = append(lines, line(i), bookmarkLine)
			}
			var before, now runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			most := uint64(0)
			defer debug.SetGCPercent(debug.SetGCPercent(10))
			go func() {
				defer close(s.lines)
				for _, line := range lines {
					s.lines <- line
				}
			}()
			err := source.Follow(t.Context(), func() {
				runtime.GC()
				runtime.ReadMemStats(&now)
				most = max(most, now.HeapAlloc)
			})
			t.Logf("%d MB, %v", (int64(most)-int64(before.HeapAlloc))>>20, err)
			if most > before.HeapAlloc+64<<20 {
				t.Errorf("it holds %d MB", (most-before.HeapAlloc)>>20)
			}
		})
	}
}

// Names that no group/version can have are left out, named in short, and nothing else
// is lost by them.
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
	// What it takes back is forgotten.
	s = newScripted(t)
	source = s.source()
	s.run(t, source, groupLine("ADDED", long, "Current", ""), groupLine("DELETED", long, "", ""), bookmarkLine)
	if left := source.Unread(); len(left) > 0 {
		t.Errorf("left out: %d", len(left))
	}
}

// A server that does not send the unaggregated form is understood.
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

// A server that has itself lost sight of a version says that it is stale: what
// was known of it stays, and is marked.
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

// While a stream is followed, asking tells whether the server answers, and
// neither reads everything beside it nor holds it up.
func TestCheckBesideAStream(t *testing.T) {
	server := newStreaming(t)
	var mu sync.Mutex
	var asked []string
	hang, hanging := make(chan struct{}), make(chan struct{}, 1)
	documents := server.Config.Handler
	server.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		asked = append(asked, r.URL.String())
		mu.Unlock()
		if r.Header.Get("X-Hang") != "" {
			hanging <- struct{}{}
			<-hang
		}
		documents.ServeHTTP(w, r)
	})
	server.serves(t, "a.example.com")
	s := server.source()
	var slow sync.Once
	s.cfg.Identify = func(h http.Header) {
		if h.Get("If-None-Match") == "" {
			return
		}
		slow.Do(func() { h.Set("X-Hang", "1") })
	}
	follow(t, s)
	eventually(t, "the first state", func() bool { return slices.Equal(groupsOf(s), []string{"a.example.com"}) })

	checked := make(chan error, 1)
	go func() {
		changed, err := s.Check(t.Context())
		if changed {
			err = errors.Join(err, errors.New("it found news"))
		}
		checked <- err
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
	// The first state of the core group takes a request, the check one of each.
	if want := []string{"/api", "/api", "/apis"}; !slices.Equal(sortedPlain(asked), want) {
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

// An answer that was asked for before the stream told something newer is not
// taken after it.
func TestStreamOvertakesCheck(t *testing.T) {
	b := newBackend(t, described("old.example.com", "v1", "things"))
	s := b.source()
	for _, path := range s.paths() {
		if err := s.list(t.Context(), path); err != nil {
			t.Fatal(err)
		}
	}
	core, old := s.listing(pathCore), s.listing(pathGroups)
	s.read(t.Context(), core)
	f := &following{source: s, groups: map[string]group{}}
	f.put("new.example.com", group{gvs: []discovery.GroupVersion{described("new.example.com", "v1", "things")}})
	f.adopt(`"X"`)
	if s.read(t.Context(), old) {
		t.Error("it was taken")
	}
	same(t, s, "new.example.com/v1:things")
}

// silent is a server that takes requests and says no more than it must.
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
