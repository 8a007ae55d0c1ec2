package rest

import (
	"net/http"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico/resource"
)

// list answers with a page of objects.
func (a *API) list(w http.ResponseWriter, r *http.Request, act *resource.Action, res *Resource) error {
	if err := refuseExport(r.URL.Query()); err != nil {
		return err
	}
	f, err := negotiate(r, a.offerOf(act, res, nil))
	if err != nil {
		return err
	}
	opts, err := a.listOptions(r, act, res)
	if err != nil {
		return err
	}
	l, err := res.Store.List(r.Context(), opts)
	if err != nil {
		return err
	}
	return a.sendList(w, r, act, res, l, f)
}

// writeList answers with a list of stored objects in the negotiated form.
func (a *API) writeList(w http.ResponseWriter, r *http.Request, act *resource.Action, res *Resource, l *resource.List) error {
	f, err := negotiate(r, a.offerOf(act, res, nil))
	if err != nil {
		return err
	}
	return a.sendList(w, r, act, res, l, f)
}

func (a *API) sendList(w http.ResponseWriter, r *http.Request, act *resource.Action, res *Resource, l *resource.List, f format) error {
	b, err := a.listBody(r, act, res, l, f)
	if err != nil {
		return err
	}
	if b, err = b.finish(f); err != nil {
		return err
	}
	a.respond(w, r, http.StatusOK, f.media.contentType(), b)
	return nil
}

// listBody puts the list together in JSON or protobuf. Every item is rendered
// before the first byte is sent, so that one that cannot be is an error Status.
func (a *API) listBody(r *http.Request, act *resource.Action, res *Resource, l *resource.List, f format) (*body, error) {
	head := metav1.ListMeta{
		ResourceVersion:    strconv.FormatInt(l.Revision, 10),
		Continue:           l.Continue,
		RemainingItemCount: l.Remaining,
	}
	if f.transform == asTable {
		t, err := a.newTables(r, act, res, f)
		if err != nil {
			return nil, err
		}
		data, err := t.encode(head, l.Items, true)
		if err != nil {
			return nil, err
		}
		return bodyOf(data), nil
	}
	shape := formOf(f, act.Version)
	items := make([][]byte, len(l.Items))
	for i, o := range l.Items {
		data, err := a.render(res.Kind, o, shape)
		if err != nil {
			return nil, err
		}
		items[i] = data
	}
	gvk := res.GVK(act.Version)
	item := &gvk
	if !res.typed(act.Version) {
		item = nil
	}
	list := gvk
	list.Kind = res.List()
	if f.transform == asPartialList {
		list, item = metaGVK(f.metaVersion, "PartialObjectMetadataList"), nil
	}
	if shape.media == mediaProtobuf {
		return protobufList(list, head, items)
	}
	return jsonList(list, head, items, item)
}
