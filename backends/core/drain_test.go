package core

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico/apiservice"
	"portico/backends/process"
	"portico/internal/testing/await"
	"portico/internal/testing/memstore"
	"portico/resource"
	"portico/resource/client"
)

// The conditions of a namespace are bounded, whatever it contains.
func TestDrainConditionsAreBounded(t *testing.T) {
	t.Parallel()
	r := newResult("shop")
	held := &resource.Object{}
	for i := range 60000 {
		held.Finalizers = append(held.Finalizers, fmt.Sprintf("example.com/f%05d", i))
		r.content = append(r.content, emptied{err: errors.New(strings.Repeat("e", 10000)), api: fmt.Sprintf("v1.%05d", i%100)})
		r.remaining[fmt.Sprintf("r%05d.", i)] = 1
	}
	r.discovery = errors.New(strings.Repeat("é", 10000))
	r.count(schema.GroupResource{Resource: "configmaps"}, []*resource.Object{held})
	for _, c := range r.conditions() {
		if len(c.Message) > 200<<10 || !utf8.ValidString(c.Message) {
			t.Errorf("%s: a message of %d bytes", c.Type, len(c.Message))
		}
		ends := map[corev1.NamespaceConditionType]string{
			corev1.NamespaceDeletionDiscoveryFailure: "é...",
			corev1.NamespaceDeletionContentFailure:   " v1.00019 and 80 more gateway.portico.dev/abandon-namespaces=shop",
			corev1.NamespaceContentRemaining:         ", r00098. has 1 resource instances and 59901 more",
			corev1.NamespaceFinalizersRemaining:      ", example.com/f00099 in 1 resource instances and 59900 more",
		}
		if !strings.HasSuffix(c.Message, ends[c.Type]) {
			t.Errorf("%s ends %s", c.Type, c.Message[max(0, len(c.Message)-80):])
		}
	}
}

// The condition of a namespace with objects that cannot be read names them and says what to do; it
// does not advise about the server, which answers.
func TestDrainNamesWhatCannotBeRead(t *testing.T) {
	t.Parallel()
	const message = `failed to read one or more widgets.example.com from the storage: unable to read the stored object at key "/registry/x"`
	r := newResult("shop")
	r.add(emptied{api: "v1.example.com", resource: schema.GroupResource{Group: "example.com", Resource: "widgets"}, err: resource.UnreadableList(
		schema.GroupResource{Group: "example.com", Resource: "widgets"}, []error{errors.New(`unable to read the stored object at key "/registry/x"`)})})
	r.settle(func(string) bool { return false })
	got := condition(&corev1.Namespace{Status: corev1.NamespaceStatus{Conditions: r.conditions()}}, corev1.NamespaceDeletionContentFailure)
	want := "Failed to delete all resource types, 1 remaining: widgets.example.com: " + message +
		"; repair what cannot be read, or delete it with ignoreStoreReadErrorWithClusterBreakingPotential in DeleteOptions"
	if got.Status != corev1.ConditionTrue || got.Message != want {
		t.Errorf("condition is %s %q, want %q", got.Status, got.Message, want)
	}
}

// Namespaces have no deletecollection, and system namespaces cannot be deleted.
func TestNamespacesHaveNoDeleteCollection(t *testing.T) {
	t.Parallel()
	c := running(t, Config{})
	c.must(t, http.MethodPost, "/api/v1/namespaces", object("aaa"), nil)
	for _, query := range []string{"", "?labelSelector=kubernetes.io/metadata.name%3Daaa"} {
		err := c.do(t, http.MethodDelete, "/api/v1/namespaces"+query, nil, nil)
		if want := "the server does not allow this method on the requested resource"; !apierrors.IsMethodNotSupported(err) || err.Error() != want {
			t.Errorf("DELETE of all namespaces%s: %v, want 405 %s", query, err, want)
		}
	}
	for _, name := range []string{"default", "kube-system", "kube-public"} {
		err := c.do(t, http.MethodDelete, "/api/v1/namespaces/"+name, nil, nil)
		if want := fmt.Sprintf("namespaces %q is forbidden: this namespace may not be deleted", name); !apierrors.IsForbidden(err) || err.Error() != want {
			t.Errorf("DELETE of %s: %v, want 403 %s", name, err, want)
		}
	}
	if ns := get[corev1.Namespace](t, c, "/api/v1/namespaces/aaa"); ns == nil || ns.DeletionTimestamp != nil {
		t.Errorf("a namespace was deleted with the collection: %+v", ns)
	}
}

// A namespace is deleted with its content. An object with a finalizer delays it, which the
// conditions show.
func TestDrain(t *testing.T) {
	t.Parallel()
	c := running(t, Config{})
	const path, held = "/api/v1/namespaces/n", "/api/v1/namespaces/n/secrets/held"
	createNamespace(t, c, "n")
	c.must(t, http.MethodPost, path+"/configmaps", object("plain"), nil)
	c.must(t, http.MethodPost, path+"/secrets", map[string]any{
		"metadata": map[string]any{"name": "held", "finalizers": []string{"example.com/hold"}},
	}, nil)
	c.must(t, http.MethodPost, "/api/v1/namespaces/default/configmaps", object("plain"), nil)
	c.must(t, http.MethodDelete, path, nil, nil)
	condition := func(kind corev1.NamespaceConditionType) corev1.NamespaceCondition {
		return condition(get[corev1.Namespace](t, c, path), kind)
	}
	await.Until(t, "the conditions tell what is left", func() bool {
		c := condition(corev1.NamespaceContentRemaining)
		return c.Status == corev1.ConditionTrue && c.Reason == "SomeResourcesRemain" && c.Message == "Some resources are remaining: secrets. has 1 resource instances"
	})
	if c := condition(corev1.NamespaceFinalizersRemaining); c.Status != corev1.ConditionTrue || c.Message != "Some content in the namespace has finalizers remaining: example.com/hold in 1 resource instances" {
		t.Errorf("condition %+v", c)
	}
	if c := condition(corev1.NamespaceDeletionDiscoveryFailure); c.Status != corev1.ConditionFalse || c.Reason != "ResourcesDiscovered" {
		t.Errorf("condition %+v", c)
	}
	if get[corev1.ConfigMap](t, c, path+"/configmaps/plain") != nil {
		t.Error("what nothing holds is still there")
	}
	err := c.do(t, http.MethodPost, "/api/v1/namespaces/n/configmaps", object("late"), nil)
	if !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		t.Errorf("create in a namespace that goes: %v", err)
	}
	secret := get[corev1.Secret](t, c, held)
	if secret == nil || secret.DeletionTimestamp == nil {
		t.Fatalf("held secret %+v", secret)
	}
	secret.Finalizers = nil
	c.must(t, http.MethodPut, held, secret, nil)
	await.Until(t, "the namespace is gone", func() bool { return get[corev1.Namespace](t, c, path) == nil })
	if get[corev1.ConfigMap](t, c, "/api/v1/namespaces/default/configmaps/plain") == nil {
		t.Error("another namespace lost its content")
	}
	if err := c.do(t, http.MethodPost, "/api/v1/namespaces/n/configmaps", object("late"), nil); !apierrors.IsNotFound(err) || !strings.Contains(err.Error(), `namespaces "n" not found`) {
		t.Errorf("create in a namespace that is gone: %v", err)
	}
}

// Nothing of a namespace is deleted before its pods are gone.
func TestDrainDeletesPodsFirst(t *testing.T) {
	t.Parallel()
	c := running(t, Config{})
	const path, configMap, pod = "/api/v1/namespaces/n", "/api/v1/namespaces/n/configmaps/c", "/api/v1/namespaces/n/pods/p"
	createNamespace(t, c, "n")
	c.must(t, http.MethodPost, path+"/configmaps", object("c"), nil)
	c.must(t, http.MethodPost, path+"/pods", map[string]any{
		"metadata": map[string]any{"name": "p", "finalizers": []string{"example.com/hold"}},
		"spec":     map[string]any{"containers": []any{map[string]any{"name": "c", "image": "example.com/app:1"}}},
	}, nil)
	c.must(t, http.MethodDelete, path, nil, nil)
	await.Until(t, "the condition names the pod", func() bool {
		c := condition(get[corev1.Namespace](t, c, path), corev1.NamespaceContentRemaining)
		return c.Message == "Some resources are remaining: pods. has 1 resource instances"
	})
	held := get[corev1.Pod](t, c, pod)
	if held == nil || held.DeletionTimestamp == nil {
		t.Fatalf("the pod is not being deleted: %+v", held)
	}
	if get[corev1.ConfigMap](t, c, configMap) == nil {
		t.Error("the ConfigMap went before the pod")
	}
	held.Finalizers = nil
	c.must(t, http.MethodPut, pod, held, nil)
	await.Until(t, "the namespace is gone", func() bool { return get[corev1.Namespace](t, c, path) == nil })
}

// keepsPods is a storage in which pods cannot be changed or deleted until released is set.
type keepsPods struct {
	inMemory
	released atomic.Bool
}

func (k *keepsPods) Store(info *resource.Info) resource.Store {
	if info.Resource == "pods" {
		return keptPods{k.inMemory.Store(info), k}
	}
	return k.inMemory.Store(info)
}

type keptPods struct {
	resource.Store
	*keepsPods
}

func (k keptPods) Update(ctx context.Context, key resource.Key, mutate resource.Mutate) (*resource.Object, error) {
	if !k.released.Load() {
		return nil, apierrors.NewForbidden(corev1.Resource("pods"), key.Name, errors.New("pods are kept"))
	}
	return k.Store.Update(ctx, key, mutate)
}

func (k keptPods) Delete(ctx context.Context, key resource.Key, check func(*resource.Object) error) (*resource.Object, error) {
	if !k.released.Load() {
		return nil, apierrors.NewForbidden(corev1.Resource("pods"), key.Name, errors.New("pods are kept"))
	}
	return k.Store.Delete(ctx, key, check)
}

// A refused deletion of a pod does not delay the other objects.
func TestDrainGoesOnAfterRefusedPods(t *testing.T) {
	t.Parallel()
	kept := &keepsPods{inMemory: inMemory{memstore.New()}}
	c := runningOver(t, kept, Config{})
	const path, configMap, pod = "/api/v1/namespaces/n", "/api/v1/namespaces/n/configmaps/c", "/api/v1/namespaces/n/pods/p"
	createNamespace(t, c, "n")
	c.must(t, http.MethodPost, path+"/configmaps", object("c"), nil)
	c.must(t, http.MethodPost, path+"/pods", map[string]any{
		"metadata": map[string]any{"name": "p"},
		"spec":     map[string]any{"containers": []any{map[string]any{"name": "c", "image": "example.com/app:1"}}},
	}, nil)
	c.must(t, http.MethodDelete, path, nil, nil)
	await.Until(t, "the ConfigMap is gone", func() bool { return get[corev1.ConfigMap](t, c, configMap) == nil })
	await.Until(t, "the condition names the refusal", func() bool {
		ns := get[corev1.Namespace](t, c, path)
		if ns == nil {
			t.Fatal("the namespace is gone")
		}
		c := condition(ns, corev1.NamespaceDeletionContentFailure)
		return c.Status == corev1.ConditionTrue && strings.Contains(c.Message, `pods "p" is forbidden: pods are kept`)
	})
	if get[corev1.Pod](t, c, pod) == nil {
		t.Error("the pod is deleted")
	}
	kept.released.Store(true)
	await.Until(t, "the namespace is gone", func() bool { return get[corev1.Namespace](t, c, path) == nil })
}

// The content of a namespace of the same name and another uid is not deleted.
func TestDrainSparesANamespaceOfTheSameName(t *testing.T) {
	t.Parallel()
	c := running(t, Config{})
	c.must(t, http.MethodPost, "/api/v1/namespaces", object("n"), nil)
	c.must(t, http.MethodPost, "/api/v1/namespaces/n/configmaps", object("plain"), nil)
	c.drain.drain(t.Context(), "n", "uid-of-one-that-is-gone")
	if get[corev1.ConfigMap](t, c, "/api/v1/namespaces/n/configmaps/plain") == nil {
		t.Error("its content is deleted")
	}
}

func condition(ns *corev1.Namespace, kind corev1.NamespaceConditionType) corev1.NamespaceCondition {
	for _, c := range ns.Status.Conditions {
		if c.Type == kind {
			return c
		}
	}
	return corev1.NamespaceCondition{}
}

func TestDrainKeepsForeignSpecFinalizers(t *testing.T) {
	t.Parallel()
	c := running(t, Config{})
	c.must(t, "POST", "/api/v1/namespaces", json.RawMessage(`{"metadata":{"name":"shop"},"spec":{"finalizers":["example.com/mine"]}}`), nil)
	c.must(t, "DELETE", "/api/v1/namespaces/shop", nil, nil)
	await.Until(t, "only the foreign finalizer is left", func() bool {
		ns := get[corev1.Namespace](t, c, "/api/v1/namespaces/shop")
		return slices.Equal(ns.Spec.Finalizers, []corev1.FinalizerName{"example.com/mine"})
	})
}

// Namespaces that wait for a finalizer do not delay others.
func TestDrainIsNotHeldUpByStuckNamespaces(t *testing.T) {
	t.Parallel()
	c := running(t, Config{})
	for i := range maxDrains + 2 {
		name := fmt.Sprintf("stuck-%d", i)
		createNamespace(t, c, name)
		c.must(t, "POST", "/api/v1/namespaces/"+name+"/configmaps", json.RawMessage(`{"metadata":{"name":"held","finalizers":["example.com/hold"]}}`), nil)
		c.must(t, "DELETE", "/api/v1/namespaces/"+name, nil, nil)
	}
	await.Until(t, "every stuck namespace was tried", func() bool {
		list := get[corev1.NamespaceList](t, c, "/api/v1/namespaces")
		return !slices.ContainsFunc(list.Items, func(ns corev1.Namespace) bool {
			return strings.HasPrefix(ns.Name, "stuck-") && condition(&ns, corev1.NamespaceContentRemaining).Status != "True"
		})
	})
	createNamespace(t, c, "free")
	c.must(t, "DELETE", "/api/v1/namespaces/free", nil, nil)
	await.Until(t, "the free namespace is gone", func() bool { return get[corev1.Namespace](t, c, "/api/v1/namespaces/free") == nil })
}

// elsewhere is a gateway that serves a group of another server.
type elsewhere struct {
	discovery string
	listCode  int    // status code of lists; 0: 200
	causes    string // of the Status that the path of the group/version returns
	abandons  string // the annotation of the APIService

	mu      sync.Mutex
	widgets []string
	deletes []string // path and body of each
}

func (e *elsewhere) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	e.mu.Lock()
	defer e.mu.Unlock()
	const collection = "/apis/example.com/v1/namespaces/shop/widgets"
	w.Header().Set("Content-Type", "application/json")
	switch {
	case r.URL.Path == "/apis":
		if !strings.Contains(r.Header.Get("Accept"), "APIGroupDiscoveryList") {
			w.WriteHeader(http.StatusNotAcceptable)
			return
		}
		fmt.Fprint(w, e.discovery)
	case r.URL.Path == "/apis/apiregistration.k8s.io/v1/apiservices":
		fmt.Fprintf(w, `{"items":[{"metadata":{"name":"v1.example.com","annotations":{%q:%q}}}]}`, apiservice.AbandonAnnotation, e.abandons)
	case r.URL.Path == collection && r.Method == http.MethodGet:
		if e.listCode != 0 {
			w.WriteHeader(e.listCode)
			fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"no","reason":%q,"details":{"causes":[%s]},"code":%d}`,
				map[int]string{404: "NotFound", 503: "ServiceUnavailable"}[e.listCode], e.causes, e.listCode)
			return
		}
		var items []string
		for _, name := range e.widgets {
			items = append(items, fmt.Sprintf(`{"metadata":{"name":%q,"namespace":"shop","uid":"uid-of-%s","resourceVersion":"5"}}`, name, name))
		}
		fmt.Fprintf(w, `{"kind":"WidgetList","apiVersion":"example.com/v1","metadata":{"resourceVersion":"9"},"items":[%s]}`, strings.Join(items, ","))
	case strings.HasPrefix(r.URL.Path, collection) && r.Method == http.MethodDelete:
		body, _ := io.ReadAll(r.Body)
		e.deletes = append(e.deletes, r.URL.Path+" "+string(body))
		name := strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, collection), "/")
		e.widgets = slices.DeleteFunc(e.widgets, func(s string) bool { return name == "" || s == name })
		fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Success"}`)
	case r.URL.Path == "/apis/example.com/v1":
		w.WriteHeader(http.StatusServiceUnavailable)
		fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"no","reason":"ServiceUnavailable","details":{"causes":[%s]},"code":503}`, e.causes)
	default:
		http.NotFound(w, r)
	}
}

func discoveryOf(freshness, resources string) string {
	return `{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","items":[
		{"metadata":{"name":"coordination.k8s.io"},"versions":[{"version":"v1","freshness":"Current","resources":[
			{"resource":"leases","scope":"Namespaced","verbs":["list","delete"]}]}]},
		{"metadata":{"name":"example.com"},"versions":[{"version":"v1","freshness":"` + freshness + `","resources":[` + resources + `]}]}]}`
}

func TestDrainOtherServers(t *testing.T) {
	t.Parallel()
	const (
		plain      = `{"resource":"widgets","scope":"Namespaced","verbs":["delete","get","list"]}`
		collection = `{"resource":"widgets","scope":"Namespaced","verbs":["delete","deletecollection","get","list"]}`
		cluster    = `{"resource":"widgets","scope":"Cluster","verbs":["delete","list"]}`
	)
	for name, test := range map[string]struct {
		discovery string
		listCode  int
		causes    string
		abandons  string
		gone      bool
		deletes   []string // what each deletion contains
		failed    corev1.NamespaceConditionType
		reason    string
		message   string
	}{
		"one by one": {
			discovery: discoveryOf("Current", plain), gone: true,
			deletes: []string{`/widgets/a {"kind":"DeleteOptions","apiVersion":"v1","preconditions":{"uid":"uid-of-a"}`, "/widgets/b "},
		},
		"as a collection":           {discovery: discoveryOf("Current", collection), gone: true, deletes: []string{"/widgets {"}},
		"last good, but answering":  {discovery: discoveryOf("Stale", collection), gone: true, deletes: []string{"/widgets {"}},
		"away, holds nothing here":  {discovery: discoveryOf("Stale", cluster), listCode: 503, gone: true},
		"gone since discovery":      {discovery: discoveryOf("Current", plain), listCode: 404, gone: true},
		"no server has it now":      {discovery: discoveryOf("Stale", plain), listCode: 503, causes: `{"reason":"NotServed"}`, gone: true},
		"away, may hold something":  {discovery: discoveryOf("Stale", plain), listCode: 503, failed: corev1.NamespaceDeletionContentFailure, reason: "ContentDeletionFailed", message: "Failed to delete all resource types, 1 remaining: widgets.example.com: "},
		"never seen":                {discovery: discoveryOf("Stale", ""), failed: corev1.NamespaceDeletionDiscoveryFailure, reason: "DiscoveryFailed", message: "Discovery failed for some groups, 1 failing: unable to retrieve the complete list of server APIs: example.com/v1"},
		"never seen, no server":     {discovery: discoveryOf("Stale", ""), causes: `{"reason":"NotServed"}`, gone: true},
		"another was abandoned":     {discovery: discoveryOf("Stale", plain), listCode: 503, abandons: "a,shopping", failed: corev1.NamespaceDeletionContentFailure, reason: "ContentDeletionFailed", message: "Failed to delete all resource types, 1 remaining: widgets.example.com: "},
		"abandoned":                 {discovery: discoveryOf("Stale", plain), listCode: 503, abandons: "a, shop", gone: true},
		"abandoned, never seen":     {discovery: discoveryOf("Stale", ""), abandons: "*", gone: true},
		"abandoned, but answering":  {discovery: discoveryOf("Stale", collection), abandons: "*", gone: true, deletes: []string{"/widgets {"}},
		"discovery is not readable": {discovery: `{`, failed: corev1.NamespaceDeletionDiscoveryFailure, reason: "DiscoveryFailed", message: "Discovery failed: "},
	} {
		t.Run(name, func(t *testing.T) {
			e := &elsewhere{discovery: test.discovery, listCode: test.listCode, causes: test.causes, abandons: test.abandons, widgets: []string{"a", "b"}}
			server := httptest.NewTLSServer(e)
			defer server.Close()
			c := newCore(t, Config{Config: process.Config{Gateway: trusting(t, server)}})
			start(t, c.cache.Run, c.engine.Run)
			await.Until(t, "the cache is ready", c.cache.Ready)
			uid := string(createNamespace(t, c, "shop").UID)
			c.must(t, "DELETE", "/api/v1/namespaces/shop", nil, nil)

			err := c.drain.drain(t.Context(), "shop", uid)
			if (err == nil) != test.gone || (get[corev1.Namespace](t, c, "/api/v1/namespaces/shop") == nil) != test.gone {
				t.Fatalf("after draining once: %v; want the namespace gone: %v", err, test.gone)
			}
			if len(e.deletes) != len(test.deletes) {
				t.Fatalf("deletions were %q", e.deletes)
			}
			slices.Sort(e.deletes) // several are sent at a time
			for i, want := range test.deletes {
				if !strings.Contains(e.deletes[i], want) || !strings.Contains(e.deletes[i], `"propagationPolicy":"Background"`) {
					t.Errorf("deletion %d was %q, want %q in it", i, e.deletes[i], want)
				}
			}
			event := get[corev1.Event](t, c, "/api/v1/namespaces/default/events/shop."+uid)
			if abandoned := test.gone && test.abandons != "" && test.deletes == nil; (event != nil) != abandoned ||
				abandoned && (event.Reason != "ContentAbandoned" || !strings.Contains(event.Message, "example.com") || !strings.Contains(event.Message, "v1.example.com")) {
				t.Errorf("the event is %+v", event)
			}
			if test.gone {
				return
			}
			event = get[corev1.Event](t, c, "/api/v1/namespaces/default/events/shop."+uid+".waits")
			if event == nil || event.Reason != "DeletionWaits" || event.InvolvedObject.Name != "shop" || !strings.Contains(event.Message, test.message) {
				t.Errorf("the event of the namespace that waits is %+v", event)
			}
			have := condition(get[corev1.Namespace](t, c, "/api/v1/namespaces/shop"), test.failed)
			if advice := "kubectl annotate apiservice v1.example.com gateway.portico.dev/abandon-namespaces=shop"; name != "discovery is not readable" && !strings.HasSuffix(have.Message, advice) {
				t.Errorf("the condition does not advise %q: %s", advice, have.Message)
			}
			if have.Status != "True" || have.Reason != test.reason || !strings.HasPrefix(have.Message, test.message) {
				t.Errorf("condition %s is %s %s %q", test.failed, have.Status, have.Reason, have.Message)
			}
		})
	}
}

// The conditions of a namespace with objects that a dead webhook keeps name the webhook and the definition, count the objects,
// and do not advise about the server, which answers.
func TestDrainNamesDeadWebhooks(t *testing.T) {
	t.Parallel()
	const called = "Internal error occurred: failed calling webhook \"no.example.com\": failed to call webhook: connection refused"
	r := newResult("shop")
	r.add(emptied{api: "v2.example.com", resource: schema.GroupResource{Group: "example.com", Resource: "convs"},
		err: errors.New("conversion webhook for example.com/v1, Kind=Conv failed: Post \"https://gone.shop.svc:443/\": service \"gone\" not found"), left: []*resource.Object{{}, {}}})
	r.add(emptied{api: "v1.other.example.com", resource: schema.GroupResource{Group: "other.example.com", Resource: "things"}, err: errors.New(called), left: []*resource.Object{{}}})
	r.settle(func(string) bool { return false })
	texts := map[corev1.NamespaceConditionType]string{}
	for _, c := range r.conditions() {
		texts[c.Type] = string(c.Status) + " " + c.Message
	}
	for kind, want := range map[corev1.NamespaceConditionType][]string{
		corev1.NamespaceDeletionContentFailure: {"True", "gone.shop.svc", "no.example.com", "repair the admission webhook that is named",
			"repair the conversion webhook of CustomResourceDefinition convs.example.com, or delete the definition"},
		corev1.NamespaceContentRemaining: {"True", "convs.example.com has 2 resource instances", "things.other.example.com has 1 resource instances"},
	} {
		for _, part := range want {
			if !strings.Contains(texts[kind], part) {
				t.Errorf("%s is %q, which lacks %q", kind, texts[kind], part)
			}
		}
	}
	if strings.Contains(texts[corev1.NamespaceDeletionContentFailure], "repair the server of APIService") {
		t.Errorf("the server is blamed: %s", texts[corev1.NamespaceDeletionContentFailure])
	}
}

// trusting returns the configuration of a client that trusts the server's certificate.
func trusting(t *testing.T, server *httptest.Server) client.Gateway {
	t.Helper()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	return client.Gateway{URL: server.URL, CAFile: writeFile(t, "gateway-ca.crt", ca)}
}
