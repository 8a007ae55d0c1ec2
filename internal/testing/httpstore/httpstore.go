// Package httpstore is a [resource.Store] over HTTP, with which tests run the suites of
// stores through a server.
//
// An update is a GET and a conditional PUT, POST or DELETE, repeated while others change the
// object. A conflict on an object that did not change is a decision of the server, and is
// returned. Times to live and encodings other than JSON are refused as BadRequest.
//
// Runs in: tests.
package httpstore

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"portico/resource"
	"portico/resource/client"
)

// New returns the store of one resource of a server. Safe for concurrent use.
func New(c *client.Client, info *resource.Info) resource.Store {
	return &store{c.Reader(info), c, info}
}

type store struct {
	resource.Reader
	client *client.Client
	info   *resource.Info
}

func (s *store) do(ctx context.Context, method string, key resource.Key, body []byte) (*resource.Object, error) {
	res, err := s.client.Do(ctx, method, client.Path(s.info, key.Namespace, key.Name), nil, body)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	if err != nil {
		return nil, apierrors.NewTimeoutError(err.Error(), 0)
	}
	return resource.Parse(data)
}

// Create stores a new object.
func (s *store) Create(ctx context.Context, key resource.Key, obj *resource.Object, ttl time.Duration) (*resource.Object, error) {
	if ttl != 0 || obj.Encoding != resource.JSON {
		return nil, apierrors.NewBadRequest("no times to live, and JSON only")
	}
	return s.do(ctx, http.MethodPost, resource.Key{Namespace: key.Namespace}, obj.Stored())
}

// Update reads, changes and writes, again while others change the object.
func (s *store) Update(ctx context.Context, key resource.Key, mutate resource.Mutate) (out *resource.Object, err error) {
	err = s.compareAndSwap(ctx, key, func(cur *resource.Object) error {
		m, err := mutate(cur)
		if err == nil {
			out, err = s.write(ctx, key, cur, m)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// Delete removes the object if check accepts its state.
func (s *store) Delete(ctx context.Context, key resource.Key, check func(*resource.Object) error) (*resource.Object, error) {
	return s.Update(ctx, key, func(cur *resource.Object) (resource.Mutation, error) {
		if cur == nil {
			return resource.Mutation{}, apierrors.NewNotFound(s.info.GroupResource(), key.Name)
		}
		if check != nil {
			if err := check(cur); err != nil {
				return resource.Mutation{}, err
			}
		}
		return resource.Mutation{Delete: true}, nil
	})
}

// compareAndSwap calls try with the current state until its result does not come from a
// state that others have changed since.
func (s *store) compareAndSwap(ctx context.Context, key resource.Key, try func(cur *resource.Object) error) error {
	var last *resource.Object
	var lost error
	for {
		cur, err := s.Get(ctx, key, resource.At{})
		if apierrors.IsNotFound(err) {
			cur, err = nil, nil
		}
		if err != nil {
			return err
		}
		if lost != nil && sameState(cur, last) {
			return lost // the object did not change: another kind of conflict
		}
		lost = try(cur)
		if lost == nil || cur == nil && !apierrors.IsAlreadyExists(lost) || cur != nil && !apierrors.IsConflict(lost) && !apierrors.IsNotFound(lost) {
			return lost
		}
		last = cur
	}
}

func sameState(a, b *resource.Object) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Revision == b.Revision && a.UID == b.UID
}

// write executes a mutation of cur.
func (s *store) write(ctx context.Context, key resource.Key, cur *resource.Object, m resource.Mutation) (*resource.Object, error) {
	switch {
	case m.TTL != 0 || m.Object != nil && m.Object.Encoding != resource.JSON:
		return nil, apierrors.NewBadRequest("no times to live, and JSON only")
	case m.Delete && cur == nil:
		return nil, apierrors.NewNotFound(s.info.GroupResource(), key.Name)
	case m.Delete:
		return s.remove(ctx, key, cur, m.Object)
	case m.Object == nil || cur != nil && bytes.Equal(m.Object.Stored(), cur.Stored()):
		return cur, nil
	case cur == nil:
		return s.do(ctx, http.MethodPost, resource.Key{Namespace: key.Namespace}, m.Object.Stored())
	}
	return s.do(ctx, http.MethodPut, key, m.Object.WithRevision(cur.Revision).Data)
}

// remove deletes the state cur and returns last, or what the server returns, as of the
// deletion. A Status has no revision: then it is cur's.
func (s *store) remove(ctx context.Context, key resource.Key, cur, last *resource.Object) (*resource.Object, error) {
	rev := strconv.FormatInt(cur.Revision, 10)
	pre := &metav1.Preconditions{ResourceVersion: &rev}
	if uid := types.UID(cur.UID); uid != "" {
		pre.UID = &uid
	}
	body, err := json.Marshal(metav1.DeleteOptions{
		TypeMeta: metav1.TypeMeta{Kind: "DeleteOptions", APIVersion: "v1"}, Preconditions: pre,
	})
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	o, err := s.do(ctx, http.MethodDelete, key, body)
	switch status := err == nil && o.Kind == "Status" && o.APIVersion == "v1"; {
	case err != nil:
		return nil, err
	case status && last == nil:
		return cur, nil
	case status:
		return last.WithRevision(cur.Revision), nil
	case last != nil:
		return last.WithRevision(o.Revision), nil
	}
	return o, nil
}
