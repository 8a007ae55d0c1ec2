package handlers

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/metadata"
	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"portico/internal/testing/await"
	"portico/resource/rest/resttest"
)

// client-go understands responses in JSON and protobuf.
func TestClientGo(t *testing.T) {
	for _, contentType := range []string{runtime.ContentTypeJSON, runtime.ContentTypeProtobuf} {
		t.Run(contentType, func(t *testing.T) {
			b, _ := newCachedBench(t)
			for _, name := range []string{"a", "b", "c"} {
				b.put(b.configMaps, resttest.ConfigMap(name))
			}
			client := b.coreClient(contentType)
			got, err := client.ConfigMaps("default").Get(t.Context(), "b", metav1.GetOptions{})
			if err != nil || got.Data["<key>"] != "value of b" || got.ResourceVersion == "" {
				t.Fatalf("got %+v, %v", got, err)
			}
			if _, err = client.ConfigMaps("default").Get(t.Context(), "x", metav1.GetOptions{}); !apierrors.IsNotFound(err) || err.Error() != `configmaps "x" not found` {
				t.Errorf("missing: %v", err)
			}
			page, err := client.ConfigMaps("").List(t.Context(), metav1.ListOptions{Limit: 2})
			if err != nil || len(page.Items) != 2 || page.RemainingItemCount == nil || *page.RemainingItemCount != 1 {
				t.Fatalf("page %+v, %v", page, err)
			}
			page, err = client.ConfigMaps("").List(t.Context(), metav1.ListOptions{Limit: 2, Continue: page.Continue})
			if err != nil || len(page.Items) != 1 || page.Items[0].Name != "c" || page.Continue != "" {
				t.Fatalf("page %+v, %v", page, err)
			}
			b.inform(client.RESTClient())
		})
	}
}

func (b *bench) coreClient(contentType string) *corev1client.CoreV1Client {
	b.t.Helper()
	client, err := corev1client.NewForConfig(&restclient.Config{Host: b.URL, ContentConfig: restclient.ContentConfig{ContentType: contentType}})
	if err != nil {
		b.t.Fatal(err)
	}
	return client
}

// inform runs an informer, which syncs with the watch-list protocol, and waits until it has
// seen a change and a deletion.
func (b *bench) inform(client restclient.Interface) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), await.Patience())
	defer cancel()
	seen := make(chan string, 10)
	_, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: cache.NewListWatchFromClient(client, "configmaps", "default", fields.Everything()),
		ObjectType:    &corev1.ConfigMap{},
		Handler: cache.ResourceEventHandlerFuncs{
			UpdateFunc: func(_, obj any) { seen <- "changed " + obj.(*corev1.ConfigMap).Name },
			DeleteFunc: func(obj any) { seen <- "deleted " + obj.(*corev1.ConfigMap).Name },
		},
	})
	done := make(chan struct{})
	go func() { defer close(done); informer.RunWithContext(ctx) }()
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		b.t.Fatal("the informer has not synced")
	}
	changed := resttest.ConfigMap("a")
	changed.Data["x"] = "y"
	b.put(b.configMaps, changed)
	b.remove(b.configMaps, "b")
	for _, want := range []string{"changed a", "deleted b"} {
		select {
		case got := <-seen:
			if got != want {
				b.t.Errorf("seen %s, want %s", got, want)
			}
		case <-ctx.Done():
			b.t.Fatalf("never seen: %s", want)
		}
	}
	cancel()
	<-done
}

func TestMetadataClient(t *testing.T) {
	b := newBench(t)
	b.put(b.secrets, resttest.Secret("s"))
	client, err := metadata.NewForConfig(&restclient.Config{Host: b.URL})
	if err != nil {
		t.Fatal(err)
	}
	secrets := client.Resource(corev1.SchemeGroupVersion.WithResource("secrets")).Namespace("default")
	list, err := secrets.List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 1 || list.Items[0].Name != "s" {
		t.Fatalf("list %+v, %v", list, err)
	}
	w, err := secrets.Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	var obj runtime.Object = (<-w.ResultChan()).Object
	if partial, ok := obj.(*metav1.PartialObjectMetadata); !ok || partial.Name != "s" {
		t.Errorf("watched %+v", obj)
	}
	if err := secrets.Delete(t.Context(), "s", metav1.DeleteOptions{}); err != nil {
		t.Errorf("delete: %v", err)
	}
}
