package gateway

import (
	"context"
	"fmt"
	"hash/maphash"
	"log/slog"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apireg "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico/apiservice/backend"
	"portico/gateway/access"
	"portico/gateway/lastgood"
	"portico/resource"
	"portico/resource/etcd"
	"portico/resource/rest"
)

// The documents by name. Those of the gateway's own groups are in the local
// copy only: etcd has them already.
const (
	documentsOfBackends    = "backend/"
	documentsOfAPIServices = "apiservice/"
	documentsOfOwn         = "own/"
	// documentsOfOpenAPI opens the names of indexes of OpenAPI documents; the
	// server's own follows.
	documentsOfOpenAPI = "openapi/"
	documentServices   = "core/services"
	documentAccounts   = "core/serviceaccounts"
	documentSecrets    = "core/secrets"
)

// lastGood is who knows what the last-good documents are made of, and where they
// go: servers and what is followed in the core server, and for the local copy the
// gateway's own groups as well, as far as routes and access come from them.
type lastGood struct {
	*lastgood.Keeper
	log      *slog.Logger
	sync     *syncer
	core     *coreClient
	access   *access.Access
	find     func(schema.GroupResource) *rest.Resource
	services *rest.Resource   // the APIServices
	backends *rest.Resource   // the Backends
	own      []*rest.Resource // what the local copy has of the gateway's own
	ownReady func() bool      // reports whether these can be listed
	seed     maphash.Seed
	// openAPI keeps the documents that the indexes name; nil: none are.
	openAPI *lastgood.Folder
}

// keep makes the Keeper.
func (l *lastGood) keep(documents *etcd.Documents, stateDir string) (err error) {
	l.seed = maphash.MakeSeed()
	l.Keeper, err = lastgood.New(lastgood.Config{
		Etcd: documents, StateDir: stateDir, Now: l.now, Restore: l.restoreOne, Gone: l.gone, Away: l.restoreRegistrations, Logger: l.log,
		CopyOnly: func(name string) bool { return strings.HasPrefix(name, documentsOfOwn) },
	})
	return err
}

// gone returns a function that tells documents of APIServices and Backends
// which do not exist any more. While these are not known, none are.
func (l *lastGood) gone() func(document string) bool {
	n := l.sync.told()
	if !n.haveServices || !n.haveBackends {
		return func(string) bool { return false }
	}
	there := make(map[string]bool, len(n.apiservices)+len(n.backends))
	for _, a := range n.apiservices {
		there[targetOfAPIService(a.Name)] = a.Spec.Service != nil
	}
	for _, d := range describe(l.sync.configured, n.backends) {
		there[targetOfBackend(d.name)] = true
	}
	return func(document string) bool {
		document = strings.TrimPrefix(document, documentsOfOpenAPI)
		ofServer := strings.HasPrefix(document, documentsOfAPIServices) || strings.HasPrefix(document, documentsOfBackends)
		return ofServer && !there[document]
	}
}

// now returns the documents of all that is known now, from those who know.
func (l *lastGood) now(ctx context.Context) []lastgood.Document {
	var out []lastgood.Document
	if live := l.sync.live.Load(); live != nil {
		for target, srv := range *live {
			if gvs, _ := srv.source.GroupVersions(); srv.source.Heard() {
				out = append(out, lastgood.Document{Name: target, State: identity(gvs), Value: func() any { return lastgood.Versions(gvs) }})
			}
			if index := srv.source.HeardOpenAPI(); index != nil {
				out = append(out, lastgood.Document{Name: documentsOfOpenAPI + target, State: index, Value: func() any { return index }})
			}
		}
	}
	out = append(out, l.ofCore()...)
	if l.HasCopy() && l.ownReady() {
		out = append(out, l.ofOwn(ctx)...)
	}
	return out
}

// sliceIdentity tells two slices of one maker apart, who makes another when
// something changes.
type sliceIdentity[T any] struct {
	first *T
	n     int
}

func identity[T any](list []T) sliceIdentity[T] {
	if len(list) == 0 {
		return sliceIdentity[T]{}
	}
	return sliceIdentity[T]{&list[0], len(list)}
}

// ofCore returns the documents of what is followed in the core server.
func (l *lastGood) ofCore() (out []lastgood.Document) {
	n := l.sync.told()
	if known := n.services; known != nil && known.known && !known.restored && n.haveServices && n.haveBackends {
		type state struct {
			known    *services
			list     sliceIdentity[*apireg.APIService]
			backends sliceIdentity[*backend.Backend]
		}
		out = append(out, lastgood.Document{Name: documentServices, State: state{known, identity(n.apiservices), identity(n.backends)}, Value: func() any {
			return known.named(&n)
		}})
	}
	if s := l.core.serviceAccounts.Load(); s != nil {
		out = append(out, lastgood.Document{Name: documentAccounts, State: s, Value: func() any {
			accounts := lastgood.Identities{}
			for _, o := range s.Items {
				if !o.Terminating() {
					accounts.Add(o.Namespace, o.Name, o.UID)
				}
			}
			return accounts
		}})
	}
	if changes := l.core.secrets.changes(); changes > 0 {
		out = append(out, lastgood.Document{Name: documentSecrets, State: changes, Value: func() any { return l.core.secrets.kept() }})
	}
	return out
}

// named returns what there is to keep: the Services that APIServices and
// Backends name.
func (s *services) named(n *news) lastgood.Services {
	out := lastgood.Services{Services: []corev1.Service{}, Slices: []discoveryv1.EndpointSlice{}}
	done := map[resource.Key]bool{}
	add := func(key resource.Key) {
		svc := s.service[key]
		if svc == nil || done[key] {
			return
		}
		done[key] = true
		out.Services = append(out.Services, lastgood.ServiceOf(svc))
		for _, slice := range s.slices[key] {
			out.Slices = append(out.Slices, lastgood.SliceOf(slice))
		}
	}
	for _, a := range n.apiservices {
		if ref := a.Spec.Service; ref != nil {
			add(resource.Key{Namespace: ref.Namespace, Name: ref.Name})
		}
	}
	for _, b := range n.backends {
		if ref := b.Spec.Service; ref != nil {
			add(resource.Key{Namespace: ref.Namespace, Name: ref.Name})
		}
	}
	return out
}

// ofOwn returns the documents of the gateway's own groups.
func (l *lastGood) ofOwn(ctx context.Context) (out []lastgood.Document) {
	for _, r := range l.own {
		// Any state will do, and is there without asking etcd.
		list, err := r.Store.List(ctx, resource.ListOptions{At: resource.At{Freshness: resource.Any}})
		if err != nil {
			l.log.Debug("own objects cannot be listed for the local copy", "resource", r.Resource, "err", err)
			continue
		}
		var sum maphash.Hash
		sum.SetSeed(l.seed)
		for _, o := range list.Items {
			fmt.Fprintf(&sum, "%s %d\n", o.Key(), o.Revision)
		}
		out = append(out, lastgood.Document{Name: documentsOfOwn + r.Resource, State: sum.Sum64(), Value: func() any {
			kept := make([]lastgood.Object, 0, len(list.Items))
			for _, o := range list.Items {
				kept = append(kept, lastgood.Object{Revision: o.Revision, Data: o.Stored()})
			}
			return kept
		}})
	}
	return out
}
