// Package liststream writes lists of stored objects as JSON, indented JSON, YAML, protobuf
// or Table, in pieces, so that a list takes little more memory than its objects.
//
// Runs in: gateway, core, crd.
package liststream

import (
	"log/slog"
	"net/http"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico/resource"
	"portico/resource/response"
	"portico/resource/rest"
	"portico/resource/rest/form"
)

// Options describe a list response.
type Options struct {
	Kind    *rest.Kind
	Version string
	Format  response.Format
	// Tables is set for Table.
	Tables *form.Tables
	Forms  *form.Cache
	Logger *slog.Logger
}

// Contents are the objects of a list.
type Contents struct {
	// List is the list, or its first part (resource.ListOptions.Parts).
	*resource.List
	// Rest returns the part of a continue token; nil: the list is complete.
	Rest func(token string) (*resource.List, error)
	// Limit is how many objects of all parts belong to the list; 0: all.
	Limit int64
	// prepare is called with the objects before they are encoded; nil: nothing is to prepare.
	prepare func(objects []*resource.Object) error
	// ended is the error of the request's context, asked for every object: the rows of a
	// Table are decoded, so that a list can go on for minutes. If it is nil, the list does not end early.
	ended func() error
	// kept holds parts by token for a list that is iterated twice; nil: none are kept.
	// keptBytes is the size of their objects.
	kept      map[string]*resource.List
	keptBytes int
}

// maxKeptBytes bounds the objects, in bytes, that are kept of a list that is measured
// before it is sent. Other parts are fetched twice.
const maxKeptBytes = 32 << 20

// fetch returns the part of a token.
func (c *Contents) fetch(token string) (*resource.List, error) {
	if part := c.kept[token]; part != nil {
		return part, nil
	}
	part, err := c.Rest(token)
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

// each calls f with every object and its index. It may be called several times.
func (c *Contents) each(f func(o *resource.Object, index int64) error) error {
	n := int64(0)
	for part := c.List; ; {
		for i, o := range part.Items {
			if c.prepare != nil && i%resource.PreparedTogether == 0 {
				if err := c.prepare(part.Items[i:min(i+resource.PreparedTogether, len(part.Items))]); err != nil {
					return err
				}
			}
			if c.ended != nil && c.ended() != nil {
				return errGone
			}
			if err := f(o, n); err != nil {
				return err
			}
			if n++; n == c.Limit {
				return nil
			}
		}
		if c.Rest == nil || part.Continue == "" {
			return nil
		}
		var err error
		if part, err = c.fetch(part.Continue); err != nil {
			return err
		}
	}
}

// Write writes the list as a 200. An error means that nothing has been written: a list of
// stored bytes is encoded completely before the header is sent, and any other up to the
// first megabyte. If encoding fails later, the error is logged and Write panics with
// http.ErrAbortHandler, so that the client sees an incomplete response.
func Write(w http.ResponseWriter, r *http.Request, opts Options, c Contents) error {
	if opts.Format.Transform != response.AsPartialList { // metadata is not converted
		c.prepare = opts.Kind.Prepare
	}
	c.ended = r.Context().Err
	e, err := opts.encoder(&c)
	if err != nil {
		return err
	}
	return send(w, r, opts, e, &c)
}

func (o *Options) encoder(c *Contents) (encoder, error) {
	head := metav1.ListMeta{ResourceVersion: strconv.FormatInt(c.Revision, 10), Continue: c.Continue, RemainingItemCount: c.Remaining}
	if c.Page != nil {
		head.Continue, head.RemainingItemCount = c.Page.Continue, c.Page.Remaining
	}
	if o.Tables != nil {
		d, err := newTable(o.Tables, head)
		if err != nil {
			return nil, err
		}
		return d.as(o.Format), nil
	}
	shape := form.Of(o.Format, o.Version)
	gvk := o.Kind.GVK(o.Version)
	list := gvk
	list.Kind = o.Kind.List()
	partial := o.Format.Transform == response.AsPartialList
	if partial {
		list = form.MetaGVK(o.Format.MetaVersion, "PartialObjectMetadataList")
	}
	encode := func(obj *resource.Object) ([]byte, error) { return o.Forms.Encode(o.Kind, obj, shape) }
	if shape.Media == response.Protobuf {
		return newProtobufList(list, head, encode)
	}
	hasGoType := o.Kind.HasGoType(o.Version)
	var metadata any = head
	if !partial && !hasGoType {
		metadata = unstructuredListMeta{head.ResourceVersion, head.Continue, head.RemainingItemCount}
	}
	d, err := newDocument(list, metadata, encode)
	if err != nil {
		return nil, err
	}
	if !partial && hasGoType {
		d.member = memberWithoutTypeMeta(gvk, encode)
	}
	return d.as(o.Format), nil
}
