package aggregate

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	apidiscovery "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico/discovery"
)

// errTold says that reading was given up because a stream tells the same.
var errTold = errors.New("a stream tells of it")

// version is what the v2 form says of a group/version.
type version struct {
	resources []apidiscovery.APIResourceDiscovery
	stale     bool
}

// read fetches everything wanted under a path, in both forms. It is not the
// whole if a group/version that the server listed was gone when it was asked
// for; what was known of that is there then.
func (s *Source) read(ctx context.Context, path string) (gvs []discovery.GroupVersion, whole bool, err error) {
	list := path
	if s.cfg.GroupVersions != nil {
		if list = pathGroups; strings.HasPrefix(path, pathCore+"/") {
			list = pathCore
		}
	}
	aggregated, isAggregated, err := s.readAggregated(ctx, list)
	if err != nil {
		return nil, false, err
	}
	wanted, err := s.wanted(ctx, path, aggregated, isAggregated)
	if err != nil {
		return nil, false, err
	}
	known := s.knownVersions()
	absent := s.absences(path, known)
	whole = true
	gvs = make([]discovery.GroupVersion, 0, len(wanted))
	for _, gv := range wanted {
		if s.told(path) {
			return nil, false, errTold
		}
		if s.cfg.GroupVersions == nil && aggregated[gv].stale {
			gvs = append(gvs, known.stale(gv))
			continue
		}
		legacy, err := s.readLegacy(ctx, gv)
		if errors.Is(err, errAbsent) && s.cfg.GroupVersions == nil {
			whole = false
			if gv, ok := absent.take(gv); ok {
				gvs = append(gvs, gv)
			}
			continue
		}
		if err != nil {
			return nil, false, err
		}
		g := discovery.GroupVersion{Group: gv.Group, Version: gv.Version, Legacy: legacy, Aggregated: aggregated[gv].resources}
		if g.Aggregated == nil || aggregated[gv].stale {
			g.Aggregated = discovery.Aggregate(gv.Group, gv.Version, legacy)
		}
		gvs = append(gvs, known.keep(g))
	}
	absent.end()
	return gvs, whole, nil
}

// readAggregated fetches the v2 form of what the server lists under a path; ok
// is false where the server does not have it.
func (s *Source) readAggregated(ctx context.Context, path string) (out map[schema.GroupVersion]version, ok bool, err error) {
	answer, err := s.get(ctx, path, acceptAggregated, "")
	if err != nil {
		return nil, false, err
	}
	if s.cfg.GroupVersions == nil && answer.code != http.StatusOK && answer.code != http.StatusNotFound {
		// The list would lack the groups under this path.
		return nil, false, fmt.Errorf("bad status from %s: %d", answer.url, answer.code)
	}
	if answer.code != http.StatusOK || !answer.aggregated {
		return nil, false, nil
	}
	list := &apidiscovery.APIGroupDiscoveryList{}
	if err := answer.decode(list); err != nil {
		return nil, false, err
	}
	out = map[schema.GroupVersion]version{}
	for _, g := range list.Items {
		for _, v := range g.Versions {
			out[schema.GroupVersion{Group: g.Name, Version: v.Version}] = version{
				resources: complete(v.Resources), stale: v.Freshness == apidiscovery.DiscoveryFreshnessStale,
			}
		}
	}
	return out, true, nil
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

// wanted returns the group/versions to read of a path: those asked for, or all
// that the server lists there.
func (s *Source) wanted(ctx context.Context, path string, aggregated map[schema.GroupVersion]version, isAggregated bool) (out []schema.GroupVersion, err error) {
	switch {
	case s.cfg.GroupVersions != nil:
		for _, gv := range s.cfg.GroupVersions {
			if groupVersionPath(gv) == path {
				out = append(out, gv)
			}
		}
	case isAggregated:
		for gv := range aggregated {
			out = append(out, gv)
		}
		slices.SortFunc(out, func(a, b schema.GroupVersion) int { return strings.Compare(a.String(), b.String()) })
	case path == pathCore:
		core := &metav1.APIVersions{}
		if err := s.getDocument(ctx, pathCore, core); err != nil && !errors.Is(err, errAbsent) {
			return nil, err
		}
		for _, v := range core.Versions {
			out = append(out, schema.GroupVersion{Version: v})
		}
	default:
		groups := &metav1.APIGroupList{}
		if err := s.getDocument(ctx, pathGroups, groups); err != nil {
			return nil, err
		}
		for _, g := range groups.Groups {
			for _, v := range g.Versions {
				out = append(out, schema.GroupVersion{Group: g.Name, Version: v.Version})
			}
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
		return pathCore + "/" + gv.Version
	}
	return pathGroups + "/" + gv.Group + "/" + gv.Version
}
