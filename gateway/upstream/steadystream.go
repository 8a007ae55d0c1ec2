package upstream

import (
	"net/http"
	"slices"
)

// A stream by the steady way tells what one endpoint says, for as long as it lasts:
// so it lasts no longer than that endpoint gets requests while another does. It ends
// at once when the endpoint fails its checks, is ejected, has no weight any more or
// is removed, whether or not it goes on telling; who follows it asks again, and
// comes to another. There is one for each gateway: nothing needs to be spread.

// Streams is the same way for requests whose answers last.
func (w *Steady) Streams() http.RoundTripper {
	return roundTripper(func(req *http.Request) (*http.Response, error) { return w.send(req, true) })
}

// list has an answer end with its endpoint's time, if it is one that shall.
func (a *attempt) list(body *answer) {
	switch {
	case a.follows:
		body.in = &a.e.followed
		body.in.add(body)
		if a.e.drains.Load() || a.u.picks.Load().elsewhere(a.e) {
			a.e.unfollow() // it happened while the request was under way
		}
	case a.watches():
		body.in = &a.e.streams
		body.in.add(body)
		if a.e.drains.Load() {
			a.u.late(a.e)
		}
	}
}

// elsewhere reports whether requests go to others only.
func (p *picks) elsewhere(e *endpoint) bool {
	return len(p.list) > 0 && !slices.ContainsFunc(p.list, func(c candidate) bool { return c.endpoint == e })
}

// unfollow ends what is followed of an endpoint, without waiting.
func (e *endpoint) unfollow() {
	if n := e.followed.count(); n > 0 {
		go e.followed.end(n) // closing an answer may take a while
	}
}
