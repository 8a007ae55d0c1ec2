package handlers

import (
	"context"
	"errors"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico/resource"
)

// tornStore holds one object, torn, that it cannot read.
type tornStore struct {
	resource.Store
	discarded bool
}

func (s *tornStore) read(key resource.Key) error {
	if key.Name != "torn" || s.discarded {
		return nil
	}
	return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: 500, Reason: metav1.StatusReasonStoreReadError}}
}

func (s *tornStore) Get(ctx context.Context, key resource.Key, at resource.At) (*resource.Object, error) {
	if err := s.read(key); err != nil {
		return nil, err
	}
	return s.Store.Get(ctx, key, at)
}

func (s *tornStore) Update(ctx context.Context, key resource.Key, mutate resource.Mutate) (*resource.Object, error) {
	if err := s.read(key); err != nil {
		return nil, err
	}
	return s.Store.Update(ctx, key, mutate)
}

func (s *tornStore) Discard(_ context.Context, key resource.Key, dryRun bool) error {
	s.discarded = !dryRun
	return nil
}

// Deleting an object that the store cannot read or the codec cannot decode needs a permission
// of its own, and is a 422 for others (docs/wire.md 4.6).
func TestDeleteOfAnUnreadableObject(t *testing.T) {
	const unsafe = "?ignoreStoreReadErrorWithClusterBreakingPotential=true"
	for _, name := range []string{"b", "torn"} {
		var asked []string
		var refuse error
		b := newBench(t, func(cfg *Config, _ *bench) {
			cfg.Authorize = func(_ context.Context, a *resource.Action) error {
				asked = append(asked, a.Verb+" "+a.Resource+" "+a.Namespace+"/"+a.Name)
				return refuse
			}
		})
		b.create(bare("a"))
		b.putBad()
		b.configMaps.Store = &tornStore{Store: b.configMaps.Store}
		path := configMaps + "/" + name
		if s := b.send("DELETE", path, nil).want(500, "").status(); s.Reason != metav1.StatusReasonStoreReadError {
			t.Errorf("%+v", s)
		}
		refuse = apierrors.NewForbidden(b.configMaps.GroupResource(), name, errors.New("no"))
		b.send("DELETE", path+unsafe, nil).want(403, `configmaps "`+name+`" is forbidden: not permitted to do "unsafe-delete-ignore-read-errors", reason: configmaps "`+name+`" is forbidden: no`)
		refuse = nil
		b.send("DELETE", path+unsafe+"&dryRun=All", nil).want(200, "")
		b.send("DELETE", path, nil).want(500, "")
		if s := b.send("DELETE", path+unsafe, nil).want(200, "").status(); s.Status != metav1.StatusSuccess {
			t.Errorf("%+v", s)
		}
		b.send("DELETE", path, nil).want(404, "")
		b.send("DELETE", configMapA+unsafe, nil).want(422, "")
		b.send("DELETE", configMaps+"/none"+unsafe, nil).want(404, "")
		if len(asked) == 0 || asked[0] != verbDeleteUnread+" configmaps default/"+name {
			t.Errorf("authorized %q", asked)
		}
	}
	// Without an authorizer it is not permitted.
	b := newBench(t)
	b.create(bare("a"))
	b.send("DELETE", configMapA+unsafe, nil).want(500, "")
}
