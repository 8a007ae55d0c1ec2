package serve

import (
	"context"
	"net/http"
)

// Afterwards has rest write what is still to come of a long-running answer, once
// the handler, the router and the filters around them have returned; the header must
// have been written. What comes then is audited, counted and waited for as if the
// handler had written it. It reports false outside of a chain: the caller has to do
// it then itself. rest may panic as a handler may; it is called with nil, to let go of
// what it holds, where a filter has panicked. Afterwards is to be called on the
// request's goroutine, at most once.
//
// A stack is given back by half, and only where less than a quarter of it is in use.
// A watch that waits below all filters, a router and a reverse proxy uses 6 KB and
// so keeps 16 KB for as long as it lasts; one that waits here keeps 8 KB.
func Afterwards(ctx context.Context, rest func(w http.ResponseWriter)) bool {
	x := exchangeFrom(ctx)
	if x == nil {
		return false
	}
	x.rest = rest
	return true
}

// serveLong serves a long-running request and then what the handler has left to do.
func serveLong(next http.HandlerFunc, w http.ResponseWriter, r *http.Request) {
	x := exchangeFrom(r.Context())
	defer x.runRest(nil)
	next(w, r)
	x.runRest(w)
}

func (x *exchange) runRest(w http.ResponseWriter) {
	if rest := x.rest; rest != nil {
		x.rest = nil
		rest(w)
	}
}
