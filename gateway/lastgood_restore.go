package gateway

import (
	"log/slog"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	apireg "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico/apiservice/backend"
	"portico/gateway/lastgood"
	"portico/resource"
	"portico/resource/rest"
)

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
	l.access.Restore(l.find, func(gr schema.GroupResource) []*resource.Object { return objects(gr.Resource) })
	list := decodeAll[*apireg.APIService](l.log, l.services, objects(l.services.Resource))
	if len(list) > 0 {
		l.sync.RestoreRegistrations(list, decodeAll[*backend.Backend](l.log, l.backends, objects(l.backends.Resource)))
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
