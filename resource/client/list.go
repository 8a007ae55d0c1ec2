package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico/resource"
)

// List returns a page of objects.
func (s *store) List(ctx context.Context, opts resource.ListOptions) (*resource.List, error) {
	query := selectorQuery(opts.Selector)
	if opts.Continue != "" {
		query.Set("continue", opts.Continue)
	} else {
		listQuery(query, opts.At)
	}
	if opts.Limit > 0 {
		query.Set("limit", strconv.FormatInt(opts.Limit, 10))
	}
	path := s.path(opts.Namespace, "")
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

// listQuery says how new the list must be.
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
