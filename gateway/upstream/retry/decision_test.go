package retry

import (
	"errors"
	"net/http"
	"testing"

	"portico/gateway/upstream/transport"
)

// A request may be sent again if no server has seen any of it; a safe one also after a
// broken connection, 502, 503, 504, and 429 with Retry-After; none if the client is at
// fault.
func TestAllowed(t *testing.T) {
	t.Parallel()
	answer := func(code int, retryAfter string) Result {
		return Result{Response: &http.Response{StatusCode: code, Header: http.Header{"Retry-After": {retryAfter}}}, Sent: true}
	}
	broken := errors.New("connection reset")
	for name, c := range map[string]struct {
		result       Result
		safe, unsafe bool // whether requests of this kind may be sent again
	}{
		"not sent":          {Result{Err: broken}, true, true},
		"no connection":     {Result{Err: &transport.ConnectError{Err: broken}}, true, true},
		"sent":              {Result{Err: broken, Sent: true}, true, false},
		"stale connection":  {Result{Err: &transport.StaleError{Err: broken}, Sent: true}, true, false},
		"the client's body": {Result{Err: &BodyError{broken}}, false, false},
		"the query":         {Result{Err: &transport.RequestLineError{}}, false, false},
		"200":               {answer(200, ""), false, false},
		"500":               {answer(500, ""), false, false},
		"502":               {answer(502, ""), true, false},
		"503":               {answer(503, "1"), true, false},
		"504":               {answer(504, ""), true, false},
		"429":               {answer(429, ""), false, false},
		"429, later":        {answer(429, "1"), true, false},
	} {
		if Allowed(true, c.result) != c.safe || Allowed(false, c.result) != c.unsafe {
			t.Errorf("%s: safe %v, unsafe %v", name, !c.safe, !c.unsafe)
		}
	}
}
