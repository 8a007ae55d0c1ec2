package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"portico/resource"
)

// store is one resource of the server.
type store struct {
	client *Client
	info   *resource.Info
}

// Store returns the store of one resource, in Versions[0] of its Info.
func (c *Client) Store(info *resource.Info) resource.Store { return &store{c, info} }

// Info returns what the store keeps.
func (s *store) Info() *resource.Info { return s.info }

// path returns the URL path of a collection, or of one object.
func (s *store) path(namespace, name string) string {
	p := "/apis/" + s.info.Group + "/" + s.info.Versions[0]
	if s.info.Group == "" {
		p = "/api/" + s.info.Versions[0]
	}
	if s.info.Namespaced && namespace != "" {
		p += "/namespaces/" + url.PathEscape(namespace)
	}
	p += "/" + s.info.Resource
	if name != "" {
		p += "/" + url.PathEscape(name)
	}
	return p
}

// Get returns one object.
func (s *store) Get(ctx context.Context, key resource.Key, at resource.At) (*resource.Object, error) {
	if key.Name == "" {
		return nil, apierrors.NewNotFound(s.info.GroupResource(), "") // the path would be the collection's
	}
	query := url.Values{}
	switch at.Freshness {
	case resource.Any:
		query.Set("resourceVersion", "0")
	case resource.NotOlderThan, resource.Exact:
		query.Set("resourceVersion", strconv.FormatInt(at.Revision, 10))
	}
	return s.client.doObject(ctx, http.MethodGet, s.path(key.Namespace, key.Name), query, nil)
}

// Create stores a new object; ttl must be 0.
func (s *store) Create(ctx context.Context, key resource.Key, obj *resource.Object, ttl time.Duration) (*resource.Object, error) {
	if ttl != 0 {
		return nil, errTTL()
	}
	if obj.Encoding != resource.JSON {
		return nil, errEncoding()
	}
	return s.client.doObject(ctx, http.MethodPost, s.path(key.Namespace, ""), nil, obj.Stored())
}

func errTTL() error {
	return apierrors.NewBadRequest("a store over HTTP does not support times to live")
}

func errEncoding() error { return apierrors.NewBadRequest("a store over HTTP takes objects as JSON") }
