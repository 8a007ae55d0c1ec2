package core

//lint:file-ignore ST1005 The errors are messages of conditions, in the words of kube-controller-manager.

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	apidiscovery "k8s.io/api/apidiscovery/v2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"portico/backends/process"
	"portico/discovery"
	"portico/resource"
	"portico/resource/client"
)

// newGatewayClient returns a client of the gateway; nil if there is no transport.
func newGatewayClient(url string, transport http.RoundTripper) *client.Client {
	if transport == nil {
		return nil
	}
	return client.New(client.Config{BaseURL: url, Transport: aggregatedDiscovery{transport}, UserAgent: process.UserAgent(name)})
}

// aggregatedDiscovery requests the aggregated form of /apis.
type aggregatedDiscovery struct{ next http.RoundTripper }

func (a aggregatedDiscovery) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Path == "/apis" {
		r = r.Clone(r.Context())
		r.Header.Set("Accept", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
	}
	return a.next.RoundTrip(r)
}

// foreign is a resource of another server.
type foreign struct {
	resource.Info
	collection bool // deletecollection is supported
}

// others returns the namespaced resources of other servers that can be listed and deleted. A
// group with a server that is down counts with its last discovery. A group that was never
// discovered is an error, as it may have any objects, unless no server has it.
func (d *drainer) others(ctx context.Context) ([]foreign, error) {
	res, err := d.gateway.Do(ctx, http.MethodGet, "/apis", nil, nil)
	if err != nil {
		return nil, fmt.Errorf("Discovery failed: %w", err)
	}
	defer res.Body.Close()
	list := &apidiscovery.APIGroupDiscoveryList{}
	if err := json.NewDecoder(io.LimitReader(res.Body, 64<<20)).Decode(list); err != nil {
		return nil, fmt.Errorf("Discovery failed: %w", err)
	}
	own := map[string]bool{}
	for _, k := range d.core.kinds {
		own[k.Group] = true
	}
	var out []foreign
	var unknown []string
	for _, g := range list.Items {
		if own[g.Name] {
			continue
		}
		seen := map[string]bool{}
		for _, v := range g.Versions {
			if v.Freshness == apidiscovery.DiscoveryFreshnessStale && len(v.Resources) == 0 && !d.absent(ctx, g.Name, v.Version) {
				unknown = append(unknown, g.Name+"/"+v.Version)
			}
			for _, r := range v.Resources {
				if seen[r.Resource] || r.Scope != apidiscovery.ScopeNamespace || !slices.Contains(r.Verbs, "list") || !slices.Contains(r.Verbs, "delete") {
					continue
				}
				seen[r.Resource] = true
				out = append(out, foreign{
					Info:       resource.Info{Group: g.Name, Versions: []string{v.Version}, Resource: r.Resource, Namespaced: true},
					collection: slices.Contains(r.Verbs, "deletecollection"),
				})
			}
		}
	}
	if len(unknown) > 0 {
		slices.Sort(unknown)
		return out, fmt.Errorf("Discovery failed for some groups, %d failing: unable to retrieve the complete list of server APIs: %s", len(unknown), strings.Join(unknown, ", "))
	}
	return out, nil
}

// absent reports whether a group/version without discovery is registered and no server has
// it, so that it has no objects.
func (d *drainer) absent(ctx context.Context, group, version string) bool {
	res, err := d.gateway.Do(ctx, http.MethodGet, "/apis/"+group+"/"+version, nil, nil)
	if err == nil {
		_ = res.Body.Close()
	}
	return apierrors.HasStatusCause(err, discovery.CauseNotServed)
}

// controllerUser returns the user that deletes the objects of the core server. Its requests
// pass the same admission as those of other clients.
func controllerUser() *resource.User {
	return &resource.User{Name: "system:serviceaccount:kube-system:namespace-controller", Groups: []string{resource.GroupMasters}}
}
