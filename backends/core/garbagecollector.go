package core

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"hash/maphash"
	"slices"
	"sync"

	apidiscovery "k8s.io/api/apidiscovery/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/record"
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

	// known are the servers in the documents that were read last, of which read has the hashes.
	known []garbage.Server
	read  [2]uint64
}

// documentSeed is the seed of the hashes of documents.
var documentSeed = maphash.MakeSeed()

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
	client, err := corev1client.NewForConfig(g.core.clientConfig())
	if err != nil {
		return fmt.Errorf("make client of events: %w", err)
	}
	events := record.NewBroadcaster(record.WithContext(ctx))
	defer events.Shutdown()
	events.StartRecordingToSink(&corev1client.EventSinkImpl{Interface: client.Events("")})
	collector := garbage.New(garbage.NewAPI(objects, g.core.mapper), g.metrics, g.core.log)
	collector.Events = events.NewRecorder(scheme.Scheme, corev1.EventSource{Component: garbage.Component})
	sources := &garbage.Sources{Graph: collector.Graph, Servers: g.servers, Gateway: g.gateway, Metadata: objects, Metrics: g.metrics, Log: g.core.log}
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { _ = sources.Run(ctx) }) // it ends with ctx
	sources.Filled(ctx)
	return collector.Run(ctx)
}

// servers returns the servers of all APIServices. Those of the gateway are one. It reads the documents
// every few seconds and decodes them only if they have changed, as they may have thousands of groups.
func (g *garbageCollector) servers(ctx context.Context) ([]garbage.Server, error) {
	list, err := readDocument(ctx, g.gateway, "/apis/apiregistration.k8s.io/v1/apiservices")
	if err != nil {
		return nil, err
	}
	document, err := readDocument(ctx, g.gateway, "/apis")
	if err != nil {
		return nil, err
	}
	// The metadata before the items has the newest revision of etcd.
	_, items, _ := bytes.Cut(list, []byte(`"items":`))
	read := [2]uint64{maphash.Bytes(documentSeed, items), maphash.Bytes(documentSeed, document)}
	if read == g.read {
		return g.known, nil
	}
	var services apireg.APIServiceList
	if err := json.Unmarshal(list, &services); err != nil {
		return nil, fmt.Errorf("decode APIServices: %w", err)
	}
	var groups apidiscovery.APIGroupDiscoveryList
	if err := json.Unmarshal(document, &groups); err != nil {
		return nil, fmt.Errorf("decode /apis: %w", err)
	}
	g.read, g.known = read, serversOf(services.Items, groups.Items)
	return g.known, nil
}

// serversOf returns the servers of APIServices with their resources in discovery.
func serversOf(services []apireg.APIService, groups []apidiscovery.APIGroupDiscovery) []garbage.Server {
	versions := map[string][]apidiscovery.APIVersionDiscovery{}
	for i := range groups {
		versions[groups[i].Name] = groups[i].Versions
	}
	index := map[string]int{}
	var out []garbage.Server
	for i := range services {
		a := &services[i]
		server := serverOf(a)
		at, ok := index[server]
		if !ok {
			at = len(out)
			index[server] = at
			out = append(out, garbage.Server{Name: server, GroupVersion: schema.GroupVersion{Group: a.Spec.Group, Version: a.Spec.Version}})
		}
		out[at].Resources = append(out[at].Resources, watchable(versions[a.Spec.Group], a)...)
	}
	return out
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
// preferred one of the versions of its group that has them.
func watchable(versions []apidiscovery.APIVersionDiscovery, a *apireg.APIService) []garbage.Resource {
	var out []garbage.Resource
	seen := map[string]bool{}
	for _, v := range versions {
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
