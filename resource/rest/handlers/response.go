package handlers

import (
	"net/http"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico/resource"
	"portico/resource/response"
	"portico/resource/rest"
	"portico/resource/rest/form"
)

// offerOf returns the formats that the endpoint of an action has.
func (a *API) offerOf(act *resource.Action, res *rest.Resource, sub *rest.Subresource) response.Offer {
	o := response.Offer{Extra: a.extra, Transforms: !res.Virtual() || res.Computed, Stream: act.Verb == "watch", GVK: res.GVK(act.Version)}
	codec, object := res.Codec, o.GVK
	if act.Verb == "list" || act.Verb == "deletecollection" {
		o.List = true
		o.GVK.Kind = res.List()
	}
	switch {
	case sub != nil && sub.Projection != nil:
		projected := sub.Projection.Kind
		codec, object = projected.Codec, projected.GVK(projected.Versions[0])
		o.GVK = object
	case sub != nil && !sub.GVK.Empty():
		object, o.GVK, o.Transforms = sub.GVK, sub.GVK, false
	}
	o.Protobuf = func() bool {
		_, ok := codec.StrategicMerge(object).(runtime.ProtobufMarshaller)
		return ok
	}
	return o
}

// tables returns the Tables of a response; nil unless the format is Table.
func (a *API) tables(r *http.Request, act *resource.Action, res *rest.Resource, f response.Format) (*form.Tables, error) {
	if f.Transform != response.AsTable {
		return nil, nil
	}
	return form.NewTables(r, a.forms, res.Kind, act.Version, f.MetaVersion)
}

// writeObject responds to a write with a stored object, or one that a dry run would have
// stored, in the version of the request and the negotiated format.
func (a *API) writeObject(w http.ResponseWriter, r *http.Request, act *resource.Action, res *rest.Resource, code int, o *resource.Object) error {
	offer := a.offerOf(act, res, nil)
	offer.List = false
	f, err := response.Negotiate(r, offer)
	if err != nil {
		return err
	}
	// The form has one reader: it is not cached.
	return a.sendObject(w, r, act, res, code, o, f, func(k *rest.Kind, o *resource.Object, f form.Form) ([]byte, error) { return f.Encode(k, o) })
}

// sendObject responds with one object in a format.
func (a *API) sendObject(w http.ResponseWriter, r *http.Request, act *resource.Action, res *rest.Resource, code int, o *resource.Object, f response.Format,
	encode func(*rest.Kind, *resource.Object, form.Form) ([]byte, error)) error {
	t, err := a.tables(r, act, res, f)
	if err != nil {
		return err
	}
	var data []byte
	if t != nil {
		head := metav1.ListMeta{}
		if o.Revision != 0 {
			head.ResourceVersion = strconv.FormatInt(o.Revision, 10)
		}
		data, err = t.Encode(head, []*resource.Object{o}, true)
	} else {
		data, err = encode(res.Kind, o, form.Of(f, act.Version))
	}
	if err != nil {
		return err
	}
	return send(w, r, code, data, f)
}

// send responds with the JSON or protobuf of an object in a format.
func send(w http.ResponseWriter, r *http.Request, code int, data []byte, f response.Format) error {
	b, err := response.Finish(data, f)
	if err != nil {
		return err
	}
	response.Write(w, r, code, f.Media.ContentType(), b)
	return nil
}

// writeDecoded responds with an object that is not stored (reviews, tokens), as gvk in the
// negotiated format.
func (a *API) writeDecoded(w http.ResponseWriter, r *http.Request, res *rest.Resource, code int, obj runtime.Object, gvk schema.GroupVersionKind) error {
	f, err := response.Negotiate(r, response.OfferObject(obj, a.extra...))
	if err != nil {
		return err
	}
	contentType := runtime.ContentTypeJSON
	if f.Media == response.Protobuf {
		contentType = runtime.ContentTypeProtobuf
	}
	data, err := res.Codec.Encode(obj, gvk, contentType)
	if err != nil {
		return err
	}
	return send(w, r, code, data, f)
}
