package admission

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"portico/resource/client"
)

const (
	// mappingLife is how long it is believed what resource a kind is.
	mappingLife = 30 * time.Second
	// maxDiscovery bounds the discovery document of a group and version, in bytes.
	maxDiscovery = 16 << 20
)

// paramKind names a kind of parameters as policies do.
type paramKind struct{ apiVersion, kind string }

// params follows the parameters of the policies of one engine: objects of any
// kind, of which it knows nothing before a policy names it.
type params struct {
	meta.RESTMapper // nil: the engines ask for RESTMapping only
	gateway         *client.Client
	config          *restclient.Config
	transport       *http.Client

	// client is made with the first kind.
	client dynamic.Interface

	mu        sync.Mutex
	mappings  map[schema.GroupVersionKind]mapped
	followers sync.WaitGroup
	followed  map[paramKind]*followed // the build loop's own
}

// followed is a kind of parameters that is followed.
type followed struct {
	mapping  *meta.RESTMapping
	informer informers.GenericInformer
	stop     context.CancelFunc
}

// mapped is a resource that was found.
type mapped struct {
	mapping *meta.RESTMapping
	until   time.Time
}

func newParams(e *Engine) *params {
	return &params{
		gateway: e.client, config: &restclient.Config{Host: e.cfg.BaseURL, UserAgent: e.cfg.UserAgent, QPS: -1},
		transport: &http.Client{Transport: e.cfg.Transport},
		mappings:  map[schema.GroupVersionKind]mapped{}, followed: map[paramKind]*followed{},
	}
}

// search finds the parameters of all policies at one time. A kind is looked for
// once however many policies name it, and one that none of them named is no
// longer followed when the search ends.
type search struct {
	params *params
	ctx    context.Context
	found  map[paramKind]*followed
	failed map[paramKind]error
}

// search begins a search; what it finds is followed until ctx ends or a later
// search does without it.
func (p *params) search(ctx context.Context) *search {
	return &search{p, ctx, map[paramKind]*followed{}, map[paramKind]error{}}
}

func (s *search) find(kind paramKind) (*followed, error) {
	if f, err := s.found[kind], s.failed[kind]; f != nil || err != nil {
		return f, err
	}
	f, err := s.params.follow(s.ctx, kind)
	if err != nil {
		s.failed[kind] = err
		return nil, err
	}
	s.found[kind] = f
	return f, nil
}

func (s *search) end() {
	for kind, f := range s.params.followed {
		if s.found[kind] == nil {
			f.stop()
			delete(s.params.followed, kind)
		}
	}
}

// follow begins to follow a kind of parameters, unless that was done before.
func (p *params) follow(ctx context.Context, kind paramKind) (*followed, error) {
	if f := p.followed[kind]; f != nil {
		return f, nil
	}
	gv, err := schema.ParseGroupVersion(kind.apiVersion)
	if err != nil {
		return nil, fmt.Errorf("failed to parse paramKind APIVersion: %w", err)
	}
	gvk := gv.WithKind(kind.kind)
	mapping, err := p.RESTMapping(gvk.GroupKind(), gvk.Version)
	if err != nil {
		return nil, fmt.Errorf("failed to find resource referenced by paramKind: '%v'", gvk)
	}
	if p.client == nil {
		if p.client, err = dynamic.NewForConfigAndClient(p.config, p.transport); err != nil {
			return nil, fmt.Errorf("make client of parameters: %w", err)
		}
	}
	f := &followed{mapping: mapping}
	ctx, f.stop = context.WithCancel(ctx)
	f.informer = dynamicinformer.NewFilteredDynamicInformer(p.client, mapping.Resource, metav1.NamespaceAll, 0,
		cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}, nil)
	p.followers.Go(func() { f.informer.Informer().RunWithContext(ctx) })
	p.followed[kind] = f
	return f, nil
}

// stop stops following, and returns when nothing is followed any more.
func (p *params) stop() {
	p.search(context.Background()).end()
	p.followers.Wait()
}

// RESTMapping finds out by discovery what resource a kind is. A kind that is
// not served is a NoKindMatchError. It implements meta.RESTMapper, which has no
// context, and is safe for concurrent use.
func (p *params) RESTMapping(gk schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	if len(versions) != 1 {
		return nil, fmt.Errorf("find resource of %s: exactly one version is needed", gk)
	}
	gvk := gk.WithVersion(versions[0])
	p.mu.Lock()
	m, ok := p.mappings[gvk]
	p.mu.Unlock()
	if ok && time.Now().Before(m.until) {
		return m.mapping, nil
	}
	mapping, err := p.discover(gvk)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		delete(p.mappings, gvk)
		return nil, err
	}
	p.mappings[gvk] = mapped{mapping, time.Now().Add(mappingLife)}
	return mapping, nil
}

// discover reads one group and version, which is all that is needed.
func (p *params) discover(gvk schema.GroupVersionKind) (*meta.RESTMapping, error) {
	if p.gateway == nil {
		return nil, errors.New("there is no way to the servers of other kinds")
	}
	ctx, cancel := context.WithTimeout(context.Background(), lookupTimeout)
	defer cancel()
	path := "/apis/" + gvk.GroupVersion().String()
	if gvk.Group == "" {
		path = "/api/" + gvk.Version
	}
	res, err := p.gateway.Do(ctx, http.MethodGet, path, nil, nil)
	if apierrors.IsNotFound(err) {
		return nil, &meta.NoKindMatchError{GroupKind: gvk.GroupKind(), SearchedVersions: []string{gvk.Version}}
	}
	if err != nil {
		return nil, fmt.Errorf("discover %s: %w", gvk.GroupVersion(), err)
	}
	defer res.Body.Close()
	list := &metav1.APIResourceList{}
	if err := json.NewDecoder(io.LimitReader(res.Body, maxDiscovery)).Decode(list); err != nil {
		return nil, fmt.Errorf("discover %s: %w", gvk.GroupVersion(), err)
	}
	for _, r := range list.APIResources {
		if r.Kind == gvk.Kind && !strings.Contains(r.Name, "/") {
			return mappingOf(gvk, r), nil
		}
	}
	return nil, &meta.NoKindMatchError{GroupKind: gvk.GroupKind(), SearchedVersions: []string{gvk.Version}}
}

func mappingOf(gvk schema.GroupVersionKind, r metav1.APIResource) *meta.RESTMapping {
	scope := meta.RESTScopeRoot
	if r.Namespaced {
		scope = meta.RESTScopeNamespace
	}
	return &meta.RESTMapping{Resource: gvk.GroupVersion().WithResource(r.Name), GroupVersionKind: gvk, Scope: scope}
}
