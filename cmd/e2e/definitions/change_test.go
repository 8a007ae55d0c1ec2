package definitions

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"

	"portico/cmd/e2e"
)

// asked counts the requests of an informer: lists and watches.
type asked struct {
	http.RoundTripper
	lists, watches *atomic.Int64
}

func (a asked) RoundTrip(r *http.Request) (*http.Response, error) {
	if q := r.URL.Query(); q.Get("watch") == "" || q.Get("sendInitialEvents") == "true" {
		a.lists.Add(1)
	} else {
		a.watches.Add(1)
	}
	return a.RoundTripper.RoundTrip(r)
}

// observer is an informer of the gadgets of a group and version, with every state that it has seen of each.
type observer struct {
	version        string
	lists, watches atomic.Int64

	mu    sync.Mutex
	seen  map[string][]string // resourceVersions by name, "gone" at the end
	wrong []string
}

func observe(t *testing.T, up *e2e.Installation, gvr schema.GroupVersionResource) *observer {
	t.Helper()
	o := &observer{version: gvr.Version, seen: map[string][]string{}}
	cfg := up.Config(t)
	cfg.Wrap(func(rt http.RoundTripper) http.RoundTripper { return asked{rt, &o.lists, &o.watches} })
	factory := dynamicinformer.NewDynamicSharedInformerFactory(e2e.DynamicClient(t, cfg), 0)
	informer := factory.ForResource(gvr).Informer()
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { o.saw(obj, "") },
		UpdateFunc: func(_, obj any) { o.saw(obj, "") },
		DeleteFunc: func(obj any) { o.saw(obj, "gone") },
	})
	if err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	factory.Start(stop)
	t.Cleanup(func() { close(stop); factory.Shutdown() })
	if !cache.WaitForCacheSync(t.Context().Done(), informer.HasSynced) {
		t.Fatal("the informer has not listed")
	}
	return o
}

func (o *observer) saw(obj any, state string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		o.wrong = append(o.wrong, fmt.Sprintf("a %T", obj))
		return
	}
	if state == "" {
		state = u.GetResourceVersion()
	}
	o.seen[u.GetName()] = append(o.seen[u.GetName()], state)
	if !strings.HasSuffix(u.GetAPIVersion(), "/"+o.version) {
		o.wrong = append(o.wrong, u.GetName()+" is "+u.GetAPIVersion())
	}
}

// compare returns an error unless each state was seen once, in order.
func (o *observer) compare(written map[string][]string) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.wrong) > 0 {
		return fmt.Errorf("%s: %v", o.version, o.wrong[:1])
	}
	for name, states := range written {
		if got := o.seen[name]; strings.Join(got, " ") != strings.Join(states, " ") {
			return fmt.Errorf("%s of %s: saw %v, written were %v", name, o.version, got, states)
		}
	}
	if len(o.seen) != len(written) {
		return fmt.Errorf("%s: saw %d objects of %d", o.version, len(o.seen), len(written))
	}
	return nil
}

// writers write objects that are valid under every schema of a definition.
type writers struct {
	*client
	group string

	mu      sync.Mutex
	written map[string][]string // as observer.seen
	failed  []string
	writes  atomic.Int64
}

// request sends a request that must succeed, and records the state that it leaves.
func (w *writers) request(ctx context.Context, name, method, path, body string, header ...string) (ok bool) {
	code, answer := w.ask(ctx, method, path, body, header...)
	if ctx.Err() != nil && code == 0 {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if code/100 != 2 {
		w.failed = append(w.failed, fmt.Sprintf("%s %s: %d %.300s", method, path, code, answer))
		return false
	}
	w.writes.Add(1)
	if method == http.MethodGet {
		return true
	}
	state := "gone"
	if method != http.MethodDelete {
		var u unstructured.Unstructured
		if err := u.UnmarshalJSON([]byte(answer)); err != nil {
			w.failed = append(w.failed, err.Error())
			return false
		}
		state = u.GetResourceVersion()
	}
	if states := w.written[name]; len(states) == 0 || states[len(states)-1] != state {
		w.written[name] = append(states, state)
	}
	return true
}

// run writes objects of its own until stop ends: creation, patches, apply, status, reads and lists in each version, deletion.
func (w *writers) run(ctx context.Context, stop context.Context, writer int, versions ...string) {
	for n := 0; stop.Err() == nil; n++ {
		version := versions[n%len(versions)]
		all := "/apis/" + w.group + "/" + version + "/namespaces/default/gadgets"
		name := fmt.Sprint("w", writer, "-", n)
		one := all + "/" + name
		ok := w.request(ctx, name, "POST", all, gadget(w.group, version, "Gadget", name, `{"size":1,"kept":"a"}`)) &&
			w.request(ctx, name, "PATCH", one, `{"spec":{"size":`+strconv.Itoa(2+n%5)+`}}`, mergePatch) &&
			w.request(ctx, name, "PATCH", one+"?fieldManager=w&force=true", gadget(w.group, version, "Gadget", name, `{"kept":"b"}`), "Content-Type: application/apply-patch+yaml") &&
			w.request(ctx, name, "PATCH", one+"/status", `{"status":{"n":`+strconv.Itoa(n+1)+`}}`, mergePatch) &&
			w.request(ctx, name, "GET", one, "") && w.request(ctx, name, "GET", all+"?limit=5", "") &&
			w.request(ctx, name, "DELETE", one, "")
		if !ok {
			return
		}
	}
}

// changingSchemas are schemas under all of which the writes of writers are valid.
func changingSchemas(n int) string {
	return fmt.Sprintf(`{"type":"object","properties":{"size":{"type":"integer","maximum":%d},"kept":{"type":"string","default":"x%d"},"extra%d":{"type":"string","default":"y"}},
		"x-kubernetes-validations":[{"rule":"self.size < %d"}]}`, 100+n, n, n%3, 1000+n)
}

// While the schema of a definition changes, its storage version flips, and a version that nothing asks for comes and goes,
// no request fails that every one of its states accepts; informers of both other versions neither list nor open a watch
// again, and see each state of each object once. No object is left.
func TestDefinitionChangesUnderLoad(t *testing.T) {
	t.Parallel()
	const group = "changes.example.com"
	up := e2e.SharedInstallation(t)
	c := newClient(t, up)
	state := func(n int) string {
		versions := []string{"v1 served storage", "v1beta1 served"}
		if n%2 == 1 {
			versions = []string{"v1 served", "v1beta1 served storage"}
		}
		if n%3 == 1 {
			versions = append(versions, "v2alpha1 served")
		}
		return definition(group, "Namespaced", "Gadget", changingSchemas(n), versions...)
	}
	if err := errors.Join(c.must(t.Context(), http.StatusCreated, "POST", definitionsPath, state(0)), c.served(t.Context(), "/apis/"+group+"/v1beta1/gadgets")); err != nil {
		t.Fatal(err)
	}
	w := &writers{client: c, group: group, written: map[string][]string{}}
	var observers []*observer
	for _, version := range []string{"v1", "v1beta1"} {
		observers = append(observers, observe(t, up, schema.GroupVersionResource{Group: group, Version: version, Resource: "gadgets"}))
	}
	stop, cancel := context.WithCancel(t.Context())
	defer cancel()
	var running sync.WaitGroup
	for i := range 4 {
		running.Go(func() { w.run(t.Context(), stop, i, "v1", "v1beta1") })
	}
	const changes = 24
	for n := 1; n <= changes && !t.Failed(); n++ {
		before := w.writes.Load()
		// It waits for writes, not for time: each state serves some.
		if err := poll(t.Context(), func() error {
			w.mu.Lock()
			defer w.mu.Unlock()
			if len(w.failed) > 0 || w.writes.Load() < before+20 {
				return errors.New("the writers do not get on")
			}
			return nil
		}); err != nil {
			break
		}
		path := definitionsPath + "/gadgets." + group
		body := strings.Replace(state(n), `"metadata":{`, `"metadata":{"managedFields":null,`, 1)
		if err := c.must(t.Context(), http.StatusOK, "PATCH", path, body, mergePatch); err != nil {
			t.Error(err)
		}
	}
	cancel()
	running.Wait()
	for _, text := range w.failed {
		t.Error(text)
	}
	for _, o := range observers {
		e2e.Eventually(t, "the informer of "+o.version+" has seen everything", func() error { return o.compare(w.written) })
		if o.lists.Load() != 1 || o.watches.Load() > 0 {
			t.Errorf("the informer of %s has listed %d times, and opened %d watches again", o.version, o.lists.Load(), o.watches.Load())
		}
	}
	t.Logf("%d requests during %d changes", w.writes.Load(), changes)
	removeDefinition(t, up, c, group)
}

// removeDefinition deletes the definition of a group. No object of it is left in etcd.
func removeDefinition(t *testing.T, up *e2e.Installation, c *client, group string) {
	t.Helper()
	path := definitionsPath + "/gadgets." + group
	if err := errors.Join(c.must(t.Context(), http.StatusOK, "DELETE", path, ""), c.gone(t.Context(), path)); err != nil {
		t.Fatal(err)
	}
	if left := keysWith(t, up, "/"+group+"/"); len(left) > 0 {
		t.Errorf("%d keys are left: %.1000s", len(left), left)
	}
}
