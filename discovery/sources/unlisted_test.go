package sources

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico/discovery"
)

// A group/version that the server does not list is fetched if an APIService registers it. A 404
// for it is no failure.
func TestUnlisted(t *testing.T) {
	b := newBackend(t, described("custom.example.com", "v1", "things"), described("custom.example.com", "v2", "gadgets"))
	b.answer("/apis", 200, "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList", `{"items":[]}`)
	s := b.source()
	check(t, s, true)
	same(t, s)
	s.Want([]schema.GroupVersion{{Group: "custom.example.com", Version: "v1"}, {Group: "custom.example.com", Version: "v2"}, {Group: "none.example.com", Version: "v1"}})
	check(t, s, true)
	same(t, s, "custom.example.com/v1:things", "custom.example.com/v2:gadgets")
	if _, whole := s.Served(); !whole || len(s.Unread()) != 0 {
		t.Errorf("what it does not have is missed: whole %v, unread %v", whole, s.Unread())
	}
	b.forget()
	check(t, s, false)
	if asked := b.forget(); asked != "/api 304, /apis 200" {
		t.Errorf("an unchanged server was asked %s", asked)
	}
	s.Want(nil)
	check(t, s, true)
	same(t, s)
}

// A wanted group/version is known only with its document, and is marked as unlisted.
func TestExpectedIsNotListed(t *testing.T) {
	b := newBackend(t, described("old.example.com", "v1", "things"))
	good := b.snapshot
	b.serves(t, described("old.example.com", "v1", "things"), described("more.example.com", "v1", "widgets"))
	all := b.snapshot
	list := func(s *discovery.Snapshot) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.snapshot = s
	}
	list(good)
	s := b.source()
	more, old := schema.GroupVersion{Group: "more.example.com", Version: "v1"}, schema.GroupVersion{Group: "old.example.com", Version: "v1"}
	if _, known := s.Lists(old); known {
		t.Error("what was not asked says what it lists")
	}
	s.Want([]schema.GroupVersion{more})
	b.answer("/apis/more.example.com/v1", 403, "text/plain", "forbidden")
	is := func(when string, changed, listed, unlisted bool, unread int, want ...string) {
		t.Helper()
		check(t, s, changed)
		same(t, s, want...)
		if gvs, _ := s.GroupVersions(); len(gvs) != len(want) {
			t.Errorf("%s: %+v", when, gvs)
		}
		if got, known := s.Lists(more); got != listed || !known {
			t.Errorf("%s: listed %v, known %v", when, got, known)
		}
		if got, _ := s.Lists(old); !got {
			t.Errorf("%s: the other is not listed", when)
		}
		if got := s.knownVersions()[more].Unlisted; got != unlisted || s.knownVersions()[old].Unlisted {
			t.Errorf("%s: unlisted %v", when, got)
		}
		if got := len(s.Unread()); got != unread {
			t.Errorf("%s: %d unread", when, got)
		}
	}
	is("while it is refused", true, false, false, 1, "old.example.com/v1:things")
	b.override["/apis/more.example.com/v1"] = func(w http.ResponseWriter, r *http.Request) {
		discovery.NewHandler(discovery.Fixed(all)).ServeHTTP(w, r)
	}
	is("when it was read", true, false, true, 0, "more.example.com/v1:widgets", "old.example.com/v1:things")
	list(all)
	is("when it is listed", true, true, false, 0, "more.example.com/v1:widgets", "old.example.com/v1:things")
	list(good)
	is("when it is listed no more", true, false, true, 0, "more.example.com/v1:widgets", "old.example.com/v1:things")
}

// Refetch fetches a document regardless of its last result, also while other documents fail and
// while it is being fetched.
func TestReadAgain(t *testing.T) {
	b := newBackend(t, described("old.example.com", "v1", "things"), described("broken.example.com", "v1", "parts"))
	b.answer("/apis/broken.example.com/v1", 500, "text/plain", "")
	s := b.source()
	more, calls := schema.GroupVersion{Group: "more.example.com", Version: "v1"}, 0
	document := func(w http.ResponseWriter, there bool) {
		if calls++; !there {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		_, _ = w.Write([]byte(`{"groupVersion":"more.example.com/v1","resources":[{"name":"widgets"}]}`))
	}
	serve := func(h http.HandlerFunc) {
		b.mu.Lock()
		defer b.mu.Unlock()
		calls, b.override["/apis/more.example.com/v1"] = 0, h
	}
	look := func() { // once, without waiting until pauses are over
		t.Helper()
		if err := s.Check(t.Context()); err != nil {
			t.Fatal(err)
		}
		eventually(t, "all is read", func() bool { return idle(s) })
	}
	serve(func(w http.ResponseWriter, _ *http.Request) { document(w, false) })
	s.Want([]schema.GroupVersion{more})
	look()
	serve(func(w http.ResponseWriter, _ *http.Request) { document(w, true) })
	look()
	same(t, s, "broken.example.com/v1:parts", "old.example.com/v1:things")
	s.Refetch(more)
	look()
	same(t, s, "broken.example.com/v1:parts", "more.example.com/v1:widgets", "old.example.com/v1:things")
	if calls != 1 {
		t.Errorf("it was read %d times", calls)
	}

	s.Want(nil)
	look()
	s.Want([]schema.GroupVersion{more})
	serve(func(w http.ResponseWriter, _ *http.Request) {
		if calls == 0 {
			s.Refetch(more)
		}
		document(w, calls > 0)
	})
	look()
	same(t, s, "broken.example.com/v1:parts", "more.example.com/v1:widgets", "old.example.com/v1:things")
}

// Changes of unlisted group/versions show within a minute.
func TestUnlistedIsReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &far{}
		s, _ := farSource(t, f, described("old.example.com", "v1", "things"))
		defer s.Close()
		s.Want([]schema.GroupVersion{{Group: "more.example.com", Version: "v1"}})
		if _, err := settle(t, s); err != nil {
			t.Fatal(err)
		}
		same(t, s, "old.example.com/v1:things")
		list, more := f.handler, &far{}
		farSource(t, more, described("more.example.com", "v1", "widgets"))
		f.handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.HasPrefix(r.URL.Path, "/apis/more.") {
				more.handler.ServeHTTP(w, r)
				return
			}
			list.ServeHTTP(w, r)
		})
		if _, err := settle(t, s); err != nil {
			t.Fatal(err)
		}
		same(t, s, "old.example.com/v1:things")
		time.Sleep(loneDocumentLasts)
		if _, err := settle(t, s); err != nil {
			t.Fatal(err)
		}
		same(t, s, "more.example.com/v1:widgets", "old.example.com/v1:things")
	})
}
