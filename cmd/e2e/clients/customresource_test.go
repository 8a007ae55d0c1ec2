package clients

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"portico/cmd/e2e"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
)

// A definition that was accepted is served at once, listed in discovery, and has
// its APIService; one that was deleted is gone from all three.
func TestDefinitionIsServedAtOnce(t *testing.T) {
	t.Parallel()
	up := e2e.SharedInstallation(t)
	// Long enough for a busy machine, shorter than anything that polls for it.
	const limit = 5 * time.Second
	client, plain := e2e.DynamicClient(t, up.Config(t)), e2e.HTTPClient(t, up.Config(t))
	took := map[string][]time.Duration{}
	check := func(group, what, path string, good func(code int, body string) bool) {
		t.Helper()
		began := time.Now()
		for {
			code, body := e2e.Get(t, plain, up.Endpoint+path, "")
			passed := time.Since(began)
			if good(code, body) {
				took[what] = append(took[what], passed)
				return
			}
			if passed > limit {
				t.Fatalf("%s of %s not within %v: %d %.300s", what, group, limit, code, body)
			}
		}
	}
	there := func(code int, _ string) bool { return code == http.StatusOK }
	gone := func(code int, _ string) bool { return code == http.StatusNotFound }
	for i := range 10 {
		group := fmt.Sprintf("g%d.speed.example.com", i)
		paths := []struct{ what, path string }{
			{"LIST", "/apis/" + group + "/v1/widgets"},
			{"discovery", "/apis/" + group + "/v1"},
			{"APIService", "/apis/apiregistration.k8s.io/v1/apiservices/v1." + group},
		}
		began := time.Now()
		if _, err := client.Resource(e2e.Definitions).Create(t.Context(), e2e.Widgets(t, group), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		took["create"] = append(took["create"], time.Since(began))
		for _, p := range paths {
			check(group, p.what, p.path, there)
		}
		if err := client.Resource(e2e.Definitions).Delete(t.Context(), "widgets."+group, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		for _, p := range paths {
			check(group, "no "+p.what, p.path, gone)
		}
	}
	for _, what := range slices.Sorted(maps.Keys(took)) {
		all := took[what]
		slices.SortFunc(all, cmp.Compare)
		t.Logf("%-13s min %v, median %v, max %v", what, all[0], all[len(all)/2], all[len(all)-1])
	}
}

// seen collects what an informer told, "add name", "update name", "delete name".
type seen struct {
	mu  sync.Mutex
	all map[string]bool
}

func (s *seen) note(what string, obj any) {
	if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = gone.Obj
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all[what+" "+obj.(metav1.Object).GetName()] = true
}

func (s *seen) has(what string) func() error {
	return func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if !s.all[what] {
			return fmt.Errorf("no %q in %v", what, s.all)
		}
		return nil
	}
}

// A dynamic informer follows custom resources, also across the death of the
// server that keeps them.
func TestDynamicInformer(t *testing.T) {
	t.Parallel()
	up := e2e.Install(t, t.TempDir())
	client := e2e.DynamicClient(t, up.Config(t))
	const group = "informer.example.com"
	objects := e2e.Define(t, client, group).Namespace("default")
	events := &seen{all: map[string]bool{}}
	factory := dynamicinformer.NewDynamicSharedInformerFactory(client, 0)
	informer := factory.ForResource(e2e.WidgetsOf(group)).Informer()
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { events.note("add", obj) },
		UpdateFunc: func(_, obj any) { events.note("update", obj) },
		DeleteFunc: func(obj any) { events.note("delete", obj) },
	})
	if err != nil {
		t.Fatal(err)
	}
	create := func(name string) {
		t.Helper()
		e2e.Eventually(t, "create "+name, func() error {
			_, err := objects.Create(t.Context(), e2e.Widget(group, name), metav1.CreateOptions{})
			if apierrors.IsAlreadyExists(err) { // by an attempt whose answer was lost
				return nil
			}
			return err
		})
	}
	create("a")
	create("b")
	ctx, cancel := context.WithCancel(t.Context())
	defer factory.Shutdown()
	defer cancel()
	factory.Start(ctx.Done())
	e2e.Eventually(t, "the informer tells a", events.has("add a"))
	e2e.Eventually(t, "the informer tells b", events.has("add b"))
	create("c")
	e2e.Eventually(t, "the informer tells c", events.has("add c"))

	up.Kill9(t, "crd")
	create("d")
	e2e.Eventually(t, "the informer tells d", events.has("add d"))
	e2e.Eventually(t, "b is changed", func() error {
		_, err := objects.Patch(t.Context(), "b", "application/merge-patch+json", []byte(`{"spec":{"colour":"blue"}}`), metav1.PatchOptions{})
		return err
	})
	e2e.Eventually(t, "the informer tells that b changed", events.has("update b"))
	if err := objects.Delete(t.Context(), "a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	e2e.Eventually(t, "the informer tells that a is gone", events.has("delete a"))
	keys := informer.GetStore().ListKeys()
	slices.Sort(keys)
	if want := []string{"default/b", "default/c", "default/d"}; !slices.Equal(keys, want) {
		t.Errorf("the informer holds %v, want %v", keys, want)
	}
}

// Custom resources and definitions are written while the CRD server dies again
// and again: whatever was acknowledged is there.
func TestCustomWritesWhileServerDies(t *testing.T) {
	t.Parallel()
	up := e2e.Install(t, t.TempDir())
	client := e2e.DynamicClient(t, up.Config(t))
	const group = "writes.example.com"
	objects := e2e.Define(t, client, group).Namespace("default")
	// One writer of objects, one of definitions; each also changes what it made.
	write := map[string]func(ctx context.Context, name string) error{
		"object": func(ctx context.Context, name string) error {
			if _, err := objects.Create(ctx, e2e.Widget(group, name), metav1.CreateOptions{}); err != nil {
				return err
			}
			_, err := objects.Patch(ctx, name, "application/merge-patch+json", []byte(`{"spec":{"colour":"blue"}}`), metav1.PatchOptions{})
			return err
		},
		"definition": func(ctx context.Context, name string) error {
			_, err := client.Resource(e2e.Definitions).Create(ctx, e2e.Widgets(t, name+".example.com"), metav1.CreateOptions{})
			return err
		},
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var mu sync.Mutex
	done := map[string][]string{}
	var writers sync.WaitGroup
	for kind, put := range write {
		writers.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				name := fmt.Sprintf("%s-%d", kind, i)
				if put(ctx, name) == nil {
					mu.Lock()
					done[kind] = append(done[kind], name)
					mu.Unlock()
				}
			}
		})
	}
	more := func() {
		t.Helper()
		mu.Lock()
		from := len(done["object"])
		mu.Unlock()
		e2e.Eventually(t, "writes are acknowledged", func() error {
			mu.Lock()
			defer mu.Unlock()
			if n := len(done["object"]) - from; n < 20 {
				return fmt.Errorf("%d of 20", n)
			}
			return nil
		})
	}
	for range 3 {
		more()
		up.Kill9(t, "crd")
	}
	more()
	cancel()
	writers.Wait()
	for _, name := range done["object"] {
		o, err := objects.Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Errorf("acknowledged and lost: %v", err)
		} else if colour, _, _ := unstructured.NestedString(o.Object, "spec", "colour"); colour != "blue" {
			t.Errorf("%s: the acknowledged change is lost", name)
		}
	}
	for _, name := range done["definition"] {
		if _, err := client.Resource(e2e.Definitions).Get(t.Context(), "widgets."+name+".example.com", metav1.GetOptions{}); err != nil {
			t.Errorf("acknowledged and lost: %v", err)
		}
		e2e.Eventually(t, "it is served", func() error {
			_, err := client.Resource(e2e.WidgetsOf(name+".example.com")).List(t.Context(), metav1.ListOptions{})
			return err
		})
	}
	t.Logf("%d objects, %d definitions", len(done["object"]), len(done["definition"]))
}
