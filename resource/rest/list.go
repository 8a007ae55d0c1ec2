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
	f, err := a.readFormat(r, act, res)
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

// sendList sends the list as it is made, a piece at a time.
func (a *API) sendList(w http.ResponseWriter, r *http.Request, act *resource.Action, res *Resource, l *resource.List, f format) error {
	e, err := a.listEncoder(r, act, res, l, f)
	if err != nil {
		return err
	}
	return a.stream(w, r, f.media.contentType(), e, l.Items)
}

// listEncoder returns what makes the list in the negotiated form.
func (a *API) listEncoder(r *http.Request, act *resource.Action, res *Resource, l *resource.List, f format) (listEncoder, error) {
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
		d, err := t.document(head)
		if err != nil {
			return nil, err
		}
		return d.as(f), nil
	}
	shape := formOf(f, act.Version)
	gvk := res.GVK(act.Version)
	list := gvk
	list.Kind = res.List()
	if f.transform == asPartialList {
		list = metaGVK(f.metaVersion, "PartialObjectMetadataList")
	}
	render := func(o *resource.Object) ([]byte, error) { return a.render(res.Kind, o, shape) }
	if shape.media == mediaProtobuf {
		return newProtobufList(list, head, render)
	}
	d, err := newDocument(list, head, render)
	if err != nil {
		return nil, err
	}
	if f.transform != asPartialList && res.typed(act.Version) {
		d.member = bareMember(gvk, render)
	}
	return d.as(f), nil
}
