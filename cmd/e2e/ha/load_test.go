package ha

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	corev1apply "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"portico/cmd/e2e"
	"portico/internal/testing/history"
	"portico/internal/testing/httpstore"
	"portico/resource"
	"portico/resource/client"
)

// define creates the definition of history.Info and the namespaces of histories.
func define(t *testing.T, cfg *rest.Config) {
	t.Helper()
	info := history.Info()
	crd := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": map[string]any{"name": info.Resource + "." + info.Group},
		"spec": map[string]any{
			"group": info.Group, "scope": "Namespaced", "names": map[string]any{"plural": info.Resource, "singular": info.Singular, "kind": info.Kind},
			"versions": []any{map[string]any{
				"name": "v1", "served": true, "storage": true, "selectableFields": []any{map[string]any{"jsonPath": "." + history.TierField}},
				"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "properties": map[string]any{
					"data": map[string]any{"type": "object", "properties": map[string]any{
						"token": map[string]any{"type": "string"}, "tier": map[string]any{"type": "string"}, "pad": map[string]any{"type": "string"},
					}},
				}}},
			}},
		},
	}}
	d := e2e.DynamicClient(t, cfg)
	if _, err := d.Resource(e2e.Definitions).Create(t.Context(), crd, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, name := range history.Namespaces() {
		_, err := kubernetes.NewForConfigOrDie(cfg).CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// served waits until a door serves the records.
func served(t *testing.T, cfg *rest.Config) {
	t.Helper()
	client := e2e.HTTPClient(t, cfg)
	e2e.Eventually(t, "records are served at "+cfg.Host, func() error {
		resp, body, err := e2e.Ask(t.Context(), client, http.MethodGet, cfg.Host+"/apis/"+history.Info().Group+"/v1/records", "")
		if err == nil && resp.StatusCode != http.StatusOK {
			err = fmt.Errorf("%s %s", resp.Status, body)
		}
		return err
	})
}

// historyDoor is a door of histories for clients with a configuration.
func historyDoor(t *testing.T, cfg *rest.Config) history.Door {
	t.Helper()
	transport, err := rest.TransportFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	store := httpstore.New(client.New(client.Config{BaseURL: cfg.Host, Transport: transport}), history.Info())
	return history.Door{Name: cfg.Host, Store: func() resource.Store { return store }, Holds: true, EndsWatches: true, Silent: true}
}

// verbs is a client of ConfigMaps in the core server that uses every verb. Each object is written
// until a write fails; the last acknowledged state must be stored at the end.
type verbs struct {
	observer *observer
	client   kubernetes.Interface
	name     string
	pause    time.Duration

	mu sync.Mutex
	// acknowledged has the number of the last write of each object; 0: it was deleted. An object
	// with a write of unknown result is not in it.
	acknowledged map[string]int
	rounds       int
}

const verbsNamespace = "default"

func (v *verbs) run(ctx context.Context) {
	for i := 0; ctx.Err() == nil; i++ {
		v.round(ctx, fmt.Sprintf("%s-%d", v.name, i), i)
		select {
		case <-ctx.Done():
		case <-time.After(v.pause):
		}
	}
}

// round makes one object and uses every verb on it.
func (v *verbs) round(ctx context.Context, name string, i int) {
	maps := v.client.CoreV1().ConfigMaps(verbsNamespace)
	o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"of": name}}, Data: map[string]string{"n": "1"}}
	steps := []func() error{
		func() error { _, err := maps.Create(ctx, o, metav1.CreateOptions{}); return err },
		func() (err error) {
			if o, err = maps.Get(ctx, name, metav1.GetOptions{}); err == nil && o.Data["n"] != "1" {
				v.observer.reject("%s is %v just after it was created", name, o.Data)
			}
			return err
		},
		func() error { o.Data["n"] = "2"; _, err := maps.Update(ctx, o, metav1.UpdateOptions{}); return err },
		func() error {
			_, err := maps.Patch(ctx, name, types.MergePatchType, []byte(`{"data":{"n":"3"}}`), metav1.PatchOptions{})
			return err
		},
		func() error {
			_, err := maps.Apply(ctx, corev1apply.ConfigMap(name, verbsNamespace).WithData(map[string]string{"n": "4"}), metav1.ApplyOptions{FieldManager: "ha", Force: true})
			return err
		},
		func() error {
			list, err := maps.List(ctx, metav1.ListOptions{LabelSelector: "of=" + name})
			if err == nil && (len(list.Items) != 1 || list.Items[0].Data["n"] != "4") {
				v.observer.reject("%s is listed as %v just after it was applied", name, list.Items)
			}
			return err
		},
	}
	after := []int{1, 1, 2, 3, 4, 4}
	switch i % 3 {
	case 0:
		steps, after = append(steps, func() error { return maps.Delete(ctx, name, metav1.DeleteOptions{}) }), append(after, 0)
	case 1:
		steps, after = append(steps, func() error {
			return maps.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "of=" + name})
		}), append(after, 0)
	}
	for n, step := range steps {
		v.note(name, -1)
		if err := step(); err != nil {
			// The observer judges other failures. No other client writes the object.
			if apierrors.IsNotFound(err) || apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
				v.observer.reject("step %d of %s: %v", n, name, err)
			}
			return
		}
		v.note(name, after[n])
	}
}

// note records a state; -1 is unknown.
func (v *verbs) note(name string, n int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.rounds++
	if v.acknowledged[name] = n; n < 0 {
		delete(v.acknowledged, name)
	}
}

// check compares what is stored with what was acknowledged.
func (v *verbs) check(t *testing.T, client kubernetes.Interface) {
	t.Helper()
	list, err := client.CoreV1().ConfigMaps(verbsNamespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	stored := map[string]string{}
	for _, o := range list.Items {
		stored[o.Name] = o.Data["n"]
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	for name, n := range v.acknowledged {
		if want := map[bool]string{true: fmt.Sprint(n)}[n > 0]; stored[name] != want {
			t.Errorf("ConfigMap %s is %q, and %q was acknowledged", name, stored[name], want)
		}
	}
	t.Logf("%s: %d writes and reads, %d objects with a known state", v.name, v.rounds/2, len(v.acknowledged))
}

// startVerbs starts a client for each configuration, all of which end with ctx.
func startVerbs(ctx context.Context, o *observer, pause time.Duration, configs ...*rest.Config) (all []*verbs, wait func()) {
	var wg sync.WaitGroup
	for i, cfg := range configs {
		v := &verbs{observer: o, client: kubernetes.NewForConfigOrDie(cfg), name: fmt.Sprint("verbs-", i), pause: pause, acknowledged: map[string]int{}}
		all = append(all, v)
		wg.Go(func() { v.run(ctx) })
	}
	return all, wg.Wait
}

// removeRecords deletes all records, so that a history finds none, and returns a revision since.
func removeRecords(t *testing.T, in *installation, cfg *rest.Config) int64 {
	t.Helper()
	d := e2e.DynamicClient(t, cfg)
	records := history.Info().GVR("v1")
	e2e.Eventually(t, "all records are gone", func() error {
		list, err := d.Resource(records).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, o := range list.Items {
			o.SetFinalizers(nil)
			of := d.Resource(records).Namespace(o.GetNamespace())
			if _, err := of.Update(t.Context(), &o, metav1.UpdateOptions{}); err != nil && !apierrors.IsNotFound(err) {
				return err
			}
			if err := of.Delete(t.Context(), o.GetName(), metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
				return err
			}
		}
		if len(list.Items) > 0 {
			return fmt.Errorf("%d are left", len(list.Items))
		}
		return nil
	})
	resp, err := in.etcd.Get(t.Context(), "/")
	if err != nil {
		t.Fatal(err)
	}
	return resp.Header.Revision
}
