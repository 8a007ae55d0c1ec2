package upstream

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"portico/resource"
)

// An endpoint that takes requests and never answers fails nobody at once: the time of
// each request has to pass, or its client gives it up. That alone says nothing of the
// endpoint. A request may be slow wherever it is sent, and an endpoint that works on
// one may get no others meanwhile, because it has more to do. So one rule judges all
// that is not answered, whoever's time was over:
//
//	An endpoint is taken for hung if others answered the very same reads of objects
//	ten times as soon, as often as there may be local errors, while it answered
//	nothing.
//
// The very same is what one user reads by one path and query of one that serves
// objects: that takes about as long wherever it is asked. What is written, or is sent
// with a body, may be what makes it slow, and a REST server may have its clients wait
// for news; so of those nothing follows, and an endpoint that hangs and gets nothing
// else is found by its checks only. Better that than to take a healthy one from
// everybody for what one client asks of it.
//
// That it answers its active checks does not count: what answers those may be all that
// still works.

const (
	// patience is how long a request must have waited to count when its client gives
	// it up.
	patience = 5 * time.Second
	// sooner is how many times as soon another endpoint must have answered it.
	sooner = 10
	// maxDoubts is how many different requests are remembered for one server that
	// were given up, and doubtLife how long after the last time.
	maxDoubts = 16
	doubtLife = 2 * time.Minute
)

// GivenUpError is why an endpoint was ejected that did not answer what others did.
type GivenUpError struct{ Requests int }

func (e *GivenUpError) Error() string {
	return fmt.Sprintf("%d requests were given up without an answer, which others answered at once", e.Requests)
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
	// waited is the shortest time that it was waited for.
	waited time.Duration
	// givenUp is how often it was in a row, and answered how often others answered
	// it since, so much sooner.
	givenUp, answered int
	last              time.Time
}

// add takes down that a request was given up after a time.
func (d *doubts) add(e *endpoint, likes uint64, waited time.Duration, now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.forget(func(x *doubt) bool { return now.Sub(x.last) > doubtLife })
	at := slices.IndexFunc(d.list, func(x doubt) bool { return x.e == e && x.likes == likes })
	one := doubt{e: e, likes: likes, waited: waited}
	if at >= 0 {
		one = d.list[at]
		d.list = slices.Delete(d.list, at, at+1)
	} else if len(d.list) == maxDoubts {
		d.list = slices.Delete(d.list, 0, 1)
	}
	one.givenUp, one.waited, one.last = one.givenUp+1, min(one.waited, waited), now
	d.list = append(d.list, one)
	d.open.Store(int32(len(d.list)))
}

// hears takes down that an endpoint answered.
func (d *doubts) hears(e *endpoint) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.forget(func(x *doubt) bool { return x.e == e })
}

// compare takes down that an endpoint answered well after a time, which tells of
// others; it returns those of them of which enough is known.
func (d *doubts) compare(likes uint64, took time.Duration, enough int) (hung []*endpoint) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := range d.list {
		if x := &d.list[i]; x.likes == likes && took*sooner <= x.waited {
			x.answered++
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
// was over.
func (a *attempt) gaveUp(p progress) {
	if p != sent {
		return
	}
	over := a.whole && errors.Is(a.client().Err(), context.DeadlineExceeded)
	if over {
		a.e.errors.Add(1)
	}
	if a.waiting != nil && time.Since(a.waiting.began) >= patience {
		a.doubt()
	} else if over {
		a.u.broken(a.e.URL)
	}
}

// unanswered takes into account that the answer did not begin in its time.
func (a *attempt) unanswered(p progress) {
	a.e.errors.Add(1)
	if p == sent {
		a.doubt()
	} else {
		a.u.broken(a.e.URL)
	}
}

// doubt has the endpoint compared with others.
func (a *attempt) doubt() {
	if likes, ok := a.likes(); ok {
		a.u.doubts.add(a.e, likes, time.Since(a.waiting.began), time.Now())
	}
	a.u.broken(a.e.URL)
}

// resolve has the doubts know that the endpoint answered.
func (a *attempt) resolve(res *http.Response) {
	if a.u.doubts.open.Load() == 0 {
		return
	}
	a.u.doubts.hears(a.e)
	enough := a.u.policy.Load().ConsecutiveLocalErrors
	likes, ok := a.likes()
	if !ok || enough <= 0 || res.StatusCode >= http.StatusInternalServerError {
		return
	}
	for _, e := range a.u.doubts.compare(likes, time.Since(a.waiting.began), enough) {
		e.errors.Add(uint64(enough))
		a.u.eject(e, false, &GivenUpError{enough})
	}
}

// likes is the same for requests that take about as long; ok is false if there is
// nothing to compare the request with.
func (a *attempt) likes() (id uint64, ok bool) {
	act := resource.ActionFrom(a.client())
	if a.waiting == nil || a.kind != short || a.u.plain || hasBody(a.req) || act == nil || !act.IsResource || act.Subresource != "" || act.Verb != "get" && act.Verb != "list" {
		return 0, false
	}
	user := ""
	if act.User != nil {
		user = act.User.Name
	}
	return maphash.String(a.u.seed, a.req.Method+" "+a.req.URL.Path+"?"+a.req.URL.RawQuery+" "+user), true
}
