package client

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico/resource"
)

// store is one resource of the server.
type store struct {
	client *Client
	info   *resource.Info
}

// Store returns the store of one resource, in Versions[0] of its Info. It does
// not support times to live.
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
		return nil, apierrors.NewBadRequest("a store over HTTP does not support times to live")
	}
	return s.client.doObject(ctx, http.MethodPost, s.path(key.Namespace, ""), nil, obj.Stored())
}

// Update reads, changes and writes, again while others change the object.
func (s *store) Update(ctx context.Context, key resource.Key, mutate resource.Mutate) (*resource.Object, error) {
	for {
		cur, err := s.Get(ctx, key, resource.At{})
		if apierrors.IsNotFound(err) {
			cur, err = nil, nil
		}
		if err != nil {
			return nil, err
		}
		m, err := mutate(cur)
		if err != nil {
			return nil, err
		}
		next, err := s.write(ctx, key, cur, m)
		lost := apierrors.IsConflict(err) || cur == nil && apierrors.IsAlreadyExists(err)
		if !lost {
			return next, err
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
}

// write does what a mutation decided, on condition that cur is still current.
func (s *store) write(ctx context.Context, key resource.Key, cur *resource.Object, m resource.Mutation) (*resource.Object, error) {
	switch {
	case m.TTL != 0:
		return nil, apierrors.NewBadRequest("a store over HTTP does not support times to live")
	case m.Delete && cur == nil:
		return nil, apierrors.NewNotFound(s.info.GroupResource(), key.Name)
	case m.Delete:
		return s.remove(ctx, key, cur)
	case m.Object == nil:
		return cur, nil
	case cur == nil:
		return s.client.doObject(ctx, http.MethodPost, s.path(key.Namespace, ""), nil, m.Object.Stored())
	}
	if next := m.Object.Stored(); string(next) == string(cur.Stored()) {
		return cur, nil
	}
	return s.client.doObject(ctx, http.MethodPut, s.path(key.Namespace, key.Name), nil, m.Object.WithRevision(cur.Revision).Data)
}

// Delete removes the object if check agrees with the state that is removed.
func (s *store) Delete(ctx context.Context, key resource.Key, check func(*resource.Object) error) (*resource.Object, error) {
	for {
		cur, err := s.Get(ctx, key, resource.At{})
		if err != nil {
			return nil, err
		}
		if check != nil {
			if err := check(cur); err != nil {
				return nil, err
			}
		}
		last, err := s.remove(ctx, key, cur)
		if !apierrors.IsConflict(err) {
			return last, err
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
}

// remove deletes exactly the state cur. A server that answers with a Status
// does not tell the revision of the deletion; then cur is the last state.
func (s *store) remove(ctx context.Context, key resource.Key, cur *resource.Object) (*resource.Object, error) {
	rev := strconv.FormatInt(cur.Revision, 10)
	options := metav1.DeleteOptions{
		TypeMeta:      metav1.TypeMeta{Kind: "DeleteOptions", APIVersion: "v1"},
		Preconditions: &metav1.Preconditions{ResourceVersion: &rev},
	}
	body, err := json.Marshal(options)
	if err != nil {
		return nil, fmt.Errorf("encode delete options: %w", err)
	}
	o, err := s.client.doObject(ctx, http.MethodDelete, s.path(key.Namespace, key.Name), nil, body)
	if err != nil || o.Kind == "Status" {
		return cur, err
	}
	return o, nil
}
