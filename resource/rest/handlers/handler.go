package handlers

import (
	"cmp"
	"context"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico/resource"
	"portico/resource/audit"
	"portico/resource/response"
	"portico/resource/rest"
	"portico/resource/rest/body"
	"portico/resource/rest/form"
	"portico/resource/rest/watchstream"
)

// defaultMinWatch is the default of Config.MinWatch.
const defaultMinWatch = 1800 * time.Second

// Config configures an API.
type Config struct {
	// Resources are the resources to serve. Ignored if Lookup is set.
	Resources []*rest.Resource
	// Lookup, if not nil, returns the resource of a request; nil, nil: there is none (a 404
	// in plain text). Errors are sent to the client.
	Lookup func(a *resource.Action) (*rest.Resource, error)
	// Admission checks every write; nil: none.
	Admission rest.Admission
	// Authorize checks a further permission of the user, such as create for an update that
	// creates (docs/wire.md 4.7). Errors are sent to the client; nil: everything is
	// permitted.
	Authorize func(ctx context.Context, a *resource.Action) error
	// Warn adds a Warning header to the response; nil: warnings are dropped.
	Warn rest.Warn
	// CBOR serves and accepts CBOR too (docs/wire.md 3.7).
	CBOR bool
	// MinWatch is the shortest duration of a watch without timeoutSeconds, half of the longest;
	// 0: 30 minutes.
	MinWatch time.Duration
	// Metrics registers the metrics of watches and deprecated versions; nil: they are not
	// registered.
	Metrics prometheus.Registerer
	// Logger, nil: slog.Default().
	Logger *slog.Logger
}

// API is an http.Handler that serves the resource named by the Action in the request's
// context. Safe for concurrent use.
type API struct {
	cfg        Config           // with defaults
	extra      []response.Media // CBOR, if it is served
	forms      *form.Cache
	reading    *body.Budget
	decoding   *body.Budget
	watches    *watchstream.Server
	deprecated *deprecatedMetrics
}

// formCache is the size of the cache of encoded objects in bytes.
const formCache = 64 << 20

// New returns an API over the configured resources.
func New(cfg Config) *API {
	cfg.MinWatch = cmp.Or(cfg.MinWatch, defaultMinWatch)
	cfg.Logger = cmp.Or(cfg.Logger, slog.Default())
	if cfg.Lookup == nil {
		cfg.Lookup = lookupIn(cfg.Resources)
	}
	if cfg.Warn == nil {
		cfg.Warn = func(context.Context, string) {}
	}
	a := &API{
		cfg:        cfg,
		forms:      form.NewCache(formCache),
		reading:    body.NewBudget(body.ReadMemory),
		decoding:   body.NewBudget(body.DecodeMemory),
		deprecated: newDeprecatedMetrics(),
	}
	if cfg.CBOR {
		a.extra = []response.Media{response.CBOR}
	}
	a.watches = watchstream.NewServer(a.forms, cfg.Logger)
	if cfg.Metrics != nil {
		cfg.Metrics.MustRegister(a.watches.Metrics, a.deprecated.gauge)
	}
	return a
}

// lookupIn returns a Lookup in a fixed table.
func lookupIn(resources []*rest.Resource) func(*resource.Action) (*rest.Resource, error) {
	table := make(map[schema.GroupResource]*rest.Resource, len(resources))
	for _, res := range resources {
		table[res.GroupResource()] = res
	}
	return func(act *resource.Action) (*rest.Resource, error) {
		return table[schema.GroupResource{Group: act.Group, Resource: act.Resource}], nil
	}
}

// annotationDeprecated is the audit annotation of requests for a deprecated version.
const annotationDeprecated = "k8s.io/deprecated"

// ServeHTTP serves the Action in the request's context.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	act := resource.ActionFrom(r.Context())
	res, sub, err := a.find(act)
	switch {
	case err != nil:
	case res == nil:
		notFound(w)
		return
	default:
		if res.Deprecated != nil {
			if text := res.Deprecated(act.Version); text != "" {
				a.cfg.Warn(r.Context(), text)
				a.deprecated.requested(act)
				audit.Annotate(r.Context(), annotationDeprecated, "true")
			}
		}
		err = a.serve(w, r, act, res, sub)
	}
	if err != nil {
		response.WriteStatus(w, r, err, a.extra...)
	}
}

// notFound responds to a path that is not served in plain text, which clients treat as a
// generic NotFound (docs/wire.md 0.3).
func notFound(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(http.StatusNotFound)
	_, _ = io.WriteString(w, "404 page not found\n")
}

// find returns the resource and the subresource (nil: the resource itself) of an action; a
// nil resource: the path is unknown.
func (a *API) find(act *resource.Action) (*rest.Resource, *rest.Subresource, error) {
	if act == nil || !act.IsResource || act.Verb == "proxy" {
		return nil, nil, nil
	}
	res, err := a.cfg.Lookup(act)
	if err != nil || res == nil || !res.Serves(act.Version) {
		return nil, nil, err
	}
	// The path of a Namespace has its name in the position of the namespace.
	inNamespace := act.Namespace != "" && !(act.Resource == "namespaces" && act.Group == "" && act.Namespace == act.Name)
	if inNamespace && !res.Namespaced {
		return nil, nil, nil
	}
	if res.Namespaced && act.Namespace == "" && act.InPath {
		return nil, nil, nil
	}
	// Reviews and Bindings have no objects.
	if res.Virtual() && !res.Computed && act.InPath && act.Subresource == "" {
		return nil, nil, nil
	}
	if act.Subresource == "" {
		return res, nil, nil
	}
	for i := range res.Subresources {
		if sub := &res.Subresources[i]; sub.Name == act.Subresource {
			if len(act.Rest) > 0 && (sub.Connect == nil || !sub.Connect.Path) {
				break
			}
			return res, sub, nil
		}
	}
	return nil, nil, noSubresource(act, res)
}

// noSubresource is the 404 for a path below an object that is not served (docs/wire.md 0.3).
func noSubresource(act *resource.Action, res *rest.Resource) error {
	if res.HasGoType(act.Version) {
		return apierrors.NewGenericServerResponse(http.StatusNotFound, "", schema.GroupResource{}, "", "", 0, false)
	}
	return apierrors.NewNotFound(res.GroupResource(), act.Name)
}

// serve checks the verb and the format of the response, and calls the verb.
func (a *API) serve(w http.ResponseWriter, r *http.Request, act *resource.Action, res *rest.Resource, sub *rest.Subresource) error {
	if sub != nil && sub.Connect != nil {
		return a.connect(w, r, act, res, sub)
	}
	if err := checkVerb(r, act, res, sub); err != nil {
		return err
	}
	if act.Mutating() {
		// Nothing must be written if the client does not accept the result.
		f, err := response.Negotiate(r, a.offerOf(act, res, sub))
		if err != nil {
			return err
		}
		if _, err := a.tables(r, act, res, f); err != nil {
			return err
		}
	}
	if sub != nil {
		return a.subresource(w, r, act, res, sub)
	}
	if res.Review != nil {
		return a.review(w, r, act, res)
	}
	if res.Call != nil {
		return a.callNamed(w, r, act, res)
	}
	switch act.Verb {
	case "get":
		return a.get(w, r, act, res, nil)
	case "list":
		return a.list(w, r, act, res)
	case "watch":
		return a.watch(w, r, act, res)
	case "create":
		return a.create(w, r, act, res)
	case "update":
		return a.update(w, r, act, res, nil)
	case "patch":
		return a.patch(w, r, act, res, nil)
	case "delete":
		return a.delete(w, r, act, res)
	case "deletecollection":
		return a.deleteCollection(w, r, act, res)
	}
	return methodNotAllowed(act, res)
}

// checkVerb is the 405 for a verb that the resource does not have, or not at this path.
func checkVerb(r *http.Request, act *resource.Action, res *rest.Resource, sub *rest.Subresource) error {
	var verbs []string
	switch {
	case sub != nil && sub.Verbs != nil:
		verbs = sub.Verbs
	case sub != nil && sub.Create != nil:
		verbs = []string{"create"}
	case sub != nil:
		verbs = []string{"get", "patch", "update"}
	case res.Virtual() && !res.Computed:
		verbs = []string{"create"}
	case res.Verbs != nil:
		verbs = res.Verbs
	default:
		verbs = []string{"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"}
	}
	if !slices.Contains(verbs, act.Verb) || !verbFitsPath(r, act, res, sub) {
		return methodNotAllowed(act, res)
	}
	return nil
}

// verbFitsPath reports whether the verb exists at the path (docs/wire.md 1.1, 1.2). Legacy
// watch paths are for GET; create and deletecollection need a namespace. For kinds with Go
// types there is no HEAD, and a create has a name in the path only for a subresource, an
// update or patch always; for others the verb checks that.
func verbFitsPath(r *http.Request, act *resource.Action, res *rest.Resource, sub *rest.Subresource) bool {
	if r.Method == http.MethodHead && res.HasGoType(act.Version) {
		return false
	}
	allNamespaces, anyPath := res.Namespaced && act.Namespace == "", sub == nil && !res.HasGoType(act.Version)
	switch act.Verb {
	case "watch":
		return r.Method == http.MethodGet
	case "create":
		return (anyPath || act.InPath == (sub != nil)) && !allNamespaces
	case "deletecollection":
		return !allNamespaces
	case "update", "patch":
		return anyPath || act.InPath
	case "get", "delete":
		return act.InPath
	}
	return true
}

// methodNotAllowed is the 405 for the action's verb (docs/wire.md 3.6).
func methodNotAllowed(act *resource.Action, res *rest.Resource) error {
	if res.HasGoType(act.Version) {
		return apierrors.NewGenericServerResponse(http.StatusMethodNotAllowed, "", schema.GroupResource{}, "", "", 0, false)
	}
	return apierrors.NewMethodNotSupported(res.GroupResource(), cmp.Or(act.Verb, "this method"))
}

// requireName is the 400 for a write of one object without its name in the path.
func requireName(act *resource.Action) error {
	if !act.InPath {
		return apierrors.NewBadRequest("name must be provided")
	}
	return nil
}

// keyOf returns the storage key of the object that the action names.
func keyOf(act *resource.Action, res *rest.Resource) resource.Key {
	if !res.Namespaced {
		return resource.Key{Name: act.Name}
	}
	return resource.Key{Namespace: act.Namespace, Name: act.Name}
}

// deprecatedMetrics record the deprecated APIs that were requested (docs/wire.md 1.6). Safe
// for concurrent use.
type deprecatedMetrics struct {
	gauge *prometheus.GaugeVec

	mu   sync.Mutex
	seen map[deprecatedAPI]bool // at most maxDeprecated; others are not recorded
}

// maxDeprecated bounds the series, for resources that come and go.
const maxDeprecated = 4096

type deprecatedAPI struct{ group, version, resource, subresource string }

func newDeprecatedMetrics() *deprecatedMetrics {
	return &deprecatedMetrics{
		gauge: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "apiserver_requested_deprecated_apis",
			Help: "Deprecated APIs that have been requested: 1 each. No release is known to remove them.",
		}, []string{"group", "version", "resource", "subresource", "removed_release"}),
		seen: make(map[deprecatedAPI]bool),
	}
}

// requested records a request for a deprecated API.
func (m *deprecatedMetrics) requested(act *resource.Action) {
	api := deprecatedAPI{act.Group, act.Version, act.Resource, act.Subresource}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.seen[api] || len(m.seen) >= maxDeprecated {
		return
	}
	m.seen[api] = true
	m.gauge.WithLabelValues(api.group, api.version, api.resource, api.subresource, "").Set(1)
}

// forget removes the series of a resource.
func (m *deprecatedMetrics) forget(info *resource.Info) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for api := range m.seen {
		if api.group == info.Group && api.resource == info.Resource {
			delete(m.seen, api)
			m.gauge.DeleteLabelValues(api.group, api.version, api.resource, api.subresource, "")
		}
	}
}

// Forget removes the metrics of a resource that is no longer served, in all its versions.
func (a *API) Forget(info *resource.Info) {
	a.watches.Metrics.Forget(info)
	a.deprecated.forget(info)
}
