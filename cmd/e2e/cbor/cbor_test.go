package cbor

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"portico/cmd/e2e"
	"portico/internal/testing/await"
)

// traffic records the media types of the requests and responses of a client.
type traffic struct {
	http.RoundTripper
	mu   sync.Mutex
	seen map[string]bool
}

func (tr *traffic) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := tr.RoundTripper.RoundTrip(r)
	tr.mu.Lock()
	defer tr.mu.Unlock()
	if sent := r.Header.Get("Content-Type"); sent != "" && r.Body != nil {
		tr.seen["sent "+sent] = true
	}
	if err == nil {
		tr.seen["got "+resp.Header.Get("Content-Type")] = true
	}
	return resp, err
}

// record makes the clients of a configuration record their traffic.
func record(cfg *rest.Config) *traffic {
	tr := &traffic{seen: map[string]bool{}}
	cfg.Wrap(func(rt http.RoundTripper) http.RoundTripper { tr.RoundTripper = rt; return tr })
	return tr
}

// want checks that the media types seen are these.
func (tr *traffic) want(t *testing.T, types ...string) {
	t.Helper()
	tr.mu.Lock()
	defer tr.mu.Unlock()
	for _, name := range types {
		if !tr.seen[name] {
			t.Errorf("never %s", name)
		}
	}
	if len(tr.seen) != len(types) {
		t.Errorf("seen were %v, want %v", tr.seen, types)
	}
}

// A dynamic client that prefers CBOR creates, reads, lists, watches, applies, patches and deletes
// objects of the core server, the CRD server and the gateway, in CBOR only.
func TestDynamicClientInCBOR(t *testing.T) {
	t.Parallel()
	up := e2e.SharedInstallation(t)
	ns := e2e.NewNamespace(t, up.Client(t))
	e2e.Define(t, e2e.DynamicClient(t, up.Config(t)), "cbor.example.com")
	for name, gvr := range map[string]schema.GroupVersionResource{"ConfigMap": e2e.ConfigMaps, "Widget": e2e.WidgetsOf("cbor.example.com"), "Role": e2e.Roles} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := up.Config(t)
			tr := record(cfg)
			useObjects(t, e2e.DynamicClient(t, cfg).Resource(gvr).Namespace(ns), gvr.GroupVersion().WithKind(name))
			tr.want(t, "sent application/cbor", "sent application/apply-patch+cbor", "sent "+string(types.MergePatchType), "got application/cbor", "got application/cbor-seq")
		})
	}
}

func useObjects(t *testing.T, objects dynamic.ResourceInterface, gvk schema.GroupVersionKind) {
	ctx, o := t.Context(), &unstructured.Unstructured{}
	o.SetGroupVersionKind(gvk)
	o.SetName("a")
	o.SetLabels(map[string]string{"app": "a"})
	made, err := objects.Create(ctx, o, metav1.CreateOptions{})
	if err != nil || made.GetUID() == "" || made.GroupVersionKind() != gvk {
		t.Fatalf("create: %v, %v", made, err)
	}
	if _, err := objects.Create(ctx, o, metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
		t.Errorf("create again: %v", err)
	}
	list, err := objects.List(ctx, metav1.ListOptions{LabelSelector: "app=a"})
	if err != nil || len(list.Items) != 1 || list.Items[0].GetUID() != made.GetUID() || list.Items[0].GroupVersionKind() != gvk || list.GetResourceVersion() == "" {
		t.Fatalf("list: %v, %v", list, err)
	}
	w, err := objects.Watch(ctx, metav1.ListOptions{LabelSelector: "app=a", ResourceVersion: made.GetResourceVersion()})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	apply := o.DeepCopy()
	apply.SetAnnotations(map[string]string{"applied": "yes\x7f"})
	applied, err := objects.Apply(ctx, "a", apply, metav1.ApplyOptions{FieldManager: "one"})
	if err != nil || applied.GetAnnotations()["applied"] != "yes\x7f" {
		t.Fatalf("apply: %v, %v", applied, err)
	}
	apply.SetAnnotations(map[string]string{"applied": "no"})
	if _, err := objects.Apply(ctx, "a", apply, metav1.ApplyOptions{FieldManager: "two"}); !apierrors.IsConflict(err) {
		t.Errorf("apply by another manager: %v", err)
	}
	if _, err := objects.Patch(ctx, "a", types.MergePatchType, []byte(`{"metadata":{"labels":{"tier":"x"}}}`), metav1.PatchOptions{}); err != nil {
		t.Error(err)
	}
	got, err := objects.Get(ctx, "a", metav1.GetOptions{})
	if err != nil || got.GetLabels()["tier"] != "x" || len(got.GetManagedFields()) < 2 {
		t.Fatalf("get: %v, %v", got, err)
	}
	got.SetLabels(map[string]string{"app": "a"})
	if _, err := objects.Update(ctx, got, metav1.UpdateOptions{}); err != nil {
		t.Error(err)
	}
	if _, err := objects.Update(ctx, got, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("update of an old state: %v", err)
	}
	if err := objects.Delete(ctx, "a", metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions("other")}); !apierrors.IsConflict(err) {
		t.Errorf("delete of another uid: %v", err)
	}
	if err := objects.Delete(ctx, "a", metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
	for _, want := range []watch.EventType{watch.Modified, watch.Modified, watch.Modified, watch.Deleted} {
		select {
		case e := <-w.ResultChan():
			if o, ok := e.Object.(*unstructured.Unstructured); !ok || e.Type != want || o.GetName() != "a" || o.GroupVersionKind() != gvk {
				t.Fatalf("event %s %v, want %s", e.Type, e.Object, want)
			}
		case <-ctx.Done():
			t.Fatal(ctx.Err())
		}
	}
	if _, err := objects.Get(ctx, "a", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("get of the deleted: %v", err)
	}
	if err := objects.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "app=a"}); err != nil {
		t.Error(err)
	}
}

// An informer syncs and follows in CBOR: bytes of a Secret are in base64.
func TestInformersInCBOR(t *testing.T) {
	t.Parallel()
	up := e2e.SharedInstallation(t)
	ns := e2e.NewNamespace(t, up.Client(t))
	cfg := up.Config(t)
	tr := record(cfg)
	ctx, cancel := context.WithTimeout(t.Context(), await.Patience())
	defer cancel()
	factory := dynamicinformer.NewFilteredDynamicSharedInformerFactory(e2e.DynamicClient(t, cfg), 0, ns, nil)
	informer := factory.ForResource(corev1.SchemeGroupVersion.WithResource("secrets")).Informer()
	factory.Start(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		t.Fatal("the informer has not synced")
	}
	// A typed client sends CBOR too if it is told so.
	typed := up.Config(t)
	typed.ContentType = "application/cbor"
	sent := record(typed)
	client, err := kubernetes.NewForConfig(typed)
	if err != nil {
		t.Fatal(err)
	}
	secrets := client.CoreV1().Secrets(ns)
	made, err := secrets.Apply(ctx, applycorev1.Secret("s", ns).WithData(map[string][]byte{"k": {0, 1, 255}}), metav1.ApplyOptions{FieldManager: "m"})
	if err != nil || string(made.Data["k"]) != "\x00\x01\xff" {
		t.Fatalf("apply: %v, %v", made, err)
	}
	made.Data["l"] = []byte("\xfe")
	if made, err = secrets.Update(ctx, made, metav1.UpdateOptions{}); err != nil || string(made.Data["l"]) != "\xfe" {
		t.Fatalf("update: %v, %v", made, err)
	}
	e2e.Eventually(t, "the informer has the secret", func() error {
		o, ok, err := informer.GetStore().GetByKey(ns + "/s")
		if err != nil || !ok {
			return context.DeadlineExceeded
		}
		data, _, err := unstructured.NestedStringMap(o.(*unstructured.Unstructured).Object, "data")
		if err == nil && (data["k"] != "AAH/" || data["l"] != "/g==") {
			err = context.DeadlineExceeded
		}
		return err
	})
	tr.want(t, "got application/cbor-seq")
	sent.want(t, "sent application/apply-patch+cbor", "sent application/cbor", "got application/cbor")
}

// A client that does not know CBOR is served tables as without the gate.
func TestKubectlBesideCBOR(t *testing.T) {
	t.Parallel()
	up := e2e.SharedInstallation(t)
	if out := up.MustKubectl(t, "get", "namespaces"); !strings.Contains(out, "Active") {
		t.Errorf("got %s", out)
	}
}
