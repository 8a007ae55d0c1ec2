package client

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico/resource"
)

// reader is a Reader of one resource of the server.
type reader struct {
	client *Client
	info   *resource.Info
}

// Reader returns a reader of one resource, in Versions[0] of its Info.
func (c *Client) Reader(info *resource.Info) resource.Reader { return &reader{c, info} }

// Info returns the resource.
func (s *reader) Info() *resource.Info { return s.info }

// Path returns the URL path of a collection or, with a name, of one object, in Versions[0]
// of info.
func Path(info *resource.Info, namespace, name string) string {
	p := "/apis/" + info.Group + "/" + info.Versions[0]
	if info.Group == "" {
		p = "/api/" + info.Versions[0]
	}
	if info.Namespaced && namespace != "" {
		p += "/namespaces/" + url.PathEscape(namespace)
	}
	p += "/" + info.Resource
	if name != "" {
		p += "/" + url.PathEscape(name)
	}
	return p
}

// Get returns one object.
func (s *reader) Get(ctx context.Context, key resource.Key, at resource.At) (*resource.Object, error) {
	if key.Name == "" {
		return nil, apierrors.NewNotFound(s.info.GroupResource(), "") // the path would be that of the collection
	}
	query := url.Values{}
	switch at.Freshness {
	case resource.Any:
		query.Set("resourceVersion", "0")
	case resource.NotOlderThan, resource.Exact:
		query.Set("resourceVersion", strconv.FormatInt(at.Revision, 10))
	}
	path := Path(s.info, key.Namespace, key.Name)
	res, err := s.client.Do(ctx, http.MethodGet, path, query, nil)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	data, err := io.ReadAll(io.LimitReader(res.Body, maxObject+1))
	if err != nil {
		return nil, unanswered(ctx, http.MethodGet, path, err)
	}
	if len(data) > maxObject {
		return nil, unreadable(path, errTooLarge)
	}
	o, err := resource.Parse(data)
	if err != nil {
		return nil, unreadable(path, err)
	}
	return o, nil
}

// List returns a page of objects.
func (s *reader) List(ctx context.Context, opts resource.ListOptions) (*resource.List, error) {
	query := selectorQuery(opts.Selector)
	if opts.Continue != "" {
		query.Set("continue", opts.Continue)
	} else {
		listQuery(query, opts.At)
	}
	if opts.Limit > 0 {
		query.Set("limit", strconv.FormatInt(opts.Limit, 10))
	}
	path := Path(s.info, opts.Namespace, "")
	res, err := s.client.Do(ctx, http.MethodGet, path, query, nil)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	list, err := s.readList(res.Body)
	if err != nil && ctx.Err() != nil {
		return nil, unanswered(ctx, http.MethodGet, path, err)
	}
	if err != nil {
		return nil, unreadable(path, err)
	}
	return list, nil
}

// listQuery sets the parameters of at.
func listQuery(query url.Values, at resource.At) {
	rev := strconv.FormatInt(at.Revision, 10)
	switch at.Freshness {
	case resource.Any:
		query.Set("resourceVersion", "0")
	case resource.NotOlderThan:
		query.Set("resourceVersion", rev)
		query.Set("resourceVersionMatch", string(metav1.ResourceVersionMatchNotOlderThan))
	case resource.Exact:
		query.Set("resourceVersion", rev)
		query.Set("resourceVersionMatch", string(metav1.ResourceVersionMatchExact))
	}
}

func selectorQuery(sel resource.Selector) url.Values {
	query := url.Values{}
	if sel.Labels != nil && !sel.Labels.Empty() {
		query.Set("labelSelector", sel.Labels.String())
	}
	if sel.Fields != nil && !sel.Fields.Empty() {
		query.Set("fieldSelector", sel.Fields.String())
	}
	return query
}
