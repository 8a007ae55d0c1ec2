package handlers

import (
	"encoding/json"
	"net/http"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico/resource"
	"portico/resource/rest"
	"portico/resource/rest/render"
)

// writeObject answers with a stored object, or one that would have been stored
// (dry run), in the action's version and the negotiated form.
func (a *API) writeObject(w http.ResponseWriter, r *http.Request, act *resource.Action, res *rest.Resource, code int, o *resource.Object) error {
	of := a.offerOf(act, res, nil)
	of.list = false
	f, err := negotiate(r, of)
	if err != nil {
		return err
	}
	render := func(k *rest.Kind, o *resource.Object, f form) ([]byte, error) { return f.renderOnce(k, o) }
	b, err := a.objectBody(r, act, res, o, f, render)
	if err != nil {
		return err
	}
	a.respond(w, r, code, f.media.contentType(), b)
	return nil
}

// objectBody makes the body for one object.
func (a *API) objectBody(r *http.Request, act *resource.Action, res *rest.Resource, o *resource.Object, f format,
	render func(*rest.Kind, *resource.Object, form) ([]byte, error)) (responseBody, error) {
	var data []byte
	if f.transform == asTable {
		t, err := a.newTables(r, act, res, f)
		if err != nil {
			return responseBody{}, err
		}
		head := metav1.ListMeta{}
		if o.Revision != 0 {
			head.ResourceVersion = strconv.FormatInt(o.Revision, 10)
		}
		if data, err = t.encode(head, []*resource.Object{o}, true); err != nil {
			return responseBody{}, err
		}
	} else {
		var err error
		if data, err = render(res.Kind, o, formOf(f, act.Version)); err != nil {
			return responseBody{}, err
		}
	}
	return finish(data, f)
}

// writeDecoded answers with a decoded object that is not stored (reviews,
// tokens), as gvk in the negotiated form.
func (a *API) writeDecoded(w http.ResponseWriter, r *http.Request, res *rest.Resource, code int, obj runtime.Object, gvk schema.GroupVersionKind) error {
	f, err := negotiate(r, offerObject(obj))
	if err != nil {
		return err
	}
	data, err := res.Codec.Encode(obj, gvk, f.encoding())
	if err != nil {
		return err
	}
	b, err := finish(data, f)
	if err != nil {
		return err
	}
	a.respond(w, r, code, f.media.contentType(), b)
	return nil
}

// encoding returns the content type to encode in before finish.
func (f format) encoding() string {
	if f.media == mediaProtobuf {
		return runtime.ContentTypeProtobuf
	}
	return runtime.ContentTypeJSON
}

// WriteObject answers with an object that is not stored, as gvk, in the
// negotiated form (JSON, YAML, or protobuf if its type has one). A request that
// accepts none of them gets a 406. Transforms are not offered, except that a
// Status answers a request for any of them; its gvk is known and ignored.
func WriteObject(w http.ResponseWriter, r *http.Request, code int, obj runtime.Object, gvk schema.GroupVersionKind) {
	f, err := negotiate(r, offerObject(obj))
	if _, ok := obj.(*metav1.Status); ok {
		gvk = statusGVK()
		if err != nil {
			of := offerObject(obj)
			of.transforms = true
			f, err = negotiate(r, of)
		}
	}
	if err != nil {
		WriteStatus(w, r, err)
		return
	}
	obj = obj.DeepCopyObject()
	obj.GetObjectKind().SetGroupVersionKind(gvk)
	b, err := encodeFree(obj, gvk, f)
	if err != nil {
		WriteStatus(w, r, err)
		return
	}
	respond(w, r, code, f.media.contentType(), b)
}

// WriteStatus answers with the error as a Status in the negotiated form;
// indented JSON when the request accepts none, or when that is the error. It
// sets Retry-After where the Status says retryAfterSeconds.
func WriteStatus(w http.ResponseWriter, r *http.Request, err error) {
	status := resource.AsStatus(err)
	f, negotiation := negotiate(r, offerObject(status))
	if negotiation != nil || status.Reason == metav1.StatusReasonNotAcceptable {
		f = format{media: mediaJSON, pretty: true}
	}
	b, encoding := encodeFree(status, statusGVK(), f)
	if encoding != nil {
		// A Status is made of strings and numbers: it can always be encoded.
		http.Error(w, status.Message, int(status.Code))
		return
	}
	h := w.Header()
	h.Set("X-Content-Type-Options", "nosniff")
	if d := status.Details; d != nil && d.RetryAfterSeconds > 0 {
		h.Set("Retry-After", strconv.Itoa(int(d.RetryAfterSeconds)))
	}
	respond(w, r, int(status.Code), f.media.contentType(), b)
}

// statusGVK is the kind of a Status on the wire: v1, without the group that its
// Go type belongs to.
func statusGVK() schema.GroupVersionKind {
	return schema.GroupVersionKind{Version: "v1", Kind: "Status"}
}

// encodeFree encodes an object that belongs to no codec.
func encodeFree(obj runtime.Object, gvk schema.GroupVersionKind, f format) (responseBody, error) {
	if f.media == mediaProtobuf {
		m := obj.(runtime.ProtobufMarshaller) // negotiated because it has one
		raw := make([]byte, m.Size())
		n, err := m.MarshalTo(raw)
		if err != nil {
			return responseBody{}, err
		}
		return responseBody{data: render.Envelope(gvk, raw[:n])}, nil
	}
	data, err := json.Marshal(obj)
	if err != nil {
		return responseBody{}, err
	}
	return finish(data, f)
}
