package core

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico/backends/process"
	"portico/internal/testing/await"
	"portico/internal/testing/memstore"
	"portico/resource"
	"portico/resource/client"
)

// unread is a storage with a feed that never delivers anything, like one with a very large storage.
type unread struct{ *memstore.Storage }

func (u unread) Feed(...string) resource.Feed { return endless{u.Storage.Feed()} }

type endless struct{ resource.Feed }

func (endless) Run(ctx context.Context, _ resource.FeedSink) error {
	<-ctx.Done()
	return ctx.Err()
}

// Objects are read and written while the cache is being filled. Writes wait for the stored
// admission webhooks, which are not read from the cache.
func TestServesWhileTheCacheIsFilled(t *testing.T) {
	t.Parallel()
	c := newCoreOver(t, unread{memstore.New()}, Config{Config: process.Config{Gateway: client.Gateway{URL: "https://127.0.0.1:1"}}})
	start(t, c.runParts)
	await.Until(t, "webhooks are known", func() bool { return c.engine.Ready() == nil })
	await.Until(t, "the system namespaces are there", c.started.namespaces.Load)
	const path = "/api/v1/namespaces/default/configmaps"
	m := corev1.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: metav1.ObjectMeta{Name: "x"}, Data: map[string]string{"a": "1"}}
	c.must(t, "POST", path, m, nil)
	m.Data["a"] = "2"
	c.must(t, "PUT", path+"/x", m, nil)
	var got corev1.ConfigMap
	if c.must(t, "GET", path+"/x", nil, &got); got.Data["a"] != "2" {
		t.Errorf("got %v", got.Data)
	}
	var list corev1.ConfigMapList
	if c.must(t, "GET", path+"?limit=5", nil, &list); len(list.Items) != 1 {
		t.Errorf("listed %v", list.Items)
	}
	c.must(t, "DELETE", path+"/x", nil, nil)
	if c.cache.Ready() {
		t.Error("the cache is filled")
	}
}
