package aggregate

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	apidiscovery "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico/discovery"
)

// readTimeout bounds reading all documents of a server anew, as upstream's
// discovery manager does (5 s a request there).
const readTimeout = 5 * time.Second

// Config of a Source.
type Config struct {
	// Name is for errors.
	Name string
	// BaseURL has no path: "https://host:port".
	BaseURL string
	// Transport authenticates as the gateway and reaches the server. Required.
	Transport http.RoundTripper
	// StreamTransport is for Follow, whose request lasts; nil is Transport.
	StreamTransport http.RoundTripper
	// Identify adds the identity headers to a request. Required.
	Identify func(h http.Header)
	// GroupVersions are what is wanted of the server; nil is everything it
	// lists under /api and /apis.
	GroupVersions []schema.GroupVersion
	// Previous, if not nil, is what is known already (of an earlier Source for
	// the same server).
	Previous []discovery.GroupVersion
}

// Source is one server's discovery, last good answer kept. It is safe for
// concurrent use.
type Source struct {
	cfg     Config
	known   atomic.Pointer[[]discovery.GroupVersion]
	openAPI atomic.Pointer[openAPIAnswer]

	mu   sync.Mutex
	etag map[string]string // of the documents that Check asks for
}

// NewSource returns a source; it asks nothing until Check.
func NewSource(cfg Config) *Source {
	s := &Source{cfg: cfg, etag: map[string]string{}}
	if cfg.Previous != nil {
		s.known.Store(&cfg.Previous)
	}
	return s
}

// GroupVersions returns what the server said last; ok is false if it never
// did. The result must not be changed.
func (s *Source) GroupVersions() (gvs []discovery.GroupVersion, ok bool) {
	if p := s.known.Load(); p != nil {
		return *p, true
	}
	return nil, false
}

// Check asks the server whether it still says what it said, and reads its
// documents anew if not; changed tells that GroupVersions has a new value. The
// error is that of the server: unreachable, or a bad answer.
func (s *Source) Check(ctx context.Context) (changed bool, err error) {
	paths := []string{"/api", "/apis"}
	if s.cfg.GroupVersions != nil {
		paths = paths[:0]
		for _, gv := range s.cfg.GroupVersions {
			paths = append(paths, groupVersionPath(gv))
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	news := map[string]string{}
	for _, path := range paths {
		mark, err := s.mark(ctx, path)
		if err != nil {
			return false, err
		}
		if mark != s.etag[path] {
			news[path] = mark
		}
	}
	if _, known := s.GroupVersions(); known && len(news) == 0 {
		return false, nil
	}
	// The time limit of a probe does not fit reading everything.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readTimeout)
	defer cancel()
	gvs, whole, err := s.read(ctx)
	if err != nil {
		return false, err
	}
	s.known.Store(&gvs)
	if !whole {
		news = nil // to be read again
	}
	for path, mark := range news {
		s.etag[path] = mark
	}
	return true, nil
}

// mark returns what identifies the server's present answer at path: its ETag,
// or a digest where there is none.
func (s *Source) mark(ctx context.Context, path string) (string, error) {
	accept := acceptLegacy
	if s.cfg.GroupVersions == nil {
		accept = acceptAggregated
	}
	answer, err := s.get(ctx, path, accept, s.etag[path])
	if err != nil {
		return "", err
	}
	switch {
	case answer.code == http.StatusNotModified:
		return s.etag[path], nil
	case answer.code == http.StatusNotFound && path == "/api":
		return "none", nil // a server without the core group
	case answer.code != http.StatusOK:
		return "", fmt.Errorf("bad status from %s: %d", s.cfg.BaseURL+path, answer.code)
	}
	return answer.mark(), nil
}

// read fetches everything wanted, in both forms. It is not the whole if a
// group/version that the server listed was gone when it was asked for.
func (s *Source) read(ctx context.Context) (gvs []discovery.GroupVersion, whole bool, err error) {
	aggregated, err := s.readAggregated(ctx)
	if err != nil {
		return nil, false, err
	}
	wanted := s.cfg.GroupVersions
	if wanted == nil {
		if wanted, err = s.list(ctx, aggregated); err != nil {
			return nil, false, err
		}
	}
	whole = true
	out := make([]discovery.GroupVersion, 0, len(wanted))
	for _, gv := range wanted {
		legacy, err := s.readLegacy(ctx, gv)
		if errors.Is(err, errAbsent) && s.cfg.GroupVersions == nil {
			whole = false
			continue
		}
		if err != nil {
			return nil, false, err
		}
		g := discovery.GroupVersion{Group: gv.Group, Version: gv.Version, Legacy: legacy, Aggregated: aggregated[gv]}
		if g.Aggregated == nil {
			g.Aggregated = discovery.Aggregate(gv.Group, gv.Version, legacy)
		}
		out = append(out, g)
	}
	return out, whole, nil
}

// readAggregated fetches the v2 form of everything the server lists; the map is
// empty where the server does not have it.
func (s *Source) readAggregated(ctx context.Context) (map[schema.GroupVersion][]apidiscovery.APIResourceDiscovery, error) {
	out := map[schema.GroupVersion][]apidiscovery.APIResourceDiscovery{}
	for _, path := range []string{"/api", "/apis"} {
		answer, err := s.get(ctx, path, acceptAggregated, "")
		if err != nil {
			return nil, err
		}
		if s.cfg.GroupVersions == nil && answer.code != http.StatusOK && answer.code != http.StatusNotFound {
			// The list would lack the groups under this path.
			return nil, fmt.Errorf("bad status from %s: %d", answer.url, answer.code)
		}
		if answer.code != http.StatusOK || !answer.aggregated {
			continue
		}
		list := &apidiscovery.APIGroupDiscoveryList{}
		if err := answer.decode(list); err != nil {
			return nil, err
		}
		for _, g := range list.Items {
			for _, v := range g.Versions {
				if v.Freshness == apidiscovery.DiscoveryFreshnessStale {
					continue
				}
				out[schema.GroupVersion{Group: g.Name, Version: v.Version}] = complete(v.Resources)
			}
		}
	}
	return out, nil
}

// complete makes sure that responseKind is an object everywhere; older clients
// crash on null (contract 2.3).
func complete(resources []apidiscovery.APIResourceDiscovery) []apidiscovery.APIResourceDiscovery {
	for i := range resources {
		if resources[i].ResponseKind == nil {
			resources[i].ResponseKind = &metav1.GroupVersionKind{}
		}
		for j := range resources[i].Subresources {
			if resources[i].Subresources[j].ResponseKind == nil {
				resources[i].Subresources[j].ResponseKind = &metav1.GroupVersionKind{}
			}
		}
	}
	if resources == nil {
		resources = []apidiscovery.APIResourceDiscovery{}
	}
	return resources
}

// list returns every group/version the server lists.
func (s *Source) list(ctx context.Context, aggregated map[schema.GroupVersion][]apidiscovery.APIResourceDiscovery) ([]schema.GroupVersion, error) {
	var out []schema.GroupVersion
	if len(aggregated) > 0 {
		for gv := range aggregated {
			out = append(out, gv)
		}
		slices.SortFunc(out, func(a, b schema.GroupVersion) int { return strings.Compare(a.String(), b.String()) })
		return out, nil
	}
	core := &metav1.APIVersions{}
	if err := s.getDocument(ctx, "/api", core); err != nil && !errors.Is(err, errAbsent) {
		return nil, err
	}
	for _, v := range core.Versions {
		out = append(out, schema.GroupVersion{Version: v})
	}
	groups := &metav1.APIGroupList{}
	if err := s.getDocument(ctx, "/apis", groups); err != nil {
		return nil, err
	}
	for _, g := range groups.Groups {
		for _, v := range g.Versions {
			out = append(out, schema.GroupVersion{Group: g.Name, Version: v.Version})
		}
	}
	return out, nil
}

func (s *Source) readLegacy(ctx context.Context, gv schema.GroupVersion) ([]metav1.APIResource, error) {
	list := &metav1.APIResourceList{}
	if err := s.getDocument(ctx, groupVersionPath(gv), list); err != nil {
		return nil, err
	}
	if list.GroupVersion != gv.String() {
		return nil, fmt.Errorf("%s%s describes %q", s.cfg.BaseURL, groupVersionPath(gv), list.GroupVersion)
	}
	slices.SortFunc(list.APIResources, func(a, b metav1.APIResource) int { return strings.Compare(a.Name, b.Name) })
	return list.APIResources, nil
}

func groupVersionPath(gv schema.GroupVersion) string {
	if gv.Group == "" {
		return "/api/" + gv.Version
	}
	return "/apis/" + gv.Group + "/" + gv.Version
}
