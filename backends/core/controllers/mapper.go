package controllers

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	clientrest "k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
)

// rereadInterval is the shortest time between two readings of discovery for kinds and resources
// that it lacks.
const rereadInterval = 5 * time.Second

// NewMapper returns a RESTMapper of the kinds and resources of all servers behind the gateway.
// It reads discovery when it is used first, and again for a kind or resource that is not in it,
// at most once in rereadInterval.
func NewMapper(gateway *clientrest.Config) (meta.RESTMapper, error) {
	client, err := discovery.NewDiscoveryClientForConfig(gateway)
	if err != nil {
		return nil, fmt.Errorf("make client of discovery: %w", err)
	}
	return restmapper.NewDeferredDiscoveryRESTMapperWithContext(&rereadable{DiscoveryClient: client}), nil
}

// rereadable is discovery that a RESTMapper over it keeps, and reads again when Fresh is false.
type rereadable struct {
	*discovery.DiscoveryClient

	mu   sync.Mutex
	read time.Time
}

// ServerGroupsAndResourcesWithContext reads discovery.
func (r *rereadable) ServerGroupsAndResourcesWithContext(ctx context.Context) ([]*metav1.APIGroup, []*metav1.APIResourceList, error) {
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.read = time.Now()
	}()
	return r.DiscoveryClient.ServerGroupsAndResourcesWithContext(ctx)
}

// FreshWithContext reports whether discovery has been read within rereadInterval. It returns
// false to one caller at a time, which reads it.
func (r *rereadable) FreshWithContext(context.Context) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if time.Since(r.read) < rereadInterval {
		return true
	}
	r.read = time.Now()
	return false
}

// InvalidateWithContext implements discovery.CachedDiscoveryInterfaceWithContext. The RESTMapper
// alone keeps what was read.
func (r *rereadable) InvalidateWithContext(context.Context) {}
