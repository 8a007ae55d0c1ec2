package client

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico/resource"
)

// maxList bounds the body of a list.
const maxList = 1 << 30

// List returns a page of objects.
func (s *store) List(ctx context.Context, opts resource.ListOptions) (*resource.List, error) {
	query := selectorQuery(opts.Selector)
	if opts.Continue != "" {
		query.Set("continue", opts.Continue)
	} else {
		atQuery(query, opts.At)
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
	var body struct {
		metav1.TypeMeta `json:",inline"`
		Metadata        metav1.ListMeta   `json:"metadata"`
		Items           []json.RawMessage `json:"items"`
	}
	if err := json.NewDecoder(io.LimitReader(res.Body, maxList)).Decode(&body); err != nil {
		return nil, asStatusError(ctx, http.MethodGet, path, fmt.Errorf("read list: %w", err))
	}
	out := &resource.List{Continue: body.Metadata.Continue, Remaining: body.Metadata.RemainingItemCount}
	if out.Revision, err = strconv.ParseInt(body.Metadata.ResourceVersion, 10, 64); err != nil {
		return nil, apierrors.NewInternalError(fmt.Errorf("list of %s has resourceVersion %q", path, body.Metadata.ResourceVersion))
	}
	for _, raw := range body.Items {
		o, err := resource.Parse(raw)
		if err != nil {
			return nil, apierrors.NewInternalError(fmt.Errorf("read list of %s: %w", path, err))
		}
		out.Items = append(out.Items, o)
	}
	return out, nil
}

func atQuery(query url.Values, at resource.At) {
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
