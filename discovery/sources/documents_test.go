package sources

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico/discovery"
)

// far is the transport to a slow server. It counts requests.
type far struct {
	current      discovery.Current
	list, detail time.Duration
	now, most    atomic.Int32
	asked        atomic.Int32 // documents
	fails        func(path string) bool
	unlisted     discovery.GroupVersion // in no index
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
	w := httptest.NewRecorder()
	switch {
	case f.fails != nil && f.fails(req.URL.Path):
		w.WriteHeader(http.StatusInternalServerError)
	case f.unlisted.Group != "" && req.URL.Path == "/apis/"+f.unlisted.Name():
		_ = json.NewEncoder(w).Encode(metav1.APIResourceList{GroupVersion: f.unlisted.Name(), APIResources: f.unlisted.Legacy})
	default:
		discovery.NewHandler(&f.current).ServeHTTP(w, req)
	}
	return w.Result(), nil
}

func (f *far) serves(t *testing.T, gvs ...discovery.GroupVersion) {
	t.Helper()
	snapshot, err := discovery.Build(gvs, "")
	if err != nil {
		t.Fatal(err)
	}
	f.current.Store(snapshot)
}

func manyGroups(n int) (gvs []discovery.GroupVersion) {
	for i := range n {
		gvs = append(gvs, described(fmt.Sprintf("g%03d.example.com", i), "v1", "things"))
	}
	return gvs
}

func farSource(t *testing.T, f *far, gvs ...discovery.GroupVersion) (s *Source, changed *atomic.Int32) {
	t.Helper()
	f.serves(t, gvs...)
	changed = &atomic.Int32{}
	s = NewSource(Config{
		Name: "far", BaseURL: "http://far", Transport: f, Identify: func(http.Header) {}, Changed: func() { changed.Add(1) },
	})
	return s, changed
}

// A check of a slow server with many group/versions waits for its indexes only; the documents follow.
func TestSlowServerWithManyVersions(t *testing.T) {
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
		gvs, complete := s.Served()
		for i := range gvs {
			if gvs[i].Legacy[0].StorageVersionHash == "" {
				t.Fatalf("%s was not read", gvs[i].Name())
			}
		}
		if !complete || changed.Load() < 2 || f.most.Load() != fetchersPerServer || f.asked.Load() != many {
			t.Errorf("complete %v, %d changes, %d documents requested, %d at a time", complete, changed.Load(), f.asked.Load(), f.most.Load())
		}
	})
}

// Only the documents of changed group/versions are fetched when an index changes, and those that the
// server reports as stale are not.
func TestOnlyChangedDocumentsAreFetched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &far{}
		gvs := manyGroups(50)
		s, _ := farSource(t, f, gvs...)
		defer s.Close()
		check(t, s, true)
		fetches := func(when string, want int32) {
			t.Helper()
			f.asked.Store(0)
			if err := s.Check(t.Context()); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if got := f.asked.Load(); got != want {
				t.Errorf("%s: %d documents were fetched, want %d", when, got, want)
			}
		}
		fetches("unchanged", 0)
		gvs[7] = described("g007.example.com", "v1", "things", "others")
		f.serves(t, gvs...)
		fetches("one changed", 1)
		f.serves(t, gvs[1:]...)
		fetches("one removed", 0)
		gvs[1].Stale = true
		f.serves(t, gvs[1:]...)
		fetches("one stale", 0)
		time.Sleep(documentLasts)
		fetches("after documentLasts", 48)
		if kept := len(s.documents); kept != 49 {
			t.Errorf("the states of %d documents are kept", kept)
		}
	})
}

// A document that fails affects neither the check nor other documents. What is known of its
// group/version remains, updated by the aggregated form of the index where there is one.
func TestOneDocumentFails(t *testing.T) {
	bad := schema.GroupVersion{Group: "bad.example.com", Version: "v1"}
	for name, c := range map[string]struct {
		code       int
		body, want string
		legacy     bool
	}{
		"other group":      {200, `{"groupVersion":"evil.example.com/v1","resources":[]}`, "describes", false},
		"unavailable":      {503, "", "bad status", false},
		"no JSON":          {200, "x", "decode", false},
		"too large":        {200, strings.Repeat(" ", maxDocument+1), "larger than", false},
		"without v2 index": {500, "", "bad status", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBackend(t, described("apps", "v1", "deployments"), described(bad.Group, bad.Version, "widgets"))
			b.legacy = c.legacy
			broken := func() { b.answer("/apis/bad.example.com/v1", c.code, acceptLegacy, c.body) }
			s := b.source()
			defer s.Close()
			is := func(when string, changed, unread bool, resources ...string) {
				t.Helper()
				check(t, s, changed)
				same(t, s, append([]string{"apps/v1:deployments"}, resources...)...)
				all := s.Unread()
				if unread != (len(all) == 1) || unread && (all[0].GroupVersion != bad || !strings.Contains(all[0].Err.Error(), c.want)) {
					t.Errorf("%s: unread are %v", when, all)
				}
				if _, complete := s.Served(); !complete {
					t.Errorf("%s: not complete", when)
				}
			}
			known := []string{"bad.example.com/v1:widgets"}
			broken()
			if c.legacy {
				is("at first", true, true)
				if gv := s.knownVersions()[bad]; !gv.Unknown {
					t.Errorf("at first: %+v", gv)
				}
			} else {
				is("at first", true, true, known...)
				b.serves(t, described("apps", "v1", "deployments"), described(bad.Group, bad.Version, "gadgets", "widgets"))
				known = append([]string{"bad.example.com/v1:gadgets"}, known...)
				is("changed", true, true, known...)
			}
			b.heal()
			is("good again", true, false, known...)
			broken()
			b.serves(t, described("apps", "v1", "deployments"), described(bad.Group, bad.Version, "widgets"), described("new.example.com", "v1", "things"))
			is("broken again", true, true, "bad.example.com/v1:widgets", "new.example.com/v1:things")
			if gv := s.knownVersions()[bad]; gv.Legacy[0].StorageVersionHash == "" {
				t.Errorf("the description was lost: %+v", gv)
			}
		})
	}
}

// A legacy index does not show changes in a group: its documents are fetched again after
// loneDocumentLasts.
func TestLegacyDocumentsAreFetchedAgain(t *testing.T) {
	b := newBackend(t, described("apps", "v1", "deployments"))
	b.legacy = true
	s := b.source()
	defer s.Close()
	check(t, s, true)
	b.serves(t, described("apps", "v1", "replicasets"))
	check(t, s, false)
	for _, d := range s.documents {
		d.fetched = time.Now().Add(-loneDocumentLasts)
	}
	check(t, s, true)
	same(t, s, "apps/v1:replicasets")
}

// A server gets few requests, with growing pauses, while all its documents fail.
func TestFailingServerGetsFewRequests(t *testing.T) {
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
				// The pauses are 1, 2, 4, 8, 16 and 30 s.
				if asked := f.asked.Load(); asked > 7*(maxFailures+fetchersPerServer) {
					t.Errorf("%d documents were requested in a minute", asked)
				}
				if gvs, _ := s.GroupVersions(); len(gvs) != 120 || len(gvs[119].Legacy) != 1 {
					t.Errorf("%d group/versions are known", len(gvs))
				}
			})
		})
	}
}

// Documents that fail do not delay the others.
func TestManyFailuresBesideGoodDocuments(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &far{fails: func(path string) bool { return strings.HasPrefix(path, "/apis/g0") }} // 100 of 150
		s, _ := farSource(t, f, manyGroups(150)...)
		defer s.Close()
		for range 15 {
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
			t.Errorf("%d were read and %d failed, want 50 and 100", read, unread)
		}
	})
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
			t.Errorf("closing took %v, %d documents were requested", took, asked)
		}
		if err := s.Check(t.Context()); !errors.Is(err, context.Canceled) || f.asked.Load() != asked || changed.Load() != 0 {
			t.Errorf("after Close: %v, %d documents requested, %d changes", err, f.asked.Load(), changed.Load())
		}
		if gvs, known := s.GroupVersions(); known {
			t.Errorf("a part of the discovery is known: %v", gvs)
		}
	})
}
