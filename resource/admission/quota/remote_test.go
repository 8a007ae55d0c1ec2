package quota

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"portico/internal/testing/await"
	"portico/internal/testing/memstore"
	"portico/resource"
	"portico/resource/client"
	"portico/resource/rest"
	"portico/resource/rest/handlers"
)

// quotasOver serves quotas over HTTP and returns them with their client.
func quotasOver(t *testing.T) (*rest.Resource, *client.Client) {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	info := resource.Info{Versions: []string{"v1"}, Resource: "resourcequotas", Kind: "ResourceQuota", Namespaced: true}
	k := &rest.Kind{Info: info, Codec: rest.Typed(scheme, info.GVK("v1"))}
	k.Subresources = []rest.Subresource{{Name: "status", Strategy: &rest.Strategy{}}}
	r := &rest.Resource{Kind: k, Store: memstore.New().Store(&k.Info)}
	api := handlers.New(handlers.Config{Resources: []*rest.Resource{r}})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		act := resource.ParseAction(r)
		act.User = &resource.User{Name: "crd"}
		api.ServeHTTP(w, r.WithContext(resource.WithAction(r.Context(), act)))
	}))
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return r, client.New(client.Config{BaseURL: server.URL, Transport: server.Client().Transport})
}

func usageOf(q *corev1.ResourceQuota) int64 {
	used := q.Status.Used["configmaps"]
	return used.Value()
}

// Quotas of another server are followed, read anew, and changed unless they changed meanwhile.
func TestRemote(t *testing.T) {
	t.Parallel()
	r, c := quotasOver(t)
	remote := NewRemote(c, slog.New(slog.DiscardHandler))
	if remote.Ready() == nil {
		t.Error("ready before the quotas were read")
	}
	q := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "q"}}
	if _, err := rest.CreateObject(t.Context(), r, q); err != nil {
		t.Fatal(err)
	}
	if list, err := remote.List(t.Context(), "ns", false); err != nil || len(list) != 1 {
		t.Fatalf("before the first read: %v %v", list, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- remote.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}()
	for deadline := time.Now().Add(await.Patience()); remote.Ready() != nil; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the quotas are not read")
		}
	}
	list, err := remote.List(t.Context(), "ns", true)
	if err != nil || len(list) != 1 {
		t.Fatal(list, err)
	}
	charged := list[0].DeepCopy()
	charged.Status.Used = corev1.ResourceList{"configmaps": apiresource.MustParse("2")}
	if err := remote.UpdateStatus(t.Context(), charged); err != nil {
		t.Fatal(err)
	}
	if err := remote.UpdateStatus(t.Context(), charged); !apierrors.IsConflict(err) {
		t.Errorf("a second charge of the same state: %v, want a conflict", err)
	}
	if list, err := remote.List(t.Context(), "ns", true); err != nil || usageOf(list[0]) != 2 {
		t.Errorf("usage %v, %v", list, err)
	}
	if list, err := remote.List(t.Context(), "other", true); err != nil || len(list) != 0 {
		t.Errorf("another namespace has %v, %v", list, err)
	}
}
