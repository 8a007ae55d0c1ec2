package backend

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Group, Version and GroupVersion are where Backends are served.
const (
	Group   = "gateway.portico.dev"
	Version = "v1alpha1"
)

// GroupVersion is Group and Version.
func GroupVersion() schema.GroupVersion { return schema.GroupVersion{Group: Group, Version: Version} }

// Backend is a server behind the gateway: one or more endpoints that answer alike, how they are
// trusted, which of their API groups are registered, and the policy of requests to them. The
// right to write Backends is worth as much as cluster-admin: the gateway, which servers trust to
// name users, connects to the addresses that they contain.
type Backend struct {
	metav1.TypeMeta `json:",inline"`
	// Standard object's metadata. Backends have no namespace. An APIService without spec.service
	// leads to the Backend that its annotation gateway.portico.dev/backend names.
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is where the server is and how requests are sent to it. Either endpoints or service is set.
	Spec Spec `json:"spec,omitempty"`
	// status is what the elected gateway sees of the server. It is read-only.
	Status Status `json:"status,omitempty,omitzero"`
}

// BackendList is a list of Backends.
type BackendList struct {
	metav1.TypeMeta `json:",inline"`
	// Standard list metadata.
	metav1.ListMeta `json:"metadata,omitempty"`

	// items are the Backends.
	Items []Backend `json:"items"`
}

// Spec is where a server is and how requests are sent to it. Either endpoints or service is set.
type Spec struct {
	// endpoints are the addresses of the server, 256 at most.
	// +listType=map
	// +listMapKey=url
	// +patchStrategy=merge
	// +patchMergeKey=url
	Endpoints []Endpoint `json:"endpoints,omitempty" patchStrategy:"merge" patchMergeKey:"url"`
	// service names a Service in the core server; its ready addresses are the endpoints. An
	// APIService that names the same Service and port is served under the policy of this Backend;
	// of several Backends, the first by name.
	Service *Service `json:"service,omitempty"`
	// tls is how endpoints are verified, and the certificate shown to them. For https endpoints
	// and services only. Default: the CAs of the gateway's host, and the gateway's front-proxy
	// certificate; with a service that an APIService names as well, the caBundle or
	// insecureSkipTLSVerify of that APIService, of several the first by name.
	TLS *TLS `json:"tls,omitempty"`

	// autoRegister makes APIServices for API groups that the server lists. They are deleted with
	// the Backend. Without it, only APIServices of users lead to the server, by their annotation
	// gateway.portico.dev/backend.
	AutoRegister *AutoRegister `json:"autoRegister,omitempty"`
	// rest makes an API of a server without Kubernetes discovery that has an OpenAPI 3 document.
	// Not together with autoRegister, and not for a Backend that the gateway starts with.
	REST *REST `json:"rest,omitempty"`

	// balance is the load balancing policy. LeastRequest chooses, of two random endpoints, the
	// one with fewer requests in flight for its weight; RoundRobin chooses in turn, by weight;
	// ConsistentHash sends a user to the same endpoint while it is healthy, without slowStart.
	// Default LeastRequest.
	Balance Balance `json:"balance,omitempty"`
	// healthCheck is the active check of each endpoint.
	HealthCheck *HealthCheck `json:"healthCheck,omitempty"`
	// outlierDetection ejects endpoints by the results of requests to them. It never ejects the
	// last one.
	OutlierDetection *OutlierDetection `json:"outlierDetection,omitempty"`
	// slowStart increases gradually the share of requests of an endpoint that comes back, or is
	// added beside others.
	SlowStart *SlowStart `json:"slowStart,omitempty"`
	// panicThresholdPercent: while fewer than this share of the endpoints get requests, ejections
	// are ignored, so that the others are not overloaded. Endpoints that fail their active checks
	// stay out. 0 turns it off. Default 50.
	PanicThresholdPercent *int32 `json:"panicThresholdPercent,omitempty"`
	// timeouts limit one attempt to send a request.
	Timeouts *Timeouts `json:"timeouts,omitempty"`
	// retries limit the load that retries add. A request of which the server saw nothing is
	// retried on another endpoint whatever its verb; a safe request also if the connection broke,
	// or if the answer was 502, 503, 504, or 429 with Retry-After. Nothing is retried after a
	// part of the answer was sent to the client.
	Retries *Retries `json:"retries,omitempty"`
	// limits bound requests in flight to the server, without long-running ones such as watches.
	// Each gateway counts for itself.
	Limits *Limits `json:"limits,omitempty"`
}

// Endpoint is one address of a server.
type Endpoint struct {
	// url is https://host:port, unix:///path of a socket, or http://host:port (plain text, only
	// without tls; for REST servers, since a server reached by http cannot verify users).
	// The default port is 443, or 80 for http. A host name is resolved for every connection; all
	// of its addresses are one endpoint with one state.
	URL string `json:"url"`
	// weight is the endpoint's share of requests, 0 to 1000. 0 drains it: it gets no new
	// requests, requests in flight finish, and its watches are ended one after the other within
	// 30s if another endpoint can take them. Default 1.
	Weight *int32 `json:"weight,omitempty"`
}

// Service names a Service in the core server.
type Service struct {
	// namespace of the Service.
	Namespace string `json:"namespace"`
	// name of the Service.
	Name string `json:"name"`
	// port is the port number of the Service. Default 443.
	Port *int32 `json:"port,omitempty"`
}

// TLS is how endpoints are verified, and the certificate shown to them.
type TLS struct {
	// caBundle is PEM of the CAs of the endpoints' certificates. Default: the CAs of the
	// gateway's host.
	CABundle []byte `json:"caBundle,omitempty"`
	// serverName is the name in the endpoints' certificates. Default: the host of each endpoint's
	// URL; for a service, name.namespace.svc.
	ServerName string `json:"serverName,omitempty"`
	// insecureSkipVerify accepts any certificate. Not together with caBundle.
	InsecureSkipVerify bool `json:"insecureSkipVerify,omitempty"`
	// clientCertificate is the certificate that the gateway shows: FrontProxy, its own, by which
	// a server trusts it to name users, or None. With FrontProxy the gateway reconnects every 10
	// seconds to 2 minutes to a server that does not request a certificate, in case the server
	// starts to. Default FrontProxy.
	ClientCertificate ClientCertificate `json:"clientCertificate,omitempty"`
}

// ClientCertificate is the certificate that the gateway shows.
type ClientCertificate string

const (
	FrontProxy ClientCertificate = "FrontProxy"
	NoneShown  ClientCertificate = "None"
)

// AutoRegister makes APIServices for what the server lists.
type AutoRegister struct {
	// groups are the API groups to register, each as GROUP or, for a single version,
	// GROUP/VERSION; "*" alone registers all.
	Groups []string `json:"groups"`
	// groupPriorityMinimum of the APIServices, 1 to 20000: higher ones come first in discovery.
	// Groups of Kubernetes itself keep their fixed priority. Default 1000.
	GroupPriorityMinimum *int32 `json:"groupPriorityMinimum,omitempty"`
	// versionPriority of the APIServices, 1 to 1000: higher ones come first in their group.
	// Default 15.
	VersionPriority *int32 `json:"versionPriority,omitempty"`
	// onConflict is what happens if another Backend serves a group/version already. Keep leaves
	// it there, and the condition Registered names it; Replace takes it from a Backend of a lower
	// groupPriorityMinimum, or of the same one that says Keep. An APIService of a user, and any
	// version of a group of the gateway itself, is never taken. Default Keep.
	OnConflict OnConflict `json:"onConflict,omitempty"`
}

// OnConflict is what happens to a group/version that another Backend serves.
type OnConflict string

const (
	KeepOther    OnConflict = "Keep"
	ReplaceOther OnConflict = "Replace"
)

// REST makes an API of a server without Kubernetes discovery that has an OpenAPI 3 document.
type REST struct {
	// group that the server is registered under.
	Group string `json:"group"`
	// version that the server is registered under.
	Version string `json:"version"`
	// openAPIPath is the path of the server's OpenAPI 3 document, in JSON. The document is
	// requested every five seconds if the server answers with ETag or Last-Modified, else once a
	// minute or when its length changed. Default /openapi.json.
	OpenAPIPath string `json:"openAPIPath,omitempty"`
	// pathPrefix replaces /apis/GROUP/VERSION in requests. Default: the path of the first server
	// that the document names, mostly none: /apis/GROUP/VERSION/pets is requested as /pets. / is
	// none, whatever the document says.
	PathPrefix string `json:"pathPrefix,omitempty"`
	// allowAnyBody passes every request body to the server. It is for a server that ignores
	// method overrides in bodies (_method), since requests are authorized by their own method.
	// Default false: forms (application/x-www-form-urlencoded, multipart) and bodies with a
	// Content-Encoding or in a charset that is not based on ASCII are refused with 415, and JSON
	// objects with the member _method with 400.
	AllowAnyBody bool `json:"allowAnyBody,omitempty"`
	// headers are the names of request headers, such as X-Api-Key, that the server gets from
	// clients beside those of HTTP itself (Accept, Content-Type, If-Match, Range, User-Agent and
	// the like). Whatever a client sends in them reaches the server, which may believe it. Cookie,
	// Authorization, headers that the gateway sets and those that could change the method or the
	// path are refused. Default none.
	Headers []string `json:"headers,omitempty"`
}

// Balance is the load balancing policy over the healthy endpoints.
type Balance string

const (
	// LeastRequest chooses, of two random endpoints, the one with fewer requests in
	// flight for its weight. The default.
	LeastRequest Balance = "LeastRequest"
	// RoundRobin chooses in turn, by weight.
	RoundRobin Balance = "RoundRobin"
	// ConsistentHash sends a user to the same endpoint while it is healthy; users are
	// shared by weight. SlowStart does not apply: users would move twice, and find cold
	// caches both times.
	ConsistentHash Balance = "ConsistentHash"
)

// HealthCheck is the active check of each endpoint.
type HealthCheck struct {
	// path of the check's GET; an answer of 2xx is healthy. Default: the server's discovery; for
	// a REST server, its OpenAPI document.
	Path string `json:"path,omitempty"`
	// interval between checks of a healthy endpoint, at least 100ms. A suspect one is checked ten
	// times as often. The server's discovery is read as often, but every 500ms at most. Default
	// 5s.
	Interval *metav1.Duration `json:"interval,omitempty"`
	// time until the header of a check's answer must have arrived; the body of a discovery
	// document may take 10s. Default 1s.
	Timeout *metav1.Duration `json:"timeout,omitempty"`
	// fall is how many failures in a row take an endpoint out, 1 to 1000. A refused connection
	// does so alone. Default 3.
	Fall *int32 `json:"fall,omitempty"`
	// rise is how many successes in a row bring an endpoint back, 1 to 1000. Default 2.
	Rise *int32 `json:"rise,omitempty"`
}

// OutlierDetection ejects endpoints by the results of requests to them.
type OutlierDetection struct {
	// consecutiveErrors is how many 5xx answers of the server in a row, or answers that do not
	// begin within responseHeader, eject an endpoint. 0 turns this off. Default 5.
	ConsecutiveErrors *int32 `json:"consecutiveErrors,omitempty"`
	// consecutiveLocalErrors is how many connections in a row that failed or broke eject an
	// endpoint. 0 turns this off. Default 3.
	ConsecutiveLocalErrors *int32 `json:"consecutiveLocalErrors,omitempty"`
	// baseEjectionTime, times the number of recent ejections, is how long an endpoint is out,
	// plus up to a tenth at random. Each 10s without an ejection reduce the number by one. A
	// passed check ends an ejection for connections that failed or broke, if it was the only
	// recent one. Default 30s.
	BaseEjectionTime *metav1.Duration `json:"baseEjectionTime,omitempty"`
	// maxEjectionTime is the longest ejection. Default 300s.
	MaxEjectionTime *metav1.Duration `json:"maxEjectionTime,omitempty"`
	// maxEjectionPercent of the endpoints may be ejected at a time. Default 50.
	MaxEjectionPercent *int32 `json:"maxEjectionPercent,omitempty"`
}

// SlowStart increases gradually the share of requests of an endpoint that comes back, or is added
// beside others that get requests. It does not apply to ConsistentHash.
type SlowStart struct {
	// window is the time until the endpoint has its whole share. 0s turns slow start off. Default
	// 10s.
	Window *metav1.Duration `json:"window,omitempty"`
	// minWeightPercent is the share at the beginning, as a percentage of the weight, 1 to 100.
	// Default 10.
	MinWeightPercent *int32 `json:"minWeightPercent,omitempty"`
	// aggressionPercent is the shape of the growth, 10 to 1000: linear at 100, faster at the
	// beginning above, at the end below. The share is the part of the window that has passed, to
	// the power of 100/aggressionPercent. Default 100.
	AggressionPercent *int32 `json:"aggressionPercent,omitempty"`
}

// Timeouts limit one attempt to send a request.
type Timeouts struct {
	// connect limits making a connection, TLS included. Default 1s.
	Connect *metav1.Duration `json:"connect,omitempty"`
	// responseHeader limits the time from the end of the request to the header of the answer.
	// Then the attempt fails, and a safe request is tried on another endpoint if its own time is
	// not over. The default equals the time of a request, so that there is no second attempt and
	// the client gets 504; a shorter one leaves time for it. Long-running requests are not
	// limited. Default 60s.
	ResponseHeader *metav1.Duration `json:"responseHeader,omitempty"`
	// idle is how long unused connections are kept. Default 90s.
	Idle *metav1.Duration `json:"idle,omitempty"`
	// maxConnectionAge is how long a connection takes new requests, up to a tenth less at random;
	// requests in flight on it finish. So servers behind one address get their share of later
	// requests. 0 is unlimited, otherwise at least 1s. Default 10m.
	MaxConnectionAge *metav1.Duration `json:"maxConnectionAge,omitempty"`
}

// Retries limits the load that retries add.
type Retries struct {
	// budgetPercent is the share of the requests of the last ten seconds that may be retries. 0,
	// with minPerSecond 0, turns retries off. Default 20.
	BudgetPercent *int32 `json:"budgetPercent,omitempty"`
	// minPerSecond retries are allowed in any case. Default 3.
	MinPerSecond *int32 `json:"minPerSecond,omitempty"`
	// attempts for one request, the first included, 1 to 10. With 1, nothing is retried that the
	// server may have seen. Default 3.
	Attempts *int32 `json:"attempts,omitempty"`
}

// Limits bounds requests in flight to a server.
type Limits struct {
	// concurrent requests that each gateway sends at most. Default 1024.
	Concurrent *int32 `json:"concurrent,omitempty"`
	// queue is how many more requests wait. Further ones are answered 429 with Retry-After.
	// Default 256.
	Queue *int32 `json:"queue,omitempty"`
}

// Status is what the elected gateway sees of a server.
type Status struct {
	// endpoints and their state.
	// +listType=map
	// +listMapKey=url
	// +patchStrategy=merge
	// +patchMergeKey=url
	Endpoints []EndpointStatus `json:"endpoints,omitempty" patchStrategy:"merge" patchMergeKey:"url"`
	// groupVersions that the server lists.
	GroupVersions []GroupVersionStatus `json:"groupVersions,omitempty"`
	// conditions: Available (an endpoint takes requests), Discovered (the server's discovery was
	// read), OpenAPIValid (its OpenAPI documents can be used), Registered (all groups of
	// autoRegister lead to this Backend).
	// +listType=map
	// +listMapKey=type
	// +patchStrategy=merge
	// +patchMergeKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty" patchStrategy:"merge" patchMergeKey:"type"`
}

// EndpointState is the state of an endpoint as a gateway sees it.
type EndpointState string

const (
	EndpointUnknown   EndpointState = "Unknown"   // not checked yet
	EndpointHealthy   EndpointState = "Healthy"   // gets requests
	EndpointUnhealthy EndpointState = "Unhealthy" // failed its active checks
	EndpointEjected   EndpointState = "Ejected"   // by the results of requests
	EndpointDraining  EndpointState = "Draining"  // weight 0, or being removed
)

// EndpointStatus is the state of one endpoint.
type EndpointStatus struct {
	// url of the endpoint.
	URL string `json:"url"`
	// state is Unknown (not checked yet), Healthy (gets requests), Unhealthy (failed its checks),
	// Ejected (by the results of requests) or Draining (weight 0).
	State EndpointState `json:"state"`
	// lastTransitionTime is when the state changed last.
	LastTransitionTime metav1.Time `json:"lastTransitionTime,omitempty"`
	// lastError is why the endpoint is not healthy, or was not the last time.
	LastError string `json:"lastError,omitempty"`
	// lastErrorTime is when lastError was seen first.
	LastErrorTime metav1.Time `json:"lastErrorTime,omitempty"`
}

// MaxStatusGroups bounds Status.GroupVersions: a list of this length may be cut.
const MaxStatusGroups = 256

// GroupVersionStatus is a group/version that a server lists.
type GroupVersionStatus struct {
	// group; "" is the core group.
	Group string `json:"group"`
	// version of the group.
	Version string `json:"version"`
	// freshness is Current or Stale, as in aggregated discovery.
	Freshness string `json:"freshness"`
}

// Conditions of a Backend.
const (
	Available    = "Available"    // an endpoint takes requests
	Discovered   = "Discovered"   // its discovery was read
	OpenAPIValid = "OpenAPIValid" // its OpenAPI documents can be used
	Registered   = "Registered"   // all groups of autoRegister lead to it
)
