package core

import (
	"context"
	"errors"
	"testing"

	"portico/internal/testing/await"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// ComponentStatuses have the health of etcd, and cannot be written.
func TestComponentStatuses(t *testing.T) {
	t.Parallel()
	c := newCore(t, Config{})
	start(t, c.cache.Run)
	await.Until(t, "the cache is ready", c.cache.Ready)
	const path = "/api/v1/componentstatuses"
	check := func(status corev1.ConditionStatus, message, failure string) {
		t.Helper()
		list := get[corev1.ComponentStatusList](t, c, path)
		one := get[corev1.ComponentStatus](t, c, path+"/etcd-0")
		if len(list.Items) != 1 || list.Items[0].Name != "etcd-0" || one == nil {
			t.Fatalf("got %+v, %+v", list, one)
		}
		want := corev1.ComponentCondition{Type: "Healthy", Status: status, Message: message, Error: failure}
		if list.Items[0].Conditions[0] != want || one.Conditions[0] != want {
			t.Errorf("got %+v, %+v, want %+v", list.Items[0].Conditions, one.Conditions, want)
		}
	}
	check("True", "ok", "")
	c.find("", "componentstatuses").Store.(*componentStatuses).health = func(context.Context) error { return errors.New("no leader") }
	check("False", "", "no leader")
	if got := get[corev1.ComponentStatus](t, c, path+"/scheduler"); got != nil {
		t.Errorf("got %+v", got)
	}
	if list := get[corev1.ComponentStatusList](t, c, path+"?labelSelector=a%3Db"); len(list.Items) != 0 {
		t.Errorf("a label selects %+v", list.Items)
	}
	if err := c.do(t, "POST", path, map[string]any{"metadata": map[string]any{"name": "x"}}, nil); !apierrors.IsMethodNotSupported(err) {
		t.Errorf("create: %v", err)
	}
}
