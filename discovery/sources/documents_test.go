package sources

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico/discovery"
)

// far is the transport to a slow server. It counts requests.
type far struct {
	handler      http.Handler
	list, detail time.Duration
	now, most    atomic.Int32
	asked        atomic.Int32 // details
	fails        func(path string) bool
}

func (f *far) RoundTrip(req *http.Request) (*http.Response, error) {
	wait := f.list
	if strings.Count(req.URL.Path, "/") > 1 {
		wait = f.detail
		f.asked.Add(1)
	}
	n := f.now.Add(1)
	defer f.now.Add(-1)
	for most := f.most.Load(); n > most && !f.most.CompareAndSwap(most, n); most = f.most.Load() {
	}
	select {
	case <-time.After(wait):
	case <-req.Context().Done():
		return nil, req.Context().Err()
	}
	if f.fails != nil && f.fails(req.URL.Path) {
		return &http.Response{StatusCode: http.StatusInternalServerError, Header: http.Header{}, Body: http.NoBody, Request: req}, nil
	}
	w := &recorded{header: http.Header{}, code: http.StatusOK}
	f.handler.ServeHTTP(w, req)
	return &http.Response{StatusCode: w.code, Header: w.header, Body: io.NopCloser(strings.NewReader(w.body.String())), ContentLength: int64(w.body.Len()), Request: req}, nil
}

// recorded is an answer.
type recorded struct {
	header http.Header
	code   int
	body   strings.Builder
}

func (w *recorded) Header() http.Header         { return w.header }
func (w *recorded) WriteHeader(code int)        { w.code = code }
func (w *recorded) Write(p []byte) (int, error) { return w.body.Write(p) }

func manyGroups(n int) (gvs []discovery.GroupVersion) {
	for i := range n {
		gvs = append(gvs, described(fmt.Sprintf("g%03d.example.com", i), "v1", "things"))
	}
	return gvs
}

func farSource(t *testing.T, f *far, gvs ...discovery.GroupVersion) (s *Source, changed *atomic.Int32) {
	t.Helper()
	snapshot, err := discovery.Build(gvs, "")
	if err != nil {
		t.Fatal(err)
	}
	f.handler = discovery.NewHandler(discovery.Fixed(snapshot))
	changed = &atomic.Int32{}
	s = NewSource(Config{
		Name: "far", BaseURL: "http://far", Transport: f, Identify: func(http.Header) {}, Changed: func() { changed.Add(1) },
	})
	return s, changed
}

// A check of a slow server with many group/versions succeeds at once; their documents follow.
func TestFarServerWithManyVersions(t *testing.T) {
	const many = 400
	synctest.Test(t, func(t *testing.T) {
		f := &far{list: 40 * time.Millisecond, detail: 100 * time.Millisecond}
		s, changed := farSource(t, f, manyGroups(many)...)
		defer s.Close()
		began := time.Now()
		if err := s.Check(t.Context()); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took > 2*f.list+fetchPatience {
			t.Errorf("the check took %v", took)
		}
		time.Sleep(batchTime)
		if gvs, ok := s.GroupVersions(); !ok || len(gvs) != many {
			t.Errorf("after %v %d group/versions are known", time.Since(began), len(gvs))
		}
		time.Sleep(many * f.detail / fetchersPerServer)
		gvs, whole := s.Served()
		for i := range gvs {
			if gvs[i].Legacy[0].StorageVersionHash == "" {
				t.Fatalf("%s was not read", gvs[i].Name())
			}
		}
		if !whole || changed.Load() < 2 || f.most.Load() != fetchersPerServer || f.asked.Load() != many {
			t.Errorf("all of it: %v; told %d times, %d documents asked for, %d at a time", whole, changed.Load(), f.asked.Load(), f.most.Load())
		}
	})
}

// Only the documents of changed group/versions are fetched when an index changes.
func TestOnlyWhatChangedIsRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &far{}
		gvs := manyGroups(50)
		s, _ := farSource(t, f, gvs...)
		defer s.Close()
		check(t, s, true)
		reads := func(what string, want int32) {
			t.Helper()
			f.asked.Store(0)
			if err := s.Check(t.Context()); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if got := f.asked.Load(); got != want {
				t.Errorf("%s: %d documents were read, want %d", what, got, want)
			}
		}
		reads("nothing changed", 0)
		serve := func(gvs ...discovery.GroupVersion) {
			snapshot, err := discovery.Build(gvs, "")
			if err != nil {
				t.Fatal(err)
			}
			f.handler = discovery.NewHandler(discovery.Fixed(snapshot))
		}
		gvs[7] = described("g007.example.com", "v1", "things", "others")
		serve(gvs...)
		reads("one changed", 1)
		serve(gvs[1:]...)
		reads("one went", 0)
		time.Sleep(documentLasts)
		reads("a long time passed", 49)
		kept := len(s.documents)
		if kept != 49 {
			t.Errorf("%d group/versions are remembered", kept)
		}
	})
}

// A document that fails affects neither the check nor other documents, and what was known and what
// the index says of its group/version remains.
func TestOneDocumentFails(t *testing.T) {
	for name, c := range map[string]struct {
		code int
		body string
		want string
	}{
		"other group":   {200, `{"groupVersion":"evil.example.com/v1","resources":[]}`, "describes"},
		"unavailable":   {503, "", "bad status"},
		"broken":        {500, "", "bad status"},
		"no such thing": {200, "x", "decode"},
		"too large":     {200, strings.Repeat(" ", maxDocument+1), "larger than"},
	} {
		t.Run(name, func(t *testing.T) {
			bad := schema.GroupVersion{Group: "bad.example.com", Version: "v1"}
			b := newBackend(t, described("apps", "v1", "deployments"), described(bad.Group, bad.Version, "widgets"))
			b.answer("/apis/bad.example.com/v1", c.code, "application/json", c.body)
			s := b.source()
			check(t, s, true)
			is := func(when string, resources ...string) {
				t.Helper()
				same(t, s, resources...)
				if unread := s.Unread(); len(unread) != 1 || unread[0].GroupVersion != bad || !strings.Contains(unread[0].Err.Error(), c.want) {
					t.Errorf("%s: unread are %v", when, unread)
				}
				if _, whole := s.Served(); !whole {
					t.Errorf("%s: what is listed is said not to be all", when)
				}
			}
			is("at first", "apps/v1:deployments", "bad.example.com/v1:widgets")
			b.serves(t, described("apps", "v1", "deployments"), described(bad.Group, bad.Version, "gadgets", "widgets"))
			check(t, s, true)
			is("later", "apps/v1:deployments", "bad.example.com/v1:gadgets", "bad.example.com/v1:widgets")
			b.heal()
			check(t, s, true)
			if unread := s.Unread(); len(unread) != 0 || s.knownVersions()[bad].Legacy[0].StorageVersionHash == "" {
				t.Errorf("when it works again: unread are %v", unread)
			}
			b.answer("/apis/bad.example.com/v1", c.code, "application/json", c.body)
			b.serves(t, described("apps", "v1", "deployments"), described(bad.Group, bad.Version, "widgets"))
			check(t, s, true)
			if gv := s.knownVersions()[bad]; len(gv.Legacy) != 1 || gv.Legacy[0].StorageVersionHash == "" {
				t.Errorf("what was known was lost: %+v", gv)
			}
		})
	}
}

// Without the aggregated form, what was known of a failed document remains.
func TestOneDocumentFailsWithoutV2(t *testing.T) {
	bad := schema.GroupVersion{Group: "bad.example.com", Version: "v1"}
	b := newBackend(t, described("apps", "v1", "deployments"), described(bad.Group, bad.Version, "widgets"))
	b.legacy = true
	b.answer("/apis/bad.example.com/v1", 500, "text/plain", "")
	s := b.source()
	check(t, s, true)
	same(t, s, "apps/v1:deployments")
	if gv, listed := s.knownVersions()[bad]; !listed || !gv.Unknown || len(s.Unread()) != 1 {
		t.Errorf("known is %+v, unread %v", gv, s.Unread())
	}
	b.heal()
	check(t, s, true)
	same(t, s, "apps/v1:deployments", "bad.example.com/v1:widgets")
	// Its index does not show changes in a group: documents are fetched again after a while.
	b.serves(t, described("apps", "v1", "deployments"), described(bad.Group, bad.Version, "gadgets"))
	check(t, s, false)
	for _, d := range s.documents {
		d.fetched = time.Now().Add(-loneDocumentLasts)
	}
	check(t, s, true)
	same(t, s, "apps/v1:deployments", "bad.example.com/v1:gadgets")
	b.answer("/apis/bad.example.com/v1", 500, "text/plain", "")
	b.serves(t, described("apps", "v1", "deployments"), described("new.example.com", "v1", "things"), described(bad.Group, bad.Version, "gizmos"))
	check(t, s, true)
	same(t, s, "apps/v1:deployments", "bad.example.com/v1:gadgets", "new.example.com/v1:things")
}

// A server whose documents all fail gets few requests, with growing pauses.
func TestStrugglingServerIsSpared(t *testing.T) {
	for name, detail := range map[string]time.Duration{"fails": time.Millisecond, "hangs": time.Hour} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &far{detail: detail, fails: func(path string) bool { return strings.Count(path, "/") > 1 }}
				s, _ := farSource(t, f, manyGroups(120)...)
				defer s.Close()
				const checks, every = 120, 500 * time.Millisecond
				for range checks {
					if err := s.Check(t.Context()); err != nil {
						t.Fatal(err)
					}
					time.Sleep(every)
				}
				synctest.Wait()
				// 1, 2, 4, 8, 16 and 30 s between them.
				if asked := f.asked.Load(); asked > 7*(maxFailures+fetchersPerServer) {
					t.Errorf("%d documents were asked for in a minute", asked)
				}
				if gvs, _ := s.GroupVersions(); len(gvs) != 120 || len(gvs[119].Legacy) != 1 {
					t.Errorf("%d group/versions are known", len(gvs))
				}
			})
		})
	}
}

// Documents that fail do not delay the others.
func TestManyFailuresBesideGoodOnes(t *testing.T) {
	f := &far{fails: func(path string) bool { return strings.HasPrefix(path, "/apis/g0") }} // 100 of 150
	s, _ := farSource(t, f, manyGroups(150)...)
	defer s.Close()
	for range 150 {
		if _, err := settle(t, s); err != nil {
			t.Fatal(err)
		}
	}
	gvs, _ := s.GroupVersions()
	read := 0
	for i := range gvs {
		if gvs[i].Legacy[0].StorageVersionHash != "" {
			read++
		}
	}
	if unread := len(s.Unread()); read != 50 || unread != 100 {
		t.Errorf("%d were read and %d are known to fail, of 50 and 100", read, unread)
	}
}

// The document of a version that the server reports as stale is not fetched.
func TestStaleIsNotDue(t *testing.T) {
	apps := described("apps", "v1", "deployments")
	b := newBackend(t, apps, described("batch", "v1", "jobs"))
	s := b.source()
	check(t, s, true)
	lost := apps
	lost.Stale = true
	b.serves(t, lost, described("batch", "v1", "jobs"))
	check(t, s, true)
	s.mu.Lock()
	for _, d := range s.documents {
		d.fetched = d.fetched.Add(-2 * documentLasts)
	}
	s.mu.Unlock()
	b.forget()
	check(t, s, false)
	if asked := b.forget(); asked != "/api 304, /apis 304, /apis/batch/v1 200" {
		t.Errorf("asked %s", asked)
	}
	b.serves(t, apps, described("batch", "v1", "jobs"))
	check(t, s, true)
	same(t, s, "apps/v1:deployments", "batch/v1:jobs")
}

// Close returns at once, and a closed source fetches nothing.
func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &far{detail: time.Hour}
		s, changed := farSource(t, f, manyGroups(20)...)
		if err := s.Check(t.Context()); err != nil {
			t.Fatal(err)
		}
		began, asked := time.Now(), f.asked.Load()
		s.Close()
		s.Wait()
		if took := time.Since(began); took > 0 || asked != fetchersPerServer {
			t.Errorf("closing took %v, %d were asked for", took, asked)
		}
		if err := s.Check(t.Context()); err != nil || f.asked.Load() != asked || changed.Load() != 0 {
			t.Errorf("closed, and more is asked for: %v, %d, told %d times", err, f.asked.Load(), changed.Load())
		}
		if gvs, known := s.GroupVersions(); known {
			t.Errorf("half of an answer is known: %v", gvs)
		}
	})
}
