// Package explain has the types of the answer to GET /debug/route?path=/apis/…&verb=list:
// where a gateway would send a request, and why.
//
// It needs the right to get the non-resource path /debug/route. The answer is the state
// of one gateway; another may see an endpoint differently.
//
// Runs in: gateway, and the commands that ask it.
package explain

import (
	"time"

	"portico/apiservice/backend"
)

// Path is the path of the request, PathParameter and VerbParameter its query
// parameters. The path is that of the request, with its own query where it
// has one (escaped), and is required. The verb is one of Kubernetes or an HTTP
// method; default get.
const (
	Path          = "/debug/route"
	PathParameter = "path"
	VerbParameter = "verb"
)

// Answerer is the server that answers a request.
type Answerer string

const (
	Gateway Answerer = "Gateway" // the gateway itself
	Server  Answerer = "Server"  // a server behind it
	Nobody  Answerer = "Nobody"  // the gateway answers with an error
)

// Explanation is where a request would go.
type Explanation struct {
	// Request is the parsed request.
	Request Request `json:"request"`
	// Answerer would answer; Reasons say why, in the order of the decisions.
	Answerer Answerer `json:"answerer"`
	Reasons  []string `json:"reasons"`
	// Code is the status of the gateway's answer; 0 if a server or a handler decides.
	Code int `json:"code,omitempty"`

	// APIService registers the group/version; nil: it is not registered.
	APIService *APIService `json:"apiService,omitempty"`
	// Backend is the server of the route; nil: none.
	Backend *Backend `json:"backend,omitempty"`
}

// Request is the parsed request.
type Request struct {
	Method string `json:"method"`
	Path   string `json:"path"`
	// Verb is the verb that is authorized.
	Verb string `json:"verb"`
	// IsResource: the fields below name a resource; else the path is authorized.
	IsResource  bool   `json:"isResource"`
	Group       string `json:"group,omitempty"`
	Version     string `json:"version,omitempty"`
	Resource    string `json:"resource,omitempty"`
	Subresource string `json:"subresource,omitempty"`
	Namespace   string `json:"namespace,omitempty"`
	Name        string `json:"name,omitempty"`
	// LongRunning: it has no deadline.
	LongRunning bool `json:"longRunning,omitempty"`
}

// APIService is the registration of a group/version.
type APIService struct {
	Name string `json:"name"`
	// Automanaged: the gateway registered it, because a server lists the group/version.
	Automanaged bool `json:"automanaged,omitempty"`
	// Backend is the Backend that its annotation names; "": none.
	Backend string `json:"backend,omitempty"`
	// Service is namespace/name:port of the Service that it names; "": none.
	Service string `json:"service,omitempty"`
	// Available, Reason and Message are its condition as this gateway sees it.
	Available bool   `json:"available"`
	Reason    string `json:"reason,omitempty"`
	Message   string `json:"message,omitempty"`
	// Freshness of its discovery: Current, Stale, or Unknown if it was never read.
	Freshness string `json:"freshness,omitempty"`
}

// Backend is a server behind the gateway.
type Backend struct {
	// Name is the name of the Backend, or of the APIService with a Service of its own.
	Name string `json:"name"`
	// Policy is its policy, with all defaults.
	Policy Policy `json:"policy"`
	// InFlight and Queued requests, without long-running ones.
	InFlight int `json:"inFlight"`
	Queued   int `json:"queued,omitempty"`
	// Panic: ejections are ignored because few endpoints are healthy.
	Panic     bool       `json:"panic,omitempty"`
	Endpoints []Endpoint `json:"endpoints"`
	// Pick is the endpoint that the request would go to now, and PickReason why; "": none.
	// The choice may be random.
	Pick       string `json:"pick,omitempty"`
	PickReason string `json:"pickReason,omitempty"`
}

// Policy is how requests are sent to a server. Times are in Go's notation.
type Policy struct {
	Balance        backend.Balance `json:"balance,omitempty"`
	Connect        string          `json:"connect,omitempty"`
	ResponseHeader string          `json:"responseHeader,omitempty"`
	Idle           string          `json:"idle,omitempty"`
	// Retries says whether and when the request would be retried.
	Retries     string `json:"retries,omitempty"`
	Attempts    int    `json:"attempts,omitempty"`
	Concurrent  int    `json:"concurrent,omitempty"`
	Queue       int    `json:"queue,omitempty"`
	HealthCheck string `json:"healthCheck,omitempty"`
	// MaxConnectionAge is how long a connection takes new requests; "": unlimited.
	MaxConnectionAge string `json:"maxConnectionAge,omitempty"`
	// SlowStart says how the share of an endpoint that comes back grows; "": at once.
	SlowStart string `json:"slowStart,omitempty"`
}

// Endpoint is one endpoint as this gateway sees it.
type Endpoint struct {
	URL    string                `json:"url"`
	State  backend.EndpointState `json:"state,omitempty"`
	Since  *time.Time            `json:"since,omitempty"`
	Weight int                   `json:"weight"`
	// WeightPercent is the part of its weight during slow start; 0: all of it.
	WeightPercent float64 `json:"weightPercent,omitempty"`
	// InFlight requests, long-running ones included.
	InFlight  int    `json:"inFlight"`
	LastError string `json:"lastError,omitempty"`
	// LastErrorTime is when LastError was seen first.
	LastErrorTime *time.Time `json:"lastErrorTime,omitempty"`
	// Pickable: the request may go to it now; SharePercent of such requests do, by weight. No
	// endpoint is if the request is not sent.
	Pickable     bool    `json:"pickable"`
	SharePercent float64 `json:"sharePercent,omitempty"`
	// Drains says what happens to requests in flight if the weight is 0.
	Drains string `json:"drains,omitempty"`
}
