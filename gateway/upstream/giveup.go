package upstream

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"portico/resource"
)

// An endpoint that takes requests and never answers fails nobody who gives up
// before the time for the header of an answer is over: the client's own, shorter
// deadline ends the request, or it goes away. That alone says nothing of the endpoint. A
// request may be slow wherever it is sent, and an endpoint that works on one may
// get no others meanwhile, because it has more to do. So what was given up is
// compared with what others do. It counts against an endpoint
//
//   - if it is safe and short, was sent whole, and waited for patience or longer,
//   - once for each time that another endpoint answered the same request within
//     patience afterwards,
//   - and until the endpoint answers anything, whatever that is. Its active checks
//     do not count: what answers those may be all that still works.
//
// As many in a row as there may be local errors eject it. Clients that are
// impatient with all endpoints alike eject none.

const (
	// patience is how long a request must have waited to count when it is given
	// up, and how soon another endpoint must have answered it.
	patience = 5 * time.Second
	// maxDoubts is how many different requests are remembered for one server that
	// were given up, and doubtLife how long after the last time.
	maxDoubts = 16
	doubtLife = 2 * time.Minute
)

// GivenUpError is why an endpoint was ejected that clients gave up on.
type GivenUpError struct{ Requests int }

func (e *GivenUpError) Error() string {
	return fmt.Sprintf("%d requests were given up after %v and longer without an answer, which others answered", e.Requests, patience)
}

// doubts are the requests that were given up, and what others made of them.
// Safe for concurrent use.
type doubts struct {
	open atomic.Int32 // how many there are: mostly none
	mu   sync.Mutex
	list []doubt // the oldest first
}

// doubt is a request that was given up at one endpoint.
type doubt struct {
	e     *endpoint
	likes uint64 // which request: those that are alike
	// givenUp is how often it was in a row, and answered how often others answered
	// it since.
	givenUp, answered int
	last              time.Time
}

// add takes down that a request was given up.
func (d *doubts) add(e *endpoint, likes uint64, now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.forget(func(x *doubt) bool { return now.Sub(x.last) > doubtLife })
	at := slices.IndexFunc(d.list, func(x doubt) bool { return x.e == e && x.likes == likes })
	one := doubt{e: e, likes: likes}
	if at >= 0 {
		one = d.list[at]
		d.list = slices.Delete(d.list, at, at+1)
	} else if len(d.list) == maxDoubts {
		d.list = slices.Delete(d.list, 0, 1)
	}
	one.givenUp, one.last = one.givenUp+1, now
	d.list = append(d.list, one)
	d.open.Store(int32(len(d.list)))
}

// answered takes down that an endpoint answered. If it did so soon, and well, that
// tells of others; it returns those of them of which enough is known.
func (d *doubts) answered(e *endpoint, likes uint64, soon bool, enough int) (hung []*endpoint) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.forget(func(x *doubt) bool { return x.e == e })
	if !soon || enough <= 0 {
		return nil
	}
	for i := range d.list {
		if d.list[i].likes == likes {
			d.list[i].answered++
		}
	}
	known := map[*endpoint]int{}
	for _, x := range d.list {
		known[x.e] += min(x.givenUp, x.answered)
	}
	for e, n := range known {
		if n >= enough {
			hung = append(hung, e)
			d.forget(func(x *doubt) bool { return x.e == e })
		}
	}
	return hung
}

// forget drops some; mu is held.
func (d *doubts) forget(which func(*doubt) bool) {
	d.list = slices.DeleteFunc(d.list, func(x doubt) bool { return which(&x) })
	d.open.Store(int32(len(d.list)))
}

// gaveUp takes into account that the client gave the request up, or that its time
// was over. By default that is as long as an answer may take to begin, and then it
// is the server's failure like that: nobody else would ever count it.
func (a *attempt) gaveUp(p progress) {
	if p == sent && a.whole && errors.Is(a.client().Err(), context.DeadlineExceeded) {
		a.u.failedLocally(a.e, errHeader)
		return
	}
	if p != sent || a.kind != short || a.waiting == nil || time.Since(a.waiting.began) < patience {
		return
	}
	a.u.doubts.add(a.e, likesOf(a.req), time.Now())
	a.u.broken(a.e.URL)
}

// resolve has the doubts know that the endpoint answered.
func (a *attempt) resolve(res *http.Response) {
	if a.u.doubts.open.Load() == 0 {
		return
	}
	soon := a.kind == short && a.waiting != nil && res.StatusCode < http.StatusInternalServerError && time.Since(a.waiting.began) < patience
	enough := a.u.policy.Load().ConsecutiveLocalErrors
	for _, e := range a.u.doubts.answered(a.e, likesOf(a.req), soon, enough) {
		e.errors.Add(uint64(enough))
		a.u.eject(e, false, &GivenUpError{enough})
	}
}

// likesOf is the same for requests that take about as long: for one object, all
// that get one of the same resource; otherwise the same path and query.
func likesOf(req *http.Request) uint64 {
	if act := resource.ActionFrom(req.Context()); act != nil && act.IsResource && act.Verb == "get" && act.Subresource == "" {
		return hashOf(act.Group + "/" + act.Version + "/" + act.Resource)
	}
	return hashOf(req.Method + " " + req.URL.Path + "?" + req.URL.RawQuery)
}
