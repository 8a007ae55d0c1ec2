package sources

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

var more, old = schema.GroupVersion{Group: "more.example.com", Version: "v1"}, schema.GroupVersion{Group: "old.example.com", Version: "v1"}

const moreDocument = `{"groupVersion":"more.example.com/v1","resources":[{"name":"widgets"}]}`

// A group/version that the server does not list is fetched if an APIService registers it, is known only
// with its document, and is marked as unlisted. A 404 for it is no failure.
func TestUnlisted(t *testing.T) {
	b := newBackend(t, described(old.Group, "v1", "things"))
	s := b.source()
	defer s.Close()
	if _, known := s.Lists(old); known {
		t.Error("the index is known before the first check")
	}
	check(t, s, true)
	is := func(when string, changed, listed, unlisted bool, unread int, want ...string) {
		t.Helper()
		check(t, s, changed)
		same(t, s, want...)
		if got, known := s.Lists(more); got != listed || !known {
			t.Errorf("%s: listed %v, known %v", when, got, known)
		}
		if got := s.knownVersions()[more].Unlisted; got != unlisted || s.knownVersions()[old].Unlisted {
			t.Errorf("%s: unlisted %v", when, got)
		}
		if _, complete := s.Served(); len(s.Unread()) != unread || !complete {
			t.Errorf("%s: unread %v, complete %v", when, s.Unread(), complete)
		}
	}
	const both, one = "more.example.com/v1:widgets", "old.example.com/v1:things"
	s.Want([]schema.GroupVersion{more, {Group: "none.example.com", Version: "v1"}})
	b.answer("/apis/more.example.com/v1", 403, "text/plain", "forbidden")
	is("refused", true, false, false, 1, one)
	b.answer("/apis/more.example.com/v1", 200, acceptLegacy, moreDocument)
	is("read", true, false, true, 0, both, one)
	b.requests()
	is("unchanged", false, false, true, 0, both, one)
	if asked := b.requests(); asked != "/api 304, /apis 304" {
		t.Errorf("requests to an unchanged server: %s", asked)
	}
	b.heal()
	b.serves(t, described(old.Group, "v1", "things"), described(more.Group, "v1", "widgets"))
	is("listed", true, true, false, 0, both, one)
	b.answer("/apis/more.example.com/v1", 200, acceptLegacy, moreDocument)
	b.serves(t, described(old.Group, "v1", "things"))
	is("no longer listed", true, false, true, 0, both, one)
	s.Want(nil)
	is("no longer registered", true, false, false, 0, one)
}

// Refetch fetches a document regardless of its last result, also while other documents fail and while
// it is being fetched.
func TestRefetch(t *testing.T) {
	b := newBackend(t, described(old.Group, "v1", "things"), described("broken.example.com", "v1", "parts"))
	b.answer("/apis/broken.example.com/v1", 500, "text/plain", "")
	s := b.source()
	defer s.Close()
	const broken, fetched, thing = "broken.example.com/v1:parts", "more.example.com/v1:widgets", "old.example.com/v1:things"
	run := func() { // without ending the pause after failures
		t.Helper()
		if done := s.startFetching(); done != nil {
			<-done
		}
	}
	check(t, s, true)
	s.Want([]schema.GroupVersion{more})
	check(t, s, false)
	b.answer("/apis/more.example.com/v1", 200, acceptLegacy, moreDocument)
	run()
	same(t, s, broken, thing)
	s.Refetch(more)
	b.requests()
	run()
	same(t, s, broken, fetched, thing)
	if asked := b.requests(); asked != "/apis/more.example.com/v1 200" {
		t.Errorf("requests %s", asked)
	}

	s.Want(nil)
	run()
	s.Want([]schema.GroupVersion{more})
	calls := 0
	b.handle("/apis/more.example.com/v1", func(w http.ResponseWriter, r *http.Request) {
		if calls++; calls == 1 {
			s.Refetch(more)
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write([]byte(moreDocument))
	})
	run()
	same(t, s, broken, fetched, thing)
}

// Changes of an unlisted group/version are seen after loneDocumentLasts.
func TestUnlistedIsFetchedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &far{}
		s, _ := farSource(t, f, described(old.Group, "v1", "things"))
		defer s.Close()
		s.Want([]schema.GroupVersion{more})
		check(t, s, true)
		same(t, s, "old.example.com/v1:things")
		f.unlisted = described(more.Group, "v1", "widgets")
		check(t, s, false)
		time.Sleep(loneDocumentLasts)
		check(t, s, true)
		same(t, s, "more.example.com/v1:widgets", "old.example.com/v1:things")
	})
}
