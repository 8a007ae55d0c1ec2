package sources

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"portico/discovery"
	"portico/internal/testing/await"
)

// follow follows the stream of a server until the test ends.
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

// groups waits until a source has exactly these groups.
func groups(t *testing.T, s *Source, want ...string) []discovery.GroupVersion {
	t.Helper()
	var gvs []discovery.GroupVersion
	await.Until(t, fmt.Sprintf("the groups are %q", want), func() bool {
		gvs, _ = s.GroupVersions()
		return slices.EqualFunc(gvs, want, func(gv discovery.GroupVersion, group string) bool { return gv.Group == group })
	})
	return gvs
}

func things(groups ...string) (gvs []discovery.GroupVersion) {
	for _, g := range groups {
		gvs = append(gvs, described(g, "v1", "things"))
	}
	return gvs
}

const groupA, groupB = "a.example.com", "b.example.com"

// Changes of groups are seen at once. Descriptions of unchanged groups keep their slices, also when the
// stream breaks and another one begins, and remain while there is none.
func TestFollow(t *testing.T) {
	server := newBackend(t, things("", groupA)...)
	s := server.source()
	defer s.Close()
	changes, ended := follow(t, s)
	first := groups(t, s, "", groupA)
	server.serves(t, things("", groupA, groupB)...)
	second := groups(t, s, "", groupA, groupB)
	if !first[1].Same(&second[1]) {
		t.Error("a group that did not change has other slices")
	}
	if !reflect.DeepEqual(second[2].Legacy, described(groupB, "v1", "things").Legacy) || second[2].Aggregated[0].ResponseKind.Kind != "things" {
		t.Errorf("the new group is known as %+v", second[2])
	}
	server.serves(t, things("", groupB)...)
	groups(t, s, "", groupB)
	check(t, s, false)
	if changes.Load() < 3 {
		t.Errorf("%d changes were reported", changes.Load())
	}

	server.CloseClientConnections()
	if err := <-ended; err == nil || IsNoStream(err) {
		t.Fatalf("a broken stream ended with %v", err)
	}
	before := groups(t, s, "", groupB)
	server.serves(t, things("", groupA, groupB)...)
	follow(t, s)
	if after := groups(t, s, "", groupA, groupB); !before[1].Same(&after[2]) {
		t.Error("a group that did not change has other slices after another stream")
	}
}

// A server that does not know the request has no stream; one that refuses it may have one later.
func TestFollowRefused(t *testing.T) {
	for code, none := range map[int]bool{
		http.StatusOK: true, http.StatusBadRequest: true, http.StatusNotFound: true, http.StatusMethodNotAllowed: true, http.StatusNotImplemented: true,
		http.StatusForbidden: false, http.StatusTooManyRequests: false, http.StatusServiceUnavailable: false,
	} {
		server := newBackend(t, things(groupA)...)
		if server.answer("/apis", code, acceptLegacy, ""); code == http.StatusOK {
			server.legacy = true
			server.heal() // the document instead of the stream
		}
		s := server.source()
		if err := s.Follow(t.Context(), func() {}); err == nil || IsNoStream(err) != none {
			t.Errorf("%d: %v", code, err)
		}
		if code == http.StatusOK {
			check(t, s, true)
			same(t, s, groupA+"/v1:things")
		}
		s.Close()
	}
}

const bookmarkLine = `{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"\"X\""},"versions":null}}` + "\n"

// groupLine returns an event; more are members of it, after a comma.
func groupLine(kind, group, freshness, more string) string {
	return fmt.Sprintf(`{"type":%q,"object":{"metadata":{"name":%q},"versions":[{"version":"v1","freshness":%q,"resources":[{"resource":"things","responseKind":null,"scope":"Cluster","verbs":["get"]}]}]}%s}`+"\n",
		kind, group, freshness, more)
}

func added(group string) string { return groupLine("ADDED", group, "Current", "") }

// followLines follows a stream that consists of these lines, and counts the changes.
func followLines(t *testing.T, limits Limits, known []discovery.GroupVersion, changed func(), lines ...string) (s *Source, changes int, err error) {
	t.Helper()
	server := newBackend(t)
	server.answer("/api", http.StatusNotFound, "", "")
	server.handle("/apis", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json"+discovery.StreamParameter)
		for _, line := range lines {
			_, _ = io.WriteString(w, line)
			_ = http.NewResponseController(w).Flush()
		}
	})
	cfg := server.config()
	cfg.Limits, cfg.Previous = limits, known
	s = NewSource(cfg)
	t.Cleanup(s.Close)
	err = s.Follow(t.Context(), func() {
		changes++
		if changed != nil {
			changed()
		}
	})
	if err == nil || IsNoStream(err) {
		t.Errorf("Follow returned %v", err)
	}
	return s, changes, err
}

// Events without a BOOKMARK after them are a part of a state and are discarded.
func TestIncompleteStateIsDiscarded(t *testing.T) {
	for name, lines := range map[string][]string{
		"nothing":            {},
		"no bookmark":        {added(groupA)},
		"half a line":        {`{"type":"ADDED","object":{"metadata":{"na`},
		"no JSON":            {"<html>"},
		"a nameless group":   {added(""), bookmarkLine},
		"a nameless removal": {groupLine("DELETED", "", "Current", ""), bookmarkLine},
		"a nameless version": {`{"type":"ADDED","object":{"metadata":{"name":"a.example.com"},"versions":[{"version":""}]}}` + "\n", bookmarkLine},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, changes, err := followLines(t, Limits{}, things("known.example.com"), nil, lines...)
			if changes != 0 {
				t.Errorf("%d changes, %v", changes, err)
			}
			same(t, s, "known.example.com/v1:things")
		})
	}
}

// Group/versions with invalid names are left out, reported with clipped names, and affect nothing else.
func TestFollowLeavesOutInvalidNames(t *testing.T) {
	long := strings.Repeat("x", 10*maxNameKept)
	s, changes, err := followLines(t, Limits{}, nil, nil, added(long), added("A_B"), added(groupA), added("C_D"), groupLine("DELETED", "C_D", "", ""), bookmarkLine)
	if changes != 1 {
		t.Errorf("%d changes, %v", changes, err)
	}
	same(t, s, groupA+"/v1:things")
	var names []string
	for _, u := range s.Unread() {
		if !errors.Is(u.Err, ErrInvalidName) {
			t.Error(u.Err)
		}
		names = append(names, u.Name())
	}
	if want := []string{`"A_B/v1"`, `"` + long[:maxNameKept] + `/v1"`}; !slices.Equal(names, want) {
		t.Errorf("left out: %.300q, want %q", names, want)
	}
}

// The description of a version that the server reports as stale remains and is marked stale. The legacy
// form is derived if the stream does not have it.
func TestStaleKeepsTheDescription(t *testing.T) {
	expect := func(t *testing.T, s *Source, before discovery.GroupVersion) {
		t.Helper()
		gvs, _ := s.GroupVersions()
		if len(gvs) != 2 {
			t.Fatalf("known: %+v", gvs)
		}
		known, never := gvs[0], gvs[1]
		if !known.Stale || known.Unknown || !reflect.DeepEqual(known.Legacy, before.Legacy) || !reflect.DeepEqual(known.Aggregated, before.Aggregated) {
			t.Errorf("the known description became %+v", known)
		}
		if never.Group != "never.example.com" || !never.Unknown || never.Legacy != nil {
			t.Errorf("the unknown one became %+v", never)
		}
	}
	before := described("known.example.com", "v1", "things")
	t.Run("by checks", func(t *testing.T) {
		server := newBackend(t, before)
		s := server.source()
		defer s.Close()
		check(t, s, true)
		server.serves(t, discovery.GroupVersion{Group: "known.example.com", Version: "v1", Unknown: true}, discovery.GroupVersion{Group: "never.example.com", Version: "v1", Unknown: true})
		check(t, s, true)
		expect(t, s, before)
		server.serves(t, before)
		check(t, s, true)
		if gvs, _ := s.GroupVersions(); len(gvs) != 1 || gvs[0].Stale {
			t.Errorf("current again: %+v", gvs)
		}
	})
	t.Run("by a stream", func(t *testing.T) {
		s, _, _ := followLines(t, Limits{}, []discovery.GroupVersion{before}, nil,
			groupLine("ADDED", "known.example.com", "Stale", ""), groupLine("ADDED", "never.example.com", "Stale", ""), bookmarkLine)
		expect(t, s, before)
		s, changes, _ := followLines(t, Limits{}, nil, nil,
			groupLine("ADDED", groupA, "Stale", `,"resources":{"v1":[{"name":"others","kind":"Thing","verbs":["get"]}]}`), added(groupB), bookmarkLine, bookmarkLine)
		same(t, s, groupA+"/v1:others", groupB+"/v1:things")
		if gvs, _ := s.GroupVersions(); changes != 1 || !gvs[0].Stale || gvs[1].Stale || gvs[1].Aggregated[0].ResponseKind == nil {
			t.Errorf("%d changes, known %+v", changes, gvs)
		}
	})
}

// While a stream is followed, a check requests /api only, and does not delay the stream. An index that
// was requested before does not replace the state of the stream.
func TestCheckBesideAStream(t *testing.T) {
	server := newBackend(t, things("old.example.com")...)
	s := server.source()
	defer s.Close()
	for _, path := range s.paths() {
		if err := s.requestIndex(t.Context(), path); err != nil {
			t.Fatal(err)
		}
	}
	s.fetchAndUpdate(t.Context(), nil)
	server.serves(t, things(groupA)...)
	follow(t, s)
	groups(t, s, groupA)
	if s.fetchAndUpdate(t.Context(), nil) {
		t.Error("the index replaced the stream")
	}
	hang, hanging := make(chan struct{}), make(chan struct{})
	server.handle("/api", func(w http.ResponseWriter, r *http.Request) {
		close(hanging)
		<-hang
		http.NotFound(w, r)
	})
	server.requests()
	checked := make(chan error, 1)
	go func() { checked <- s.Check(t.Context()) }()
	<-hanging
	server.serves(t, things(groupA, groupB)...)
	groups(t, s, groupA, groupB)
	close(hang)
	if err := <-checked; err != nil {
		t.Error(err)
	}
	if asked := server.requests(); asked != "/api 404" {
		t.Errorf("requests %s beside the stream", asked)
	}
}

// The document of the core group that was read before a stream remains if a check reads the other
// groups because the stream does not begin.
func TestCheckBeforeAStream(t *testing.T) {
	server := newBackend(t, things("", groupA)...)
	s := server.source()
	defer s.Close()
	server.answer("/apis", http.StatusServiceUnavailable, acceptLegacy, "")
	if err := s.Follow(t.Context(), func() {}); err == nil || IsNoStream(err) {
		t.Fatalf("a stream that is refused for now ended with %v", err)
	}
	server.heal()
	check(t, s, true)
	if core := groups(t, s, "", groupA)[0]; core.Legacy[0].StorageVersionHash == "" {
		t.Errorf("the core group is known as %+v, which is not its document", core.Legacy)
	}
}

// silent is a server that sends nothing, or headers only.
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

// A silent stream ends after streamSilence, and any stream with its context.
func TestSilentStreamEnds(t *testing.T) {
	for _, headers := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := NewSource(Config{Name: "test", BaseURL: "http://test", Transport: silent{headers}, Identify: func(http.Header) {}})
			began := time.Now()
			err := s.Follow(t.Context(), func() { t.Error("a change") })
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

// A stream beyond the limits ends, however many bookmarks it has, and its last state remains.
func TestStreamIsBounded(t *testing.T) {
	limits := smallLimits()
	limits.Memory, limits.Rate, limits.Burst = 500<<10, 1, 512<<10
	most := limits.GroupVersions
	many := func(n int) (lines []string) {
		for i := range n {
			lines = append(lines, added(fmt.Sprintf("g%d.example.com", i)))
		}
		return append(lines, bookmarkLine)
	}
	big := func(name string, resources int) string {
		return groupLine("MODIFIED", name, "Current", `,"resources":{"v1":[`+strings.Repeat("{},", resources)+`{}]}`)
	}
	long := groupLine("ADDED", groupA, "Current", `,"more":"`+strings.Repeat("x", limits.Group)+`"`)
	padded := groupLine("ADDED", groupA, "Current", `,"more":"`+strings.Repeat("x", limits.Group-1000)+`"`)
	const ended, tooLong = "the server ended it", "sends more than the limits"
	for name, tc := range map[string]struct {
		lines          []string
		changes, known int
		err            string
	}{
		"as many as permitted":      {many(most), 1, most, ended},
		"one more":                  {many(most + 1), 0, 0, tooLong},
		"the same again":            {append(many(most), many(most)...), 1, most, ended},
		"others in their place":     {append(many(most), groupLine("DELETED", "g1.example.com", "", ""), added("x.example.com"), bookmarkLine), 2, most, ended},
		"one more after a bookmark": {append(many(most), added("x.example.com"), bookmarkLine), 1, most, tooLong},
		"too many elements":         {[]string{big(groupA, limits.Elements), bookmarkLine}, 0, 0, tooLong},
		"large groups":              {[]string{big(groupA, 900), big(groupB, 900), big(groupA, 900), bookmarkLine}, 1, 2, ended},
		"too many large groups":     {[]string{big(groupA, 900), bookmarkLine, big(groupB, 900), bookmarkLine, big("c.example.com", 900), bookmarkLine}, 2, 2, tooLong},
		"a long line":               {[]string{long, bookmarkLine}, 0, 0, tooLong},
		"too many bytes":            {append(many(1), slices.Repeat([]string{padded}, 20)...), 1, 1, tooLong},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, changes, err := followLines(t, limits, nil, nil, tc.lines...)
			gvs, _ := s.GroupVersions()
			if changes != tc.changes || len(gvs) != tc.known || err == nil || !strings.Contains(err.Error(), tc.err) || IsTooLong(err) != (tc.err == tooLong) {
				t.Errorf("%d changes, %d known, %v", changes, len(gvs), err)
			}
		})
	}
}

// Following any stream within DefaultLimits takes less than 64 MB.
func TestStreamMemory(t *testing.T) {
	limits := DefaultLimits()
	var lines []string
	for i := range 6 {
		dense := strings.Repeat("{},", limits.Elements/2-100) + "{}"
		lines = append(lines, groupLine("ADDED", fmt.Sprintf("g%d.example.com", i), "Current", `,"resources":{"v1":[`+dense+`]}`), bookmarkLine)
	}
	var before, now runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	most := uint64(0)
	defer debug.SetGCPercent(debug.SetGCPercent(10))
	_, _, _ = followLines(t, limits, nil, func() {
		runtime.GC()
		runtime.ReadMemStats(&now)
		most = max(most, now.HeapAlloc)
	}, lines...)
	if most == 0 || most > before.HeapAlloc+64<<20 {
		t.Errorf("%d bytes more than before are used", int64(most)-int64(before.HeapAlloc))
	}
}
