package handlers

import (
	"context"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico/resource"
)

// tornStore holds one object that cannot be read.
type tornStore struct {
	resource.Store
	torn string // its name; "" after its deletion
}

var errTorn = &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: 500, Reason: metav1.StatusReasonStoreReadError}}

func (s *tornStore) Get(ctx context.Context, key resource.Key, at resource.At) (*resource.Object, error) {
	if key.Name == s.torn {
		return nil, errTorn
	}
	return s.Store.Get(ctx, key, at)
}

func (s *tornStore) Update(ctx context.Context, key resource.Key, mutate resource.Mutate) (*resource.Object, error) {
	if key.Name == s.torn {
		return nil, errTorn
	}
	return s.Store.Update(ctx, key, mutate)
}

func (s *tornStore) Discard(_ context.Context, key resource.Key, dryRun bool) error {
	if key.Name != s.torn {
		return apierrors.NewConflict(s.Info().GroupResource(), key.Name, nil)
	}
	if !dryRun {
		s.torn = ""
	}
	return nil
}

// A user with the permission can delete an object that the store cannot read.
func TestDeleteOfAnObjectTheStoreCannotRead(t *testing.T) {
	const unsafe = `{"ignoreStoreReadErrorWithClusterBreakingPotential":true}`
	var asked []string
	allowed := false
	b := newWriteBench(t, func(cfg *Config, b *writeBench) {
		cfg.Authorize = func(_ context.Context, a *resource.Action) error {
			asked = append(asked, a.Verb+" "+a.Resource+" "+a.Namespace+"/"+a.Name)
			if !allowed {
				return apierrors.NewForbidden(b.configMaps.GroupResource(), a.Name, nil)
			}
			return nil
		}
	})
	b.create(bare("a"))
	store := &tornStore{b.configMaps.Store, "torn"}
	b.configMaps.Store = store
	torn := inDefault + "configmaps/torn"
	b.send("DELETE", torn, nil).want(500, "")
	b.send("DELETE", torn, unsafe).want(403, "")
	if len(asked) != 1 || asked[0] != "unsafe-delete-ignore-read-errors configmaps default/torn" {
		t.Errorf("asked for %q", asked)
	}
	allowed = true
	b.send("DELETE", torn, strings.Replace(unsafe, "}", `,"dryRun":["All"]}`, 1)).want(200, "")
	if store.torn == "" {
		t.Error("a dry run removed the object")
	}
	b.send("DELETE", configMapA, unsafe).want(422, "")
	b.send("DELETE", torn, unsafe).want(200, "")
	if store.torn != "" {
		t.Error("the object is still there")
	}
}
