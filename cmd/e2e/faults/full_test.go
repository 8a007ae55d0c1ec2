package faults

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"

	"portico/cmd/e2e"
	"portico/cmd/e2e/etcdprocess"
)

// With --etcd-servers `up` starts no etcd. When that etcd has reached its quota, writes are
// refused with a Status, reads are served, also by processes that start then with another
// data folder, objects can be deleted, and after that writes pass again.
func TestFullStorage(t *testing.T) {
	t.Parallel()
	const quota, size = 12 << 20, 1 << 20
	etcd := etcdprocess.Start(t, fmt.Sprintf("%s=%d", etcdprocess.QuotaEnv, quota))
	up := e2e.Install(t, t.TempDir(), "--etcd-servers="+etcd.Endpoint())
	if up.Etcd != etcd.Endpoint() || strings.Contains(up.Output.String(), "starting etcd") {
		t.Errorf("up started an etcd:\n%s", up.Output)
	}
	const group = "full.example.com"
	e2e.Define(t, e2e.DynamicClient(t, up.Config(t)), group)
	// An object may fit again when etcd has freed what is compacted.
	untilFull := func(create func(name string) (code int, answer string)) (created int) {
		for created <= 2*quota/size {
			code, answer := create(fmt.Sprintf("fill-%d", created))
			if code != http.StatusCreated {
				isFull(t, code, answer)
				return created
			}
			created++
		}
		t.Fatal("the storage does not get full")
		return created
	}
	n := untilFull(func(name string) (int, string) { return fill(t, up, name, size*9/10) })
	untilFull(func(name string) (int, string) {
		widget := e2e.Widget(group, name)
		if err := unstructured.SetNestedField(widget.Object, strings.Repeat("x", size*9/10), "spec", "colour"); err != nil {
			t.Fatal(err)
		}
		object, err := widget.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		return up.Do(t, http.MethodPost, "/apis/"+group+"/v1/namespaces/default/widgets", string(object))
	})

	if err := up.Stop(); err != nil {
		t.Fatal(err)
	}
	up = e2e.Install(t, t.TempDir(), "--etcd-servers="+etcd.Endpoint())
	cfg := up.Config(t)
	client := kubernetes.NewForConfigOrDie(cfg)
	e2e.Eventually(t, "reads are served", func() error {
		list, err := client.CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{})
		if err == nil && len(list.Items) < n {
			err = fmt.Errorf("%d of %d objects", len(list.Items), n)
		}
		return err
	})
	e2e.Eventually(t, "custom resources are read", func() error {
		_, err := e2e.DynamicClient(t, cfg).Resource(e2e.WidgetsOf(group)).List(t.Context(), metav1.ListOptions{})
		return err
	})
	for i := range n - 2 {
		if err := client.CoreV1().ConfigMaps("default").Delete(t.Context(), fmt.Sprintf("fill-%d", i), metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	e2e.Eventually(t, "writes pass again", func() error {
		if code, answer := fill(t, up, "after", size); code != http.StatusCreated {
			return fmt.Errorf("%d %s", code, answer)
		}
		return nil
	})
}

const configMaps = "/api/v1/namespaces/default/configmaps"

// fill creates a ConfigMap of a size.
func fill(t *testing.T, up *e2e.Installation, name string, size int) (code int, answer string) {
	t.Helper()
	return up.Do(t, http.MethodPost, configMaps, fmt.Sprintf(`{"metadata":{"name":%q},"data":{"a":%q}}`, name, strings.Repeat("x", size)))
}

// isFull checks the response to a write that the quota refused.
func isFull(t *testing.T, code int, answer string) {
	t.Helper()
	var status metav1.Status
	if err := json.Unmarshal([]byte(answer), &status); err != nil {
		t.Fatalf("%d %s: %v", code, answer, err)
	}
	if code != http.StatusInsufficientStorage || status.Reason != "InsufficientStorage" || status.Details != nil && status.Details.RetryAfterSeconds != 0 || !strings.Contains(status.Message, "storage is full") {
		t.Errorf("%d %s", code, answer)
	}
	t.Logf("%d %s: %s", code, status.Reason, status.Message)
}
