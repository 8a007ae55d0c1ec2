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
// Who may write Backends may do anything in the cluster: the gateway, which may
// speak for any user, connects to whatever address a Backend names, and rest
// maps any path of a server to a group of the writer's choice, by which requests
// are then authorized. The right belongs with cluster-admin.
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

// Spec says where a server is and how requests are sent to it. Either endpoints
// or service is set. What is left out is decided by Policy and the methods
// beside it, not stored: a better default reaches the Backends there are. Numbers
// are pointers, for a 0 to be told from what is left out.
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
	// requests, ejections are ignored, because the few that are left would only be
	// overrun. What fails its active checks stays out. 0 turns it off. Default 50.
	PanicThresholdPercent *int32    `json:"panicThresholdPercent,omitempty"`
	Timeouts              *Timeouts `json:"timeouts,omitempty"`
	Retries               *Retries  `json:"retries,omitempty"`
	Limits                *Limits   `json:"limits,omitempty"`
}

// Endpoint is one address of a server.
type Endpoint struct {
	// URL is https://host:port, http://host:port (plain text, only where tls is
	// not set) or unix:///path of a socket. A host's name is looked up for every
	// connection. Its addresses are tried in the order of the resolver, IPv6 and IPv4
	// concurrently where it has both (RFC 6555); they are one endpoint, with one state.
	// http is meant for REST servers: any other that is reached by it cannot know that
	// users are who the gateway says they are, and writing it returns a warning.
	URL string `json:"url"`
	// Weight is the endpoint's share of the requests, 0 to 1000. With 0 it drains: it
	// gets no new requests, what is under way finishes, and its watches are ended in
	// order, one after the other within 30s, as long as another endpoint can take
	// them. Default 1.
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

// TLS says how endpoints are recognised and what is shown to them.
type TLS struct {
	// CABundle is PEM of the CAs that vouch for the endpoints. Default: those of
	// the gateway's host.
	CABundle []byte `json:"caBundle,omitempty"`
	// ServerName is the name that certificates must have. Default: the host of
	// each endpoint's URL; for a service, name.namespace.svc.
	ServerName string `json:"serverName,omitempty"`
	// InsecureSkipVerify trusts whoever answers. Not together with caBundle.
	InsecureSkipVerify bool `json:"insecureSkipVerify,omitempty"`
	// ClientCertificate is FrontProxy (the gateway's own certificate, which lets
	// it speak for users; the default) or None.
	ClientCertificate ClientCertificate `json:"clientCertificate,omitempty"`
}

// ClientCertificate is which certificate the gateway shows.
type ClientCertificate string

const (
	FrontProxy ClientCertificate = "FrontProxy"
	NoneShown  ClientCertificate = "None"
)

// AutoRegister has automanaged APIServices made for what the server says it
// serves.
type AutoRegister struct {
	// Groups to take, or GROUP/VERSION for one version; "*" takes all. Required.
	Groups []string `json:"groups"`
	// GroupPriorityMinimum and VersionPriority are those of the APIServices.
	// Defaults 1000 and 15.
	GroupPriorityMinimum *int32 `json:"groupPriorityMinimum,omitempty"`
	VersionPriority      *int32 `json:"versionPriority,omitempty"`
	// OnConflict says what happens if the group/version is served by another
	// Backend or the gateway already: Keep (the default) leaves it there and
	// says so in the condition Registered; Replace takes it over from another
	// Backend of a lower priority, or of the same that says Keep. An APIService of
	// a user is never replaced.
	OnConflict OnConflict `json:"onConflict,omitempty"`
}

// OnConflict is what a Backend does about a group/version that another serves.
type OnConflict string

const (
	KeepOther    OnConflict = "Keep"
	ReplaceOther OnConflict = "Replace"
)

// REST makes an API of a server that has no Kubernetes discovery but an OpenAPI
// 3 document. Not together with autoRegister, and not of a server that the
// gateway starts with: its requests would be authorized by another group.
type REST struct {
	// Group and Version that the server is registered under. Required.
	Group   string `json:"group"`
	Version string `json:"version"`
	// OpenAPIPath is where the server has its document, in JSON. Default /openapi.json.
	OpenAPIPath string `json:"openAPIPath,omitempty"`
	// PathPrefix takes the place of /apis/GROUP/VERSION in requests. Default: the
	// path of the first server that the document names, which mostly is none, so
	// that /apis/G/V/pets is asked as /pets; "/" is none whatever it says.
	PathPrefix string `json:"pathPrefix,omitempty"`
	// AllowAnyBody passes every body on. It is for a server that does not take the
	// method of a request out of its body (_method). Default false: forms, and
	// bodies with a Content-Encoding or in a charset that is not based on ASCII, are
	// refused with 415, and JSON objects with the member _method with 400.
	AllowAnyBody bool `json:"allowAnyBody,omitempty"`
}

// Balance is how requests are spread over the healthy endpoints.
type Balance string

const (
	// LeastRequest takes the one of two random endpoints that has fewer requests
	// under way for its weight. The default.
	LeastRequest Balance = "LeastRequest"
	// RoundRobin takes them in turn, by weight.
	RoundRobin Balance = "RoundRobin"
	// ConsistentHash sends a user to the same endpoint while that is healthy. As
	// many users belong to an endpoint as its weight says. SlowStart does not change
	// that: users would move twice, and find cold caches both times.
	ConsistentHash Balance = "ConsistentHash"
)

// HealthCheck is the active check of each endpoint.
type HealthCheck struct {
	// Path asked for with GET; 2xx is healthy. Default: the discovery that the
	// gateway needs anyway; for a REST backend, its OpenAPI document.
	Path string `json:"path,omitempty"`
	// Interval between checks of a healthy endpoint, default 5s, at least
	// 100ms. One that is suspect is checked every tenth of it.
	Interval *metav1.Duration `json:"interval,omitempty"`
	// Timeout of one check, default 1s.
	Timeout *metav1.Duration `json:"timeout,omitempty"`
	// Fall is how many failures in a row take an endpoint out, default 3; a
	// refused connection does so alone. Rise is how many successes bring it
	// back, default 2.
	Fall *int32 `json:"fall,omitempty"`
	Rise *int32 `json:"rise,omitempty"`
}

// OutlierDetection ejects endpoints by how requests to them end. It never
// ejects the last one.
type OutlierDetection struct {
	// ConsecutiveErrors (5xx answers that the server itself made, or none) in a
	// row that eject an endpoint; 0 turns this off. Default 5.
	ConsecutiveErrors *int32 `json:"consecutiveErrors,omitempty"`
	// ConsecutiveLocalErrors (the connection failed or broke) that do; 0 turns this
	// off. So many reads of objects that were not answered within their time, or 5s
	// if their clients gave up, with no answer of the endpoint to anything meanwhile,
	// count as much where another endpoint answered the very same, as often, ten times
	// as soon. Default 3.
	ConsecutiveLocalErrors *int32 `json:"consecutiveLocalErrors,omitempty"`
	// BaseEjectionTime, times how often it was ejected lately, is how long an
	// endpoint is out. Default 30s, at most MaxEjectionTime, default 300s; up to a
	// tenth of the base is added, at random. Each 10s without an ejection take one
	// back. A passed active check ends an ejection for local errors if it is the only
	// one lately, but not one that follows another, nor one for requests that were
	// given up: the endpoint may answer nothing else.
	BaseEjectionTime *metav1.Duration `json:"baseEjectionTime,omitempty"`
	MaxEjectionTime  *metav1.Duration `json:"maxEjectionTime,omitempty"`
	// MaxEjectionPercent of the endpoints are out at a time. Default 50.
	MaxEjectionPercent *int32 `json:"maxEjectionPercent,omitempty"`
}

// SlowStart has the share of an endpoint grow that comes back, or is new beside
// others that get requests: its caches are cold. The share is that of its weight
// to the power of 100/AggressionPercent of the part of the window that has
// passed, and no less than MinWeightPercent. ConsistentHash goes by the whole
// weight all the time.
type SlowStart struct {
	// Window is how long it takes; 0 turns it off. Default 10s.
	Window *metav1.Duration `json:"window,omitempty"`
	// MinWeightPercent of its weight is what an endpoint begins with. Default 10.
	MinWeightPercent *int32 `json:"minWeightPercent,omitempty"`
	// AggressionPercent: at 100, the default, the share grows evenly; more has it
	// grow faster at the beginning, and less at the end.
	AggressionPercent *int32 `json:"aggressionPercent,omitempty"`
}

// Timeouts of one attempt.
type Timeouts struct {
	// Connect, TLS included. Default 1s.
	Connect *metav1.Duration `json:"connect,omitempty"`
	// ResponseHeader is how long the server may take to begin its answer, once
	// the request is sent; then the attempt is given up. Default 60s, as long
	// as the gateway gives requests: who wants them tried elsewhere before their
	// time is over sets less. Long-running requests have no limit.
	ResponseHeader *metav1.Duration `json:"responseHeader,omitempty"`
	// Idle connections are closed after it. Default 90s.
	Idle *metav1.Duration `json:"idle,omitempty"`
	// MaxConnectionAge is how long a connection takes new requests, up to a tenth
	// less at random; those under way on it finish. What stands behind one address
	// (a balancer, a name with several addresses) gets its share of later requests
	// so. 0 is as long as it lasts. Default 10m.
	MaxConnectionAge *metav1.Duration `json:"maxConnectionAge,omitempty"`
}

// Retries bounds how much load retries may add. A request of which nothing was
// sent is retried on another endpoint whatever its verb; a safe one also after
// the connection broke or the answer was 502, 503, 504, or 429 with Retry-After:
// that an endpoint has too much to do says nothing of the others.
type Retries struct {
	// BudgetPercent of the requests of the last ten seconds may be retries.
	// Default 20; 0 with MinPerSecond 0 turns retries off.
	BudgetPercent *int32 `json:"budgetPercent,omitempty"`
	// MinPerSecond are allowed whatever the traffic. Default 3.
	MinPerSecond *int32 `json:"minPerSecond,omitempty"`
	// Attempts in all for one request, the first included. One where nobody
	// listens does not count. Default 3.
	Attempts *int32 `json:"attempts,omitempty"`
}

// Limits of what is under way to a Backend, long-running requests not counted.
// Each gateway counts for itself.
type Limits struct {
	// Concurrent requests. Default 1024.
	Concurrent *int32 `json:"concurrent,omitempty"`
	// Queue is how many more wait their turn, for as long as they last; what
	// comes then gets 429 with Retry-After. Default 256.
	Queue *int32 `json:"queue,omitempty"`
}

// Status is what the elected gateway sees.
type Status struct {
	Endpoints     []EndpointStatus     `json:"endpoints,omitempty" patchStrategy:"merge" patchMergeKey:"url" listType:"map" listMapKey:"url"`
	GroupVersions []GroupVersionStatus `json:"groupVersions,omitempty"`
	// Conditions: Available, Discovered, OpenAPIValid, Registered.
	Conditions []metav1.Condition `json:"conditions,omitempty" patchStrategy:"merge" patchMergeKey:"type" listType:"map" listMapKey:"type"`
}

// EndpointState is what a gateway thinks of an endpoint.
type EndpointState string

const (
	EndpointUnknown   EndpointState = "Unknown"   // not checked yet
	EndpointHealthy   EndpointState = "Healthy"   // gets requests
	EndpointUnhealthy EndpointState = "Unhealthy" // failed its active checks
	EndpointEjected   EndpointState = "Ejected"   // by how requests to it ended
	EndpointDraining  EndpointState = "Draining"  // weight 0, or said to be going
)

// EndpointStatus is the state of one endpoint.
type EndpointStatus struct {
	URL   string        `json:"url"`
	State EndpointState `json:"state"`
	// LastTransitionTime is when state changed last.
	LastTransitionTime metav1.Time `json:"lastTransitionTime,omitempty"`
	// LastError is why it is not healthy, or was not the last time.
	LastError string `json:"lastError,omitempty"`
}

// MaxStatusGroups bounds Status.GroupVersions: one that is as long may lack some.
const MaxStatusGroups = 256

// GroupVersionStatus is a group/version that the server says it serves.
type GroupVersionStatus struct {
	Group   string `json:"group"`
	Version string `json:"version"`
	// Freshness is Current or Stale, as in aggregated discovery.
	Freshness string `json:"freshness"`
}

// Conditions of a Backend.
const (
	Available    = "Available"    // an endpoint can be sent requests
	Discovered   = "Discovered"   // its discovery was read
	OpenAPIValid = "OpenAPIValid" // its OpenAPI documents can be used
	Registered   = "Registered"   // every group it shall have is its own
)
