package registration

import (
	"bytes"
	"testing"
	"time"

	"portico/apiservice/backend"
	"portico/apiservice/explain"
)

func TestPrintExplanation(t *testing.T) {
	now := time.Now()
	before := now.Add(-3 * time.Minute)
	server := explain.Explanation{
		Request:  explain.Request{Method: "GET", Path: "/apis/g/v1/namespaces/ns/things/x/log", Verb: "get", IsResource: true, Group: "g", Version: "v1", Resource: "things", Subresource: "log", Namespace: "ns", Name: "x", LongRunning: true},
		Answerer: explain.Server, Reasons: []string{"one", "two\nlines"},
		APIService: &explain.APIService{Name: "v1.g", Available: true},
		Backend: &explain.Backend{Name: "things", InFlight: 3, Queued: 2, Panic: true, Pick: "https://a:1", PickReason: "fewest requests", Policy: explain.Policy{SlowStart: "from 10%", MaxConnectionAge: "10m0s"},
			Endpoints: []explain.Endpoint{{URL: "https://a:1", State: backend.EndpointHealthy, Weight: 1, WeightPercent: 40, InFlight: 3, Pickable: true}, {URL: "https://b:1", State: backend.EndpointEjected, Weight: 1, LastError: "EOF", LastErrorTime: &before}, {URL: "https://c:1", State: backend.EndpointDraining, InFlight: 2, Drains: "its weight is 0"}}},
	}
	for _, tc := range []struct {
		name string
		e    explain.Explanation
		wide bool
		want string
	}{
		{"a server behind", server, false, `Request:     GET /apis/g/v1/namespaces/ns/things/x/log
Means:       get things/log of g/v1 named x in namespace ns, long-running
Result:      goes to https://a:1
APIService:  v1.g, available
Backend:     things, 3 requests in flight, 2 waiting, ejections are ignored because too few endpoints are healthy

Because:
  - one
  - two lines

ENDPOINT      STATE      WEIGHT        IN FLIGHT   PICKABLE     LAST ERROR
https://a:1   Healthy    1 (40% now)   3           picked       <none>
https://b:1   Ejected    1             0           no           EOF (3m ago)
https://c:1   Draining   0             2           no, drains   <none>
`},
		{"the policy of a server", explain.Explanation{
			Request: explain.Request{Method: "GET", Path: "/x", Verb: "get"}, Answerer: explain.Server, Reasons: []string{"one"},
			Backend: &explain.Backend{Name: "things", Pick: "https://a:1", Policy: server.Backend.Policy},
		}, true, `Request:     GET /x
Means:       get a path that is not of a resource
Result:      goes to https://a:1
Backend:     things, 0 requests in flight
Slow start:  from 10%
Connections: take new requests for 10m0s

Because:
  - one
`},
		{"nobody", explain.Explanation{
			Request:  explain.Request{Method: "POST", Path: "/x", Verb: "post"},
			Answerer: explain.Nobody, Code: 503, Reasons: []string{"it is away"},
			APIService: &explain.APIService{Name: "v1.g", Service: "ns/s:443", Reason: "R", Message: "M"},
		}, false, `Request:     POST /x
Means:       post a path that is not of a resource
Result:      the client gets 503
APIService:  v1.g, service ns/s:443, not available: R: M

Because:
  - it is away
`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var out bytes.Buffer
			if err := printExplanation(&out, &tc.e, tc.wide, now); err != nil {
				t.Fatal(err)
			}
			if got := out.String(); got != tc.want {
				t.Errorf("got\n%s\nwant\n%s", got, tc.want)
			}
		})
	}
}
