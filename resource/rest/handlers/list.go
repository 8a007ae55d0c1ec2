package handlers

import (
	"net/http"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico/resource"
	"portico/resource/rest"
)

// list answers with a page of objects.
func (a *API) list(w http.ResponseWriter, r *http.Request, act *resource.Action, res *rest.Resource) error {
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
	opts.Parts = true
	l, err := res.Store.List(r.Context(), opts)
	if err != nil {
		return err
	}
	c := contents{List: l, limit: opts.Limit}
	if l.Page != nil {
		opts.Limit = 0
		c.rest = func(token string) (*resource.List, error) {
			opts.Continue = token
			return res.Store.List(r.Context(), opts)
		}
	}
	return a.sendList(w, r, act, res, c, f)
}

// contents are the objects of a list. Those of a long one may have to be fetched
// in parts.
type contents struct {
	// List is the list, or its first part.
	*resource.List
	// rest returns the part that a token names; nil: the list is whole.
	rest func(token string) (*resource.List, error)
	// limit is how many objects of all parts belong to the list; 0 is all.
	limit int64
	// kept has fetched parts by their tokens, for a list that is iterated twice; nil:
	// nothing is kept. keptBytes is the size of their objects.
	kept      map[string]*resource.List
	keptBytes int
}

// maxKeptBytes bounds the size of the objects, in bytes, that are kept of a list whose
// length is computed before it is sent. The others are fetched twice.
const maxKeptBytes = 32 << 20

// fetch returns the part that a token names.
func (c *contents) fetch(token string) (*resource.List, error) {
	if part := c.kept[token]; part != nil {
		return part, nil
	}
	part, err := c.rest(token)
	if err != nil || c.kept == nil {
		return part, err
	}
	size := 0
	for _, o := range part.Items {
		size += len(o.Data)
	}
	if c.keptBytes+size <= maxKeptBytes {
		c.kept[token] = part
		c.keptBytes += size
	}
	return part, nil
}

// each calls f with every object; first is true for the first of them. It may be
// called several times.
func (c *contents) each(f func(o *resource.Object, first bool) error) error {
	n := int64(0)
	for part := c.List; ; {
		for _, o := range part.Items {
			if err := f(o, n == 0); err != nil {
				return err
			}
			if n++; n == c.limit {
				return nil
			}
		}
		if c.rest == nil || part.Continue == "" {
			return nil
		}
		var err error
		if part, err = c.fetch(part.Continue); err != nil {
			return err
		}
	}
}

// writeList answers with a list of stored objects in the negotiated form.
func (a *API) writeList(w http.ResponseWriter, r *http.Request, act *resource.Action, res *rest.Resource, l *resource.List) error {
	f, err := negotiate(r, a.offerOf(act, res, nil))
	if err != nil {
		return err
	}
	return a.sendList(w, r, act, res, contents{List: l}, f)
}

// sendList sends the list as it is made, a piece at a time.
func (a *API) sendList(w http.ResponseWriter, r *http.Request, act *resource.Action, res *rest.Resource, c contents, f format) error {
	e, err := a.listEncoder(r, act, res, &c, f)
	if err != nil {
		return err
	}
	return a.stream(w, r, f.media.contentType(), e, &c)
}

// listEncoder returns what makes the list in the negotiated form.
func (a *API) listEncoder(r *http.Request, act *resource.Action, res *rest.Resource, c *contents, f format) (listEncoder, error) {
	head := metav1.ListMeta{ResourceVersion: strconv.FormatInt(c.Revision, 10)}
	if c.Page != nil {
		head.Continue, head.RemainingItemCount = c.Page.Continue, c.Page.Remaining
	} else {
		head.Continue, head.RemainingItemCount = c.Continue, c.Remaining
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
	if f.transform != asPartialList && res.HasGoType(act.Version) {
		d.member = bareMember(gvk, render)
	}
	return d.as(f), nil
}
