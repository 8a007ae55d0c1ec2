package admission

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico/resource"
	"portico/resource/rest"
)

func asking(op rest.Operation, namespace, name string) *rest.Attributes {
	return &rest.Attributes{Kind: benchKind("configmaps"), Operation: op, Key: resource.Key{Namespace: namespace, Name: name}}
}

func deleting(name string) *rest.Attributes {
	return &rest.Attributes{Kind: benchKind("namespaces"), Operation: rest.Delete, Key: resource.Key{Name: name}}
}

// world has the cached and the live state of namespaces.
type world struct {
	cached, live NamespaceState
	err          error
}

func (w *world) lookup(_ context.Context, _ string, live bool) (NamespaceState, error) {
	if live {
		return w.live, w.err
	}
	return w.cached, w.err
}

var (
	active     = NamespaceState{Exists: true}
	terminates = NamespaceState{Exists: true, Terminating: true}
)

// Creations in a namespace require that it exists and is not being deleted.
func TestCreateInNamespace(t *testing.T) {
	const forbidden = `configmaps "x" is forbidden: unable to create new content in namespace n because it is being terminated`
	for name, test := range map[string]struct {
		world     world
		op        rest.Operation
		namespace string
		code      int32
		text      string
	}{
		"active":               {world{cached: active}, rest.Create, "n", 0, ""},
		"active, cache behind": {world{live: active}, rest.Create, "n", 0, ""},
		"missing":              {world{}, rest.Create, "n", 404, `namespaces "n" not found`},
		"terminating":          {world{cached: terminates}, rest.Create, "n", 403, forbidden},
		"terminating, behind":  {world{live: terminates}, rest.Create, "n", 403, forbidden},
		"update, missing":      {world{}, rest.Update, "n", 0, ""},
		"delete, terminating":  {world{cached: terminates}, rest.Delete, "n", 0, ""},
		"unknown":              {world{err: errors.New("connection refused")}, rest.Create, "n", 503, `namespace "n" cannot be looked up: connection refused`},
		"cluster scope":        {world{err: errors.New("not asked")}, rest.Create, "", 0, ""},
		"update, unknown":      {world{err: errors.New("connection refused")}, rest.Update, "n", 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := NamespaceLifecycle(test.world.lookup)
				err := l.Mutate(t.Context(), asking(test.op, test.namespace, "x"))
				if test.code == 0 {
					if err != nil {
						t.Fatal(err)
					}
					return
				}
				if err == nil {
					t.Fatal("permitted")
				}
				status := resource.AsStatus(err)
				if status.Code != test.code || status.Message != test.text {
					t.Errorf("%d %q", status.Code, status.Message)
				}
				if terminating := apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause); terminating != (test.code == 403) {
					t.Errorf("causes %+v", status.Details)
				}
				if test.code == 503 && status.Details.RetryAfterSeconds == 0 {
					t.Error("no Retry-After")
				}
			})
		})
	}
}

// A namespace that is not in the cache is looked up there again before the live lookup.
func TestNamespaceIsLookedUpInTheCacheTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		l := NamespaceLifecycle(func(_ context.Context, _ string, live bool) (NamespaceState, error) {
			if live {
				t.Error("looked up live")
			}
			return NamespaceState{Exists: time.Since(begun) > 0}, nil
		})
		if err := l.Mutate(t.Context(), asking(rest.Create, "n", "x")); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begun); took != 50*time.Millisecond {
			t.Errorf("took %s", took)
		}
	})
}

// Namespaces that a cluster needs cannot be deleted.
func TestNamespacesThatStay(t *testing.T) {
	l := NamespaceLifecycle((&world{}).lookup)
	for _, name := range []string{metav1.NamespaceDefault, metav1.NamespaceSystem, metav1.NamespacePublic} {
		err := l.Mutate(t.Context(), deleting(name))
		want := fmt.Sprintf("namespaces %q is forbidden: this namespace may not be deleted", name)
		if !apierrors.IsForbidden(err) || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if err := l.Mutate(t.Context(), deleting("kube-node-lease")); err != nil {
		t.Error(err)
	}
}

// For 30 s after the deletion of a namespace the cached state is not used.
func TestRecentDeletionIsLookedUpLive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{cached: active, live: terminates}
		l := NamespaceLifecycle(w.lookup)
		dry := deleting("n")
		dry.DryRun = true
		if err := l.Mutate(t.Context(), dry); err != nil {
			t.Fatal(err)
		}
		if err := l.Mutate(t.Context(), asking(rest.Create, "n", "x")); err != nil {
			t.Fatalf("after a dry run: %v", err)
		}
		if err := l.Mutate(t.Context(), deleting("n")); err != nil {
			t.Fatal(err)
		}
		if err := l.Mutate(t.Context(), asking(rest.Create, "n", "x")); !apierrors.IsForbidden(err) {
			t.Errorf("after a deletion: %v", err)
		}
		time.Sleep(31 * time.Second)
		if err := l.Mutate(t.Context(), asking(rest.Create, "n", "x")); err != nil {
			t.Errorf("long after: %v", err)
		}
	})
}
