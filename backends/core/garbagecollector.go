package core

import (
	"context"
	"fmt"
	"slices"
	"sync"

	apidiscovery "k8s.io/api/apidiscovery/v2"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
	apireg "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico/apiservice"
	"portico/backends/core/garbage"
	"portico/resource/client"
)

// maxDocument bounds the documents that controllers read from the gateway, in bytes.
const maxDocument = 64 << 20

// garbageCollector deletes the dependents of absent owners, on all servers behind the
// gateway. One core server at a time does.
type garbageCollector struct {
	core    *Core
	gateway *client.Client
	metrics *garbage.Metrics
}

// run collects garbage whenever this process is the leader, until ctx ends.
func (g *garbageCollector) run(ctx context.Context) error {
	if g.gateway == nil { // the server is alone
		<-ctx.Done()
		return ctx.Err()
	}
	return g.core.campaign(ctx, "garbage-collector", func(ctx context.Context) {
		if err := g.collect(ctx); err != nil && ctx.Err() == nil {
			g.core.log.Error("the garbage collector ended", "err", err)
		}
	})
}

// collect runs the garbage collector until ctx ends.
func (g *garbageCollector) collect(ctx context.Context) error {
	objects, err := metadata.NewForConfig(g.core.clientConfig())
	if err != nil {
		return fmt.Errorf("make client of metadata: %w", err)
	}
	collector := garbage.New(garbage.NewAPI(objects, g.core.mapper), g.metrics, g.core.log)
	sources := &garbage.Sources{Graph: collector.Graph, Servers: g.servers, Gateway: g.gateway, Metadata: objects, Metrics: g.metrics, Log: g.core.log}
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { _ = sources.Run(ctx) }) // it ends with ctx
	sources.Filled(ctx)
	return collector.Run(ctx)
}

// servers returns the servers of all APIServices. Those of the gateway are one.
func (g *garbageCollector) servers(ctx context.Context) ([]garbage.Server, error) {
	var services apireg.APIServiceList
	if err := readJSON(ctx, g.gateway, "/apis/apiregistration.k8s.io/v1/apiservices", &services); err != nil {
		return nil, err
	}
	var groups apidiscovery.APIGroupDiscoveryList
	if err := readJSON(ctx, g.gateway, "/apis", &groups); err != nil {
		return nil, err
	}
	index := map[string]int{}
	var out []garbage.Server
	for i := range services.Items {
		a := &services.Items[i]
		server := serverOf(a)
		at, ok := index[server]
		if !ok {
			at = len(out)
			index[server] = at
			out = append(out, garbage.Server{Name: server, GroupVersion: schema.GroupVersion{Group: a.Spec.Group, Version: a.Spec.Version}})
		}
		out[at].Resources = append(out[at].Resources, watchable(&groups, a)...)
	}
	return out, nil
}

// serverOf names the server of an APIService.
func serverOf(a *apireg.APIService) string {
	if s := a.Spec.Service; s != nil {
		return s.Namespace + "/" + s.Name
	}
	if backend := a.Annotations[apiservice.BackendAnnotation]; backend != "" {
		return backend
	}
	return "gateway"
}

// watchable returns the resources of an APIService that can be watched and deleted, in the
// preferred version that has them.
func watchable(groups *apidiscovery.APIGroupDiscoveryList, a *apireg.APIService) []garbage.Resource {
	var out []garbage.Resource
	i := slices.IndexFunc(groups.Items, func(g apidiscovery.APIGroupDiscovery) bool { return g.Name == a.Spec.Group })
	if i < 0 {
		return nil
	}
	seen := map[string]bool{}
	for _, v := range groups.Items[i].Versions {
		for _, r := range v.Resources {
			if seen[r.Resource] {
				continue
			}
			seen[r.Resource] = true
			if v.Version == a.Spec.Version && slices.Contains(r.Verbs, "watch") && slices.Contains(r.Verbs, "list") && slices.Contains(r.Verbs, "delete") {
				gvr := schema.GroupVersionResource{Group: a.Spec.Group, Version: v.Version, Resource: r.Resource}
				out = append(out, garbage.Resource{GroupVersionResource: gvr, Kind: r.ResponseKind.Kind})
			}
		}
	}
	return out
}
