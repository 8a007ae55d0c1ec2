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

// Backend is a server behind the gateway: one or more endpoints that answer
// alike. It is cluster-scoped.
//
// The right to write Backends is worth as much as cluster-admin: the gateway, which
// servers trust to name users, connects to the addresses that a Backend contains, and
// rest maps any path of a server to a group, by which requests are authorized.
type Backend struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   Spec   `json:"spec,omitempty"`
	Status Status `json:"status,omitempty"`
}

// BackendList is a list of Backends.
type BackendList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Backend `json:"items"`
}

// Spec is where a server is and how requests are sent to it. Either endpoints or
// service is set. Defaults are applied by Policy and the methods beside it and not
// stored, so that a new default reaches existing Backends. Numbers are pointers, which
// distinguishes 0 from unset.
type Spec struct {
	// Endpoints, 256 at most.
	Endpoints []Endpoint `json:"endpoints,omitempty" patchStrategy:"merge" patchMergeKey:"url" listType:"map" listMapKey:"url"`
	Service   *Service   `json:"service,omitempty"`
	TLS       *TLS       `json:"tls,omitempty"`

	AutoRegister *AutoRegister `json:"autoRegister,omitempty"`
	REST         *REST         `json:"rest,omitempty"`

	Balance          Balance           `json:"balance,omitempty"`
	HealthCheck      *HealthCheck      `json:"healthCheck,omitempty"`
	OutlierDetection *OutlierDetection `json:"outlierDetection,omitempty"`
	SlowStart        *SlowStart        `json:"slowStart,omitempty"`
	// PanicThresholdPercent: while fewer of the endpoints than this share get
	// requests, ejections are ignored, so that the others are not overloaded.
	// Endpoints that fail their active checks stay out. 0 turns it off. Default 50.
	PanicThresholdPercent *int32    `json:"panicThresholdPercent,omitempty"`
	Timeouts              *Timeouts `json:"timeouts,omitempty"`
	Retries               *Retries  `json:"retries,omitempty"`
	Limits                *Limits   `json:"limits,omitempty"`
}

// Endpoint is one address of a server.
type Endpoint struct {
	// URL is https://host:port, unix:///path of a socket, or http://host:port (plain
	// text, only without tls; for REST servers, since a server reached by http cannot
	// verify who a user is: writing one gives a warning). A host name is resolved for
	// every connection; all of its addresses are one endpoint with one state.
	URL string `json:"url"`
	// Weight is the endpoint's share of requests, 0 to 1000. 0 drains it: it gets no
	// new requests, requests in flight finish, and its watches are ended one after the
	// other within 30s if another endpoint can take them. Default 1.
	Weight *int32 `json:"weight,omitempty"`
}

// Service names a Service in the core server, whose ready endpoints are those
// of the Backend.
type Service struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Port is the Service's port number. Default 443.
	Port *int32 `json:"port,omitempty"`
}

// TLS is how endpoints are verified, and the certificate shown to them.
type TLS struct {
	// CABundle is PEM of the CAs of the endpoints' certificates. Default: those of the
	// gateway's host.
	CABundle []byte `json:"caBundle,omitempty"`
	// ServerName is the name in the endpoints' certificates. Default: the host of each
	// endpoint's URL; for a service, name.namespace.svc.
	ServerName string `json:"serverName,omitempty"`
	// InsecureSkipVerify accepts any certificate. Not together with caBundle.
	InsecureSkipVerify bool `json:"insecureSkipVerify,omitempty"`
	// ClientCertificate is FrontProxy (the gateway's own certificate, by which servers
	// trust it to name users; the default) or None.
	ClientCertificate ClientCertificate `json:"clientCertificate,omitempty"`
}

// ClientCertificate is the certificate that the gateway shows.
type ClientCertificate string

const (
	FrontProxy ClientCertificate = "FrontProxy"
	NoneShown  ClientCertificate = "None"
)

// AutoRegister makes automanaged APIServices for what the server lists.
type AutoRegister struct {
	// Groups to register, each as GROUP or GROUP/VERSION; "*" registers all. Required.
	Groups []string `json:"groups"`
	// GroupPriorityMinimum and VersionPriority are those of the APIServices.
	// Defaults 1000 and 15.
	GroupPriorityMinimum *int32 `json:"groupPriorityMinimum,omitempty"`
	VersionPriority      *int32 `json:"versionPriority,omitempty"`
	// OnConflict is what happens if another Backend or the gateway serves a
	// group/version already: Keep (the default) leaves it there, and the condition
	// Registered names it; Replace takes it from another Backend of a lower priority, or
	// of the same one that says Keep. An APIService of a user is never replaced.
	OnConflict OnConflict `json:"onConflict,omitempty"`
}

// OnConflict is what happens to a group/version that another Backend serves.
type OnConflict string

const (
	KeepOther    OnConflict = "Keep"
	ReplaceOther OnConflict = "Replace"
)

// REST makes an API of a server without Kubernetes discovery that has an OpenAPI 3
// document. Not together with autoRegister, and not for a Backend that the gateway
// starts with: its requests would be authorized by another group.
type REST struct {
	// Group and Version that the server is registered under. Required.
	Group   string `json:"group"`
	Version string `json:"version"`
	// OpenAPIPath is the path of the document, in JSON. Default /openapi.json.
	OpenAPIPath string `json:"openAPIPath,omitempty"`
	// PathPrefix replaces /apis/GROUP/VERSION in requests. Default: the path of the
	// first server that the document names, mostly none: /apis/G/V/pets is requested as
	// /pets. "/" is none, whatever the document says.
	PathPrefix string `json:"pathPrefix,omitempty"`
	// AllowAnyBody passes every body to the server. It is for a server that ignores
	// method overrides in bodies (_method). Default false: forms, and bodies with a
	// Content-Encoding or in a charset that is not based on ASCII, are refused with 415,
	// and JSON objects with the member _method with 400.
	AllowAnyBody bool `json:"allowAnyBody,omitempty"`
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
	// Path of the check's GET; 2xx is healthy. Default: the server's discovery; for a
	// REST backend, its OpenAPI document.
	Path string `json:"path,omitempty"`
	// Interval between checks of a healthy endpoint, at least 100ms. Default 5s. A
	// suspect one is checked ten times as often.
	Interval *metav1.Duration `json:"interval,omitempty"`
	// Timeout is how long the header of a check's answer may take, default 1s. The body of a
	// discovery document may take 10s.
	Timeout *metav1.Duration `json:"timeout,omitempty"`
	// Fall is how many failures in a row take an endpoint out, default 3; a refused
	// connection does so alone. Rise is how many successes in a row bring it back,
	// default 2.
	Fall *int32 `json:"fall,omitempty"`
	Rise *int32 `json:"rise,omitempty"`
}

// OutlierDetection ejects endpoints by the results of requests. It never ejects the
// last one.
type OutlierDetection struct {
	// ConsecutiveErrors is how many failures in a row (5xx answers of the server, or no
	// answer) eject an endpoint; 0 turns this off. Default 5.
	ConsecutiveErrors *int32 `json:"consecutiveErrors,omitempty"`
	// ConsecutiveLocalErrors is how many connections in a row that failed or broke
	// eject an endpoint; 0 turns this off. Default 3.
	ConsecutiveLocalErrors *int32 `json:"consecutiveLocalErrors,omitempty"`
	// BaseEjectionTime, times the number of recent ejections, is how long an endpoint
	// is out, plus up to a tenth of the base at random; at most MaxEjectionTime.
	// Defaults 30s and 300s. Each 10s without an ejection reduce the number by one. A
	// passed active check ends an ejection for local errors if it is the only recent
	// one: a server may answer checks and nothing else.
	BaseEjectionTime *metav1.Duration `json:"baseEjectionTime,omitempty"`
	MaxEjectionTime  *metav1.Duration `json:"maxEjectionTime,omitempty"`
	// MaxEjectionPercent of the endpoints are out at a time. Default 50.
	MaxEjectionPercent *int32 `json:"maxEjectionPercent,omitempty"`
}

// SlowStart increases gradually the share of an endpoint that comes back, or is added
// beside others that get requests: its caches are cold. The share of the weight is the
// part of the window that has passed, to the power of 100/AggressionPercent, and at
// least MinWeightPercent. It does not apply to ConsistentHash.
type SlowStart struct {
	// Window is the time until the share is whole; 0 turns it off. Default 10s.
	Window *metav1.Duration `json:"window,omitempty"`
	// MinWeightPercent is the share at the beginning. Default 10.
	MinWeightPercent *int32 `json:"minWeightPercent,omitempty"`
	// AggressionPercent is the shape of the growth: linear at 100, the default; faster
	// at the beginning above, at the end below.
	AggressionPercent *int32 `json:"aggressionPercent,omitempty"`
}

// Timeouts of one attempt.
type Timeouts struct {
	// Connect, TLS included. Default 1s.
	Connect *metav1.Duration `json:"connect,omitempty"`
	// ResponseHeader limits the time from the end of the request to the header of the
	// answer; then the attempt fails. Default 60s, the time of a request: a shorter one
	// leaves time for another endpoint. Long-running requests are not limited.
	ResponseHeader *metav1.Duration `json:"responseHeader,omitempty"`
	// Idle is how long unused connections are kept. Default 90s.
	Idle *metav1.Duration `json:"idle,omitempty"`
	// MaxConnectionAge is how long a connection takes new requests, up to a tenth less
	// at random; requests in flight on it finish. So servers behind one address (a
	// balancer, a name with several addresses) get their share of later requests. 0 is
	// unlimited. Default 10m.
	MaxConnectionAge *metav1.Duration `json:"maxConnectionAge,omitempty"`
}

// Retries limits the load that retries add. A request of which the server saw nothing
// is retried on another endpoint whatever its verb; a safe one also if the connection
// broke, or if the answer was 502, 503, 504, or 429 with Retry-After.
type Retries struct {
	// BudgetPercent is the share of the requests of the last ten seconds that may be
	// retries. Default 20; 0 with MinPerSecond 0 turns retries off.
	BudgetPercent *int32 `json:"budgetPercent,omitempty"`
	// MinPerSecond retries are allowed in any case. Default 3.
	MinPerSecond *int32 `json:"minPerSecond,omitempty"`
	// Attempts for one request, the first included. A refused connection does not
	// count. Default 3.
	Attempts *int32 `json:"attempts,omitempty"`
}

// Limits of requests in flight to a Backend, without long-running ones. Each gateway
// counts for itself.
type Limits struct {
	// Concurrent requests. Default 1024.
	Concurrent *int32 `json:"concurrent,omitempty"`
	// Queue is how many more requests wait, until their time is over; further ones are
	// answered 429 with Retry-After. Default 256.
	Queue *int32 `json:"queue,omitempty"`
}

// Status is what the elected gateway sees.
type Status struct {
	Endpoints     []EndpointStatus     `json:"endpoints,omitempty" patchStrategy:"merge" patchMergeKey:"url" listType:"map" listMapKey:"url"`
	GroupVersions []GroupVersionStatus `json:"groupVersions,omitempty"`
	// Conditions: Available, Discovered, OpenAPIValid, Registered.
	Conditions []metav1.Condition `json:"conditions,omitempty" patchStrategy:"merge" patchMergeKey:"type" listType:"map" listMapKey:"type"`
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
	URL   string        `json:"url"`
	State EndpointState `json:"state"`
	// LastTransitionTime is when the state changed last.
	LastTransitionTime metav1.Time `json:"lastTransitionTime,omitempty"`
	// LastError is why it is not healthy, or was not the last time.
	LastError string `json:"lastError,omitempty"`
}

// MaxStatusGroups bounds Status.GroupVersions: a list of this length may be cut.
const MaxStatusGroups = 256

// GroupVersionStatus is a group/version that the server lists.
type GroupVersionStatus struct {
	Group   string `json:"group"`
	Version string `json:"version"`
	// Freshness is Current or Stale, as in aggregated discovery.
	Freshness string `json:"freshness"`
}

// Conditions of a Backend.
const (
	Available    = "Available"    // an endpoint takes requests
	Discovered   = "Discovered"   // its discovery was read
	OpenAPIValid = "OpenAPIValid" // its OpenAPI documents can be used
	Registered   = "Registered"   // all groups of autoRegister lead to it
)
