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
	Nobody  Answerer = "Nobody"  // the client gets an error of the gateway's
)

// Explanation is where a request would go.
type Explanation struct {
	// Request is how the gateway understands it.
	Request Request `json:"request"`
	// Answerer is who would answer, and Reasons are why, in sentences that lead
	// from the path to that.
	Answerer Answerer `json:"answerer"`
	Reasons  []string `json:"reasons"`
	// Code is the status that the client would get of the gateway; 0 where
	// another server, or a handler, decides.
	Code int `json:"code,omitempty"`

	// APIService is what the group/version is registered by; nil if it is not.
	APIService *APIService `json:"apiService,omitempty"`
	// Backend is the server that requests for it go to; nil: none.
	Backend *Backend `json:"backend,omitempty"`
}

// Request is a request as the gateway understands it.
type Request struct {
	Method string `json:"method"`
	Path   string `json:"path"`
	// Verb is what the user has to be allowed.
	Verb string `json:"verb"`
	// IsResource: it is about the resource named below; else about the path.
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
	// Automanaged: the gateway registered it itself, because a server says that it
	// serves the group/version.
	Automanaged bool `json:"automanaged,omitempty"`
	// Backend is the Backend that it is said to lead to; "": none.
	Backend string `json:"backend,omitempty"`
	// Service is namespace/name:port of the Service that it names; "": none.
	Service string `json:"service,omitempty"`
	// Available, Reason and Message are its condition as this gateway sees it.
	Available bool   `json:"available"`
	Reason    string `json:"reason,omitempty"`
	Message   string `json:"message,omitempty"`
	// Freshness of its discovery: Current, Stale, or Unknown if the server was
	// never heard.
	Freshness string `json:"freshness,omitempty"`
}

// Backend is a server behind the gateway.
type Backend struct {
	// Name is that of the Backend, or of the APIService whose Service it is.
	Name string `json:"name"`
	// Policy is what is done with requests to it, every default resolved.
	Policy Policy `json:"policy"`
	// InFlight requests and those that wait, long-running ones not counted.
	InFlight int `json:"inFlight"`
	Queued   int `json:"queued,omitempty"`
	// Panic: so few endpoints are good that ejections are ignored.
	Panic     bool       `json:"panic,omitempty"`
	Endpoints []Endpoint `json:"endpoints"`
	// Pick is the endpoint that the request would go to now, and PickReason why;
	// "" if there is none. With randomness in it, the next request may go to
	// another.
	Pick       string `json:"pick,omitempty"`
	PickReason string `json:"pickReason,omitempty"`
}

// Policy is how requests are sent to a server. Times are in Go's notation.
type Policy struct {
	Balance        backend.Balance `json:"balance,omitempty"`
	Connect        string          `json:"connect,omitempty"`
	ResponseHeader string          `json:"responseHeader,omitempty"`
	Idle           string          `json:"idle,omitempty"`
	// Retries says in words whether the request would be tried again, and when.
	Retries     string `json:"retries,omitempty"`
	Attempts    int    `json:"attempts,omitempty"`
	Concurrent  int    `json:"concurrent,omitempty"`
	Queue       int    `json:"queue,omitempty"`
	HealthCheck string `json:"healthCheck,omitempty"`
	// MaxConnectionAge is how long a connection takes new requests; "": as long as it
	// lasts.
	MaxConnectionAge string `json:"maxConnectionAge,omitempty"`
	// SlowStart says in words how the share of an endpoint grows that comes back; "":
	// it has all of it at once.
	SlowStart string `json:"slowStart,omitempty"`
}

// Endpoint is one endpoint as this gateway sees it.
type Endpoint struct {
	URL    string                `json:"url"`
	State  backend.EndpointState `json:"state,omitempty"`
	Since  *time.Time            `json:"since,omitempty"`
	Weight int                   `json:"weight"`
	// WeightPercent of its weight it has now, while its share grows; 0: all of it.
	WeightPercent float64 `json:"weightPercent,omitempty"`
	// InFlight requests, long-running ones included.
	InFlight  int    `json:"inFlight"`
	LastError string `json:"lastError,omitempty"`
	// Pickable: the request may go to it now, and SharePercent of such requests
	// do, by the weights.
	Pickable     bool    `json:"pickable"`
	SharePercent float64 `json:"sharePercent,omitempty"`
	// Drains says in words what becomes of what is under way, if the weight is 0.
	Drains string `json:"drains,omitempty"`
	// Connections to it that later requests may use.
	Connections *Connections `json:"connections,omitempty"`
}

// Connections are those to an endpoint that later requests may use; HTTP/1.1
// connections that are in use are not among them.
type Connections struct {
	// Idle ones of HTTP/1.1, and Shared ones of HTTP/2, idle or not.
	Idle   int `json:"idle"`
	Shared int `json:"shared"`
	// OldestSince is when the oldest of them was made.
	OldestSince *time.Time `json:"oldestSince,omitempty"`
}
