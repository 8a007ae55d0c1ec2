package client

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"portico/resource"
)

// Update reads, changes and writes, again while others change the object.
func (s *store) Update(ctx context.Context, key resource.Key, mutate resource.Mutate) (*resource.Object, error) {
	var out *resource.Object
	err := s.compareAndSwap(ctx, key, func(cur *resource.Object) error {
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

// Delete removes the object if check agrees with the state that is removed.
func (s *store) Delete(ctx context.Context, key resource.Key, check func(*resource.Object) error) (*resource.Object, error) {
	var out *resource.Object
	err := s.compareAndSwap(ctx, key, func(cur *resource.Object) (err error) {
		if cur == nil {
			return apierrors.NewNotFound(s.info.GroupResource(), key.Name)
		}
		if check != nil {
			if err := check(cur); err != nil {
				return err
			}
		}
		out, err = s.remove(ctx, key, cur, cur)
		return err
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// compareAndSwap calls try with the current state until try's answer does not
// come from a state that others have changed since.
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
		if lost = try(cur); lost == nil || !mayBeLost(lost, cur) {
			return lost
		}
		last = cur
	}
}

// mayBeLost reports whether an error of a write may mean that cur is not the
// current state any more.
func mayBeLost(err error, cur *resource.Object) bool {
	if cur == nil {
		return apierrors.IsAlreadyExists(err)
	}
	return apierrors.IsConflict(err) || apierrors.IsNotFound(err)
}

func sameState(a, b *resource.Object) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Revision == b.Revision && a.UID == b.UID
}

// write does what a mutation decided, on condition that cur is still current.
func (s *store) write(ctx context.Context, key resource.Key, cur *resource.Object, m resource.Mutation) (*resource.Object, error) {
	switch {
	case m.TTL != 0:
		return nil, errTTL()
	case m.Object != nil && m.Object.Encoding != resource.JSON:
		return nil, errEncoding()
	case m.Delete && cur == nil:
		return nil, apierrors.NewNotFound(s.info.GroupResource(), key.Name)
	case m.Delete && m.Object != nil:
		return s.remove(ctx, key, cur, m.Object)
	case m.Delete:
		return s.remove(ctx, key, cur, cur)
	case m.Object == nil:
		return cur, nil
	case cur == nil:
		return s.client.doObject(ctx, http.MethodPost, s.path(key.Namespace, ""), nil, m.Object.Stored())
	case bytes.Equal(m.Object.Stored(), cur.Stored()):
		return cur, nil
	}
	return s.client.doObject(ctx, http.MethodPut, s.path(key.Namespace, key.Name), nil, m.Object.WithRevision(cur.Revision).Data)
}

// remove deletes exactly the state cur and returns last as of the deletion. A
// server that answers with a Status does not tell its revision: then it is
// cur's.
func (s *store) remove(ctx context.Context, key resource.Key, cur, last *resource.Object) (*resource.Object, error) {
	rev := strconv.FormatInt(cur.Revision, 10)
	pre := &metav1.Preconditions{ResourceVersion: &rev}
	if uid := types.UID(cur.UID); uid != "" {
		pre.UID = &uid
	}
	body, err := json.Marshal(metav1.DeleteOptions{
		TypeMeta:      metav1.TypeMeta{Kind: "DeleteOptions", APIVersion: "v1"},
		Preconditions: pre,
	})
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	o, err := s.client.doObject(ctx, http.MethodDelete, s.path(key.Namespace, key.Name), nil, body)
	switch {
	case err != nil:
		return nil, err
	case o.Kind == "Status" && o.APIVersion == "v1":
		return last.WithRevision(cur.Revision), nil
	case last != cur:
		return last.WithRevision(o.Revision), nil
	}
	return o, nil
}
