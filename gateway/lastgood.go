package gateway

import (
	"context"
	"hash/maphash"
	"log/slog"
	"strings"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apireg "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico/apiservice/backend"
	"portico/gateway/access"
	"portico/gateway/flow"
	"portico/gateway/lastgood"
	"portico/gateway/routing"
	"portico/resource"
	"portico/resource/admission"
	"portico/resource/etcd"
	"portico/resource/rest"
)

// Names of the documents, beside those of routing. Those of the gateway's own groups are
// in the local copy only: etcd has the objects.
const (
	documentsOfOwn   = "own/"
	documentAccounts = "core/serviceaccounts"
	documentSecrets  = "core/secrets"
	// documentsOfAdmission begins the names of webhook configurations and policies.
	documentsOfAdmission = "core/admission/"
)

// lastGood collects the last-good documents and restores them: servers and followed
// objects of the core server, and in the local copy also the gateway's own groups that
// routes and access depend on.
type lastGood struct {
	*lastgood.Keeper
	log       *slog.Logger
	sync      *routing.Controller
	core      *coreClient
	access    *access.Access
	flow      *flow.Flow
	admission *admission.Engine
	find      func(schema.GroupResource) *rest.Resource
	services  *rest.Resource   // the APIServices
	backends  *rest.Resource   // the Backends
	own       []*rest.Resource // own resources in the local copy
	ownReady  func() bool      // reports whether these can be listed
	seed      maphash.Seed
	local     atomic.Bool // routes and access are those of the local copy
}

// keep makes the Keeper.
func (l *lastGood) keep(documents *etcd.Documents, stateDir string) (err error) {
	l.seed = maphash.MakeSeed()
	l.Keeper, err = lastgood.New(lastgood.Config{
		Etcd: documents, StateDir: stateDir, Current: l.now, Restore: l.restoreOne, Gone: l.sync.Gone, WithoutEtcd: l.restoreRegistrations, Logger: l.log,
		LocalOnly: func(name string) bool { return strings.HasPrefix(name, documentsOfOwn) },
	})
	return err
}

// now returns the documents of the current state.
func (l *lastGood) now(ctx context.Context) []lastgood.Document {
	out := append(l.sync.Saved(), l.ofCore()...)
	if l.HasFile() && l.ownReady() {
		out = append(out, l.ofOwn(ctx)...)
	}
	return out
}

// ofCore returns the documents of followed objects of the core server that routes do not
// depend on.
func (l *lastGood) ofCore() (out []lastgood.Document) {
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
	if l.admission != nil {
		for name, s := range l.admission.Configurations() {
			out = append(out, l.objects(documentsOfAdmission+name, s.Items))
		}
	}
	return out
}

// objects returns a document of whole objects.
func (l *lastGood) objects(name string, items []*resource.Object) lastgood.Document {
	var sum maphash.Hash
	sum.SetSeed(l.seed)
	for _, o := range items {
		maphash.WriteComparable(&sum, o.Key())
		maphash.WriteComparable(&sum, o.Revision)
	}
	return lastgood.Document{Name: name, State: sum.Sum64(), Value: func() any {
		kept := make([]lastgood.Object, 0, len(items))
		for _, o := range items {
			kept = append(kept, lastgood.Object{Revision: o.Revision, Data: o.Stored()})
		}
		return kept
	}}
}

// ofOwn returns the documents of the gateway's own groups.
func (l *lastGood) ofOwn(ctx context.Context) (out []lastgood.Document) {
	for _, r := range l.own {
		// Any state, which needs no request to etcd.
		list, err := r.Store.List(ctx, resource.ListOptions{At: resource.At{Freshness: resource.Any}})
		if err != nil {
			l.log.Debug("own objects cannot be listed for the local copy", "resource", r.Resource, "err", err)
			continue
		}
		out = append(out, l.objects(documentsOfOwn+r.Resource, list.Items))
	}
	return out
}

// registerLastGood exports how many documents were restored.
func registerLastGood(registry prometheus.Registerer, restored func() int) {
	registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "portico_gateway_last_good_documents",
		Help: "Last-good documents, of servers and of followed objects of the core server, that were restored and not replaced by newer state yet.",
	}, func() float64 { return float64(restored()) }))
}

// restoreOne restores a document, unless there is newer state.
func (l *lastGood) restoreOne(name string, data []byte) error {
	if mine, err := l.sync.Restore(name, data); mine {
		return err
	}
	if kind, ok := strings.CutPrefix(name, documentsOfAdmission); ok && l.admission != nil {
		objects, err := lastgood.UnpackObjects(data)
		if err != nil {
			return err
		}
		l.admission.Restore(kind, objects)
		return nil
	}
	var identities lastgood.Identities
	switch name {
	case documentAccounts:
		if err := lastgood.Unpack(data, &identities); err != nil {
			return err
		}
		l.core.restoredAccounts.Store(&identities)
	case documentSecrets:
		if err := lastgood.Unpack(data, &identities); err != nil {
			return err
		}
		l.core.secrets.restore(identities)
	}
	return nil // documents of others, and own ones, which restoreOwn restores
}

// restoreRegistrations restores the gateway's own groups from the local copy.
func (l *lastGood) restoreRegistrations(docs map[string][]byte) {
	objects := func(name string) []*resource.Object {
		objects, err := lastgood.UnpackObjects(docs[documentsOfOwn+name])
		if err != nil {
			l.log.Warn("a last-good document is not used", "document", documentsOfOwn+name, "err", err)
		}
		return objects
	}
	ofResource := func(gr schema.GroupResource) []*resource.Object { return objects(gr.Resource) }
	l.access.Restore(l.find, ofResource)
	l.flow.Restore(ofResource)
	list := decodeAll[*apireg.APIService](l.log, l.services, objects(l.services.Resource))
	if len(list) > 0 {
		l.sync.RestoreRegistrations(list, decodeAll[*backend.Backend](l.log, l.backends, objects(l.backends.Resource)))
		l.local.Store(true)
	}
}

// decodeAll decodes objects of one kind and leaves out invalid ones. The result is not
// nil.
func decodeAll[T any](log *slog.Logger, r *rest.Resource, objects []*resource.Object) []T {
	out := make([]T, 0, len(objects))
	for _, o := range objects {
		obj, err := r.Decode(o)
		if err != nil {
			log.Error("an object does not decode and is left out", "resource", r.Resource, "name", o.Name, "err", err)
			continue
		}
		out = append(out, any(obj).(T))
	}
	return out
}
