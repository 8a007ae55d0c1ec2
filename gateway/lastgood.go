package gateway

import (
	"bytes"
	"context"
	"fmt"
	"hash/maphash"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apireg "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico/apiservice/backend"
	"portico/gateway/access"
	"portico/resource"
	"portico/resource/etcd"
	"portico/resource/loop"
	"portico/resource/rest"
)

const (
	// keepInterval is how often what is known is compared with what is kept.
	// That costs next to nothing while nothing changes.
	keepInterval = 2 * time.Second
	// ownCopyAfter is how long a gateway that starts waits for etcd before it
	// takes its own groups from the local copy.
	ownCopyAfter = time.Second
)

// The documents by name. Those of the gateway's own groups are in the local
// copy only: etcd has them already.
const (
	documentsOfBackends    = "backend/"
	documentsOfAPIServices = "apiservice/"
	documentsOfOwn         = "own/"
	documentServices       = "core/services"
	documentAccounts       = "core/serviceaccounts"
	documentSecrets        = "core/secrets"
)

// lastGood keeps what the gateway last knew of others, for a gateway that
// starts while they are away: what each server said that it serves, where
// registered servers are, and what token checks ask the core server. It is kept
// in etcd, a document for each server, and in a local copy for a gateway that
// starts while etcd is away. That holds the gateway's own groups as well, as far
// as routes and access come from them.
//
// What was restored is known to be that: a server's own word replaces it, and
// nothing is taken away because a restored document lacks it.
type lastGood struct {
	log      *slog.Logger
	sync     *syncer
	core     *coreClient
	access   *access.Access
	find     func(schema.GroupResource) *rest.Resource
	services *rest.Resource   // the APIServices
	backends *rest.Resource   // the Backends
	own      []*rest.Resource // what the local copy has of the gateway's own
	ownReady func() bool      // reports whether these can be listed
	etcd     *etcd.Documents
	copy     *localCopy // nil: there is none

	// read is closed once etcd's documents are restored.
	read chan struct{}
	seed maphash.Seed

	mu     sync.Mutex
	packed map[string]packedDocument
}

// packedDocument is a document as it is kept.
type packedDocument struct {
	// state identifies what it was made of; nil is a document from before,
	// which stands until there is something to replace it.
	state any
	data  []byte
}

// nowDocument is a document as of what is known now. Documents with equal
// states are equal.
type nowDocument struct {
	name  string
	state any
	value func() any
}

// run restores what was kept and keeps the local copy until ctx ends.
func (l *lastGood) run(ctx context.Context) error {
	var copied map[string][]byte
	if l.copy != nil {
		var err error
		if copied, err = l.copy.read(); err != nil {
			l.log.Warn("the local last-good copy is not used", "err", err)
		}
		l.restore(copied)
	}
	return loop.Together(ctx, l.readEtcd,
		func(ctx context.Context) error { return l.restoreOwn(ctx, copied) },
		l.keepCopy,
	)
}

// readEtcd restores what is kept in etcd, once etcd can be read.
func (l *lastGood) readEtcd(ctx context.Context) error {
	err := loop.Retry(ctx, loop.Backoff{Max: maxFollowPause}, func(ctx context.Context) error {
		docs, err := l.etcd.Read(ctx)
		if err != nil {
			return err
		}
		data := make(map[string][]byte, len(docs))
		for name, d := range docs {
			data[name] = d.Data
		}
		l.restore(data)
		close(l.read)
		return nil
	})
	if err != nil {
		return err
	}
	<-ctx.Done()
	return ctx.Err()
}

// await waits until etcd's documents are restored; false if ctx ended.
func (l *lastGood) await(ctx context.Context) bool {
	select {
	case <-l.read:
		return true
	case <-ctx.Done():
		return false
	}
}

// collect brings the documents up to date and returns them. What is not known
// now stays as it was kept.
func (l *lastGood) collect(ctx context.Context) map[string][]byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, d := range l.now(ctx) {
		if old, ok := l.packed[d.name]; ok && old.state == d.state {
			continue
		}
		data, err := pack(d.value())
		if err != nil {
			l.log.Error("a last-good document cannot be made", "document", d.name, "err", err)
			continue
		}
		if old := l.packed[d.name]; bytes.Equal(old.data, data) {
			data = old.data // whoever has it recognises it
		}
		l.packed[d.name] = packedDocument{d.state, data}
	}
	gone := l.gone()
	maps.DeleteFunc(l.packed, func(name string, _ packedDocument) bool { return gone(name) })
	out := make(map[string][]byte, len(l.packed))
	for name, d := range l.packed {
		out[name] = d.data
	}
	return out
}

// restored counts the documents from before that nobody has said anew.
func (l *lastGood) restored() (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, d := range l.packed {
		if d.state == nil {
			n++
		}
	}
	return n
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
		ofServer := strings.HasPrefix(document, documentsOfAPIServices) || strings.HasPrefix(document, documentsOfBackends)
		return ofServer && !there[document]
	}
}

// now returns the documents of all that is known now, from those who know.
func (l *lastGood) now(ctx context.Context) []nowDocument {
	var out []nowDocument
	if live := l.sync.live.Load(); live != nil {
		for target, srv := range *live {
			if gvs, _ := srv.source.GroupVersions(); srv.source.Heard() {
				out = append(out, nowDocument{target, identity(gvs), func() any { return keptVersions(gvs) }})
			}
		}
	}
	out = append(out, l.ofCore()...)
	if l.copy != nil && l.ownReady() {
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
func (l *lastGood) ofCore() (out []nowDocument) {
	n := l.sync.told()
	if known := n.services; known != nil && known.known && !known.restored && n.haveServices && n.haveBackends {
		type state struct {
			known    *services
			list     sliceIdentity[*apireg.APIService]
			backends sliceIdentity[*backend.Backend]
		}
		out = append(out, nowDocument{documentServices, state{known, identity(n.apiservices), identity(n.backends)}, func() any {
			return known.named(&n)
		}})
	}
	if s := l.core.serviceAccounts.Load(); s != nil {
		out = append(out, nowDocument{documentAccounts, s, func() any {
			accounts := keptIdentities{}
			for _, o := range s.Items {
				if !o.Terminating() {
					accounts.add(o.Namespace, o.Name, o.UID)
				}
			}
			return accounts
		}})
	}
	if changes := l.core.secrets.changes(); changes > 0 {
		out = append(out, nowDocument{documentSecrets, changes, func() any { return l.core.secrets.kept() }})
	}
	return out
}

// named returns what there is to keep: the Services that APIServices and
// Backends name.
func (s *services) named(n *news) keptServices {
	out := keptServices{Services: []corev1.Service{}, Slices: []discoveryv1.EndpointSlice{}}
	done := map[resource.Key]bool{}
	add := func(key resource.Key) {
		svc := s.service[key]
		if svc == nil || done[key] {
			return
		}
		done[key] = true
		out.Services = append(out.Services, keptService(svc))
		for _, slice := range s.slices[key] {
			out.Slices = append(out.Slices, keptSlice(slice))
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
func (l *lastGood) ofOwn(ctx context.Context) (out []nowDocument) {
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
		out = append(out, nowDocument{documentsOfOwn + r.Resource, sum.Sum64(), func() any {
			kept := make([]keptObject, 0, len(list.Items))
			for _, o := range list.Items {
				kept = append(kept, keptObject{o.Revision, o.Stored()})
			}
			return kept
		}})
	}
	return out
}
