package discovery

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"
)

// acknowledges sends an acknowledgement and returns the status of the answer.
func acknowledges(f *Followers, name string, s State) int {
	w := httptest.NewRecorder()
	f.serve(w, httptest.NewRequest(http.MethodPost, "/apis?"+Acknowledge(name, s), nil))
	return w.Code
}

func joins(f *Followers, name string) *follower {
	return f.join(httptest.NewRequest(http.MethodGet, "/apis?watch=true&"+FollowerParameter+"="+name, nil))
}

// A state is shown once all followers have acknowledged it. One whose stream has ended is waited for, for a while, and so
// is one that acknowledges nothing.
func TestFollowers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := NewFollowers(func() {})
		want := func(latest, want int64) {
			t.Helper()
			if got := f.Shown(latest); got != want {
				t.Errorf("of %d, %d is shown, want %d", latest, got, want)
			}
		}
		want(1, 1)
		a, b := joins(f, "a"), joins(f, "b")
		first := a.sent(1)
		b.sent(1)
		want(1, 0)
		if code := acknowledges(f, "a", *first); code != http.StatusNoContent {
			t.Errorf("an acknowledgement is answered with %d", code)
		}
		want(1, 0)
		acknowledges(f, "b", *first)
		want(1, 1)
		second := a.sent(2)
		want(2, 1)
		b.sent(2)
		acknowledges(f, "a", *second)
		acknowledges(f, "b", State{Process: second.Process, Serial: 99})
		want(3, 2)
		for name, s := range map[string]State{"a": {Process: "another", Serial: 2}, "unknown": *second} {
			if code := acknowledges(f, name, s); code != http.StatusGone {
				t.Errorf("an acknowledgement of %s for %v is answered with %d", name, s, code)
			}
		}

		a.sent(3)
		b.sent(3)
		acknowledges(f, "a", State{Process: second.Process, Serial: 3})
		time.Sleep(followerPatience)
		want(3, 2)
		time.Sleep(time.Millisecond)
		want(3, 3) // b is stopped
		b.leave()
		b = joins(f, "b")
		want(3, 2) // it is back
		b.sent(3)
		acknowledges(f, "b", State{Process: second.Process, Serial: 3})
		want(3, 3)
		b.leave()
		a.sent(4)
		acknowledges(f, "a", State{Process: second.Process, Serial: 4})
		time.Sleep(followerGrace)
		want(4, 3)
		time.Sleep(time.Millisecond)
		want(4, 4)
	})
}
