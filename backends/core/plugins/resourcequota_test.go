package plugins

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico/resource"
	"portico/resource/rest"
)

// quotaOf returns a quota with known usage.
func quotaOf(name, hard, used string, change ...func(*corev1.ResourceQuota)) *corev1.ResourceQuota {
	q := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}, Spec: corev1.ResourceQuotaSpec{Hard: amounts(hard)}}
	q.Status = corev1.ResourceQuotaStatus{Hard: amounts(hard), Used: amounts(used)}
	for _, c := range change {
		c(q)
	}
	return q
}

// used returns the usage of a quota.
func (w *world) used(name string, of corev1.ResourceName) string {
	w.t.Helper()
	r := w.resources["resourcequotas"]
	o, err := r.Store.Get(w.t.Context(), resource.Key{Namespace: "ns", Name: name}, resource.At{})
	if err != nil {
		w.t.Fatal(err)
	}
	obj, err := r.Decode(o)
	if err != nil {
		w.t.Fatal(err)
	}
	q := obj.(*corev1.ResourceQuota).Status.Used[of]
	return q.String()
}

func configMap(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
}

// Writes are charged before they are stored, and refused beyond a quota.
func TestResourceQuota(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name       string
		quota      *corev1.ResourceQuota
		obj, old   rest.Object
		change     func(*rest.Attributes)
		want       string
		of, amount string
	}{
		{name: "fits", quota: quotaOf("q", "configmaps=2", "configmaps=1"), obj: configMap("c"), of: "configmaps", amount: "2"},
		{name: "by its new name", quota: quotaOf("q", "count/configmaps=2", "count/configmaps=1"), obj: configMap("c"), of: "count/configmaps", amount: "2"},
		{name: "exceeds", quota: quotaOf("q", "configmaps=1", "configmaps=1"), obj: configMap("c"),
			want: `configmaps "c" is forbidden: exceeded quota: q, requested: configmaps=1, used: configmaps=1, limited: configmaps=1`, of: "configmaps", amount: "1"},
		{name: "dry run", quota: quotaOf("q", "configmaps=2", "configmaps=1"), obj: configMap("c"), change: func(a *rest.Attributes) { a.DryRun = true }, of: "configmaps", amount: "1"},
		{name: "unknown usage", quota: quotaOf("q", "configmaps=1", ""), obj: configMap("c"), want: `configmaps "c" is forbidden: status unknown for quota: q, resources: configmaps`},
		{name: "not yet in force", quota: quotaOf("q", "configmaps=1", "", func(q *corev1.ResourceQuota) { q.Status = corev1.ResourceQuotaStatus{} }), obj: configMap("c")},
		{name: "another resource", quota: quotaOf("q", "secrets=1", "secrets=1"), obj: configMap("c")},
		{name: "an update of what is counted", quota: quotaOf("q", "configmaps=1", "configmaps=1"), obj: configMap("c"), old: configMap("c")},
		{name: "events are not counted", quota: quotaOf("q", "count/events=1", "count/events=1"), obj: &corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "e"}}},
		{name: "must say what it needs", quota: quotaOf("q", "cpu=1", "cpu=0"), obj: aPod(), want: `pods "p" is forbidden: failed quota: q: must specify cpu for: c`},
		{name: "out of scope", quota: quotaOf("q", "pods=0", "pods=0", func(q *corev1.ResourceQuota) {
			q.Spec.Scopes = []corev1.ResourceQuotaScope{corev1.ResourceQuotaScopeTerminating}
		}), obj: aPod()},
		{name: "only the increase counts", quota: quotaOf("q", "services.nodeports=3", "services.nodeports=1"),
			obj: servicePorts(corev1.ServiceTypeNodePort, 3), old: servicePorts(corev1.ServiceTypeNodePort, 1), of: "services.nodeports", amount: "3"},
	} {
		w := newWorld(t, tc.quota)
		a := w.write(tc.obj, tc.old)
		if tc.change != nil {
			tc.change(a)
		}
		err := admitWrite(t, w.only("ResourceQuota"), a)
		if (err == nil) != (tc.want == "") || err != nil && err.Error() != tc.want {
			t.Errorf("%s: %v, want %q", tc.name, err, tc.want)
		}
		if got := w.used("q", corev1.ResourceName(tc.of)); tc.of != "" && got != tc.amount {
			t.Errorf("%s: used %s, want %s", tc.name, got, tc.amount)
		}
	}
}

func servicePorts(kind corev1.ServiceType, n int) *corev1.Service {
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "s", ResourceVersion: "1"}, Spec: corev1.ServiceSpec{Type: kind}}
	for i := range n {
		s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: fmt.Sprint(i), Port: int32(80 + i)})
	}
	return s
}

// Of many writes at once as many pass as there is room for, and the usage says so.
func TestResourceQuotaAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, quotaOf("a", "configmaps=20", "configmaps=0"), quotaOf("b", "count/configmaps=30", "count/configmaps=0"))
	plugin := w.only("ResourceQuota")
	var passed atomic.Int64
	var wg sync.WaitGroup
	for i := range 50 {
		a := w.write(configMap(fmt.Sprintf("c%d", i)), nil)
		wg.Go(func() {
			switch err := plugin.Validate(t.Context(), a); {
			case err == nil:
				passed.Add(1)
			case !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "exceeded quota: a"):
				t.Errorf("unexpected error %v", err)
			}
		})
	}
	wg.Wait()
	if n := passed.Load(); n != 20 || w.used("a", "configmaps") != "20" || w.used("b", "count/configmaps") != "20" {
		t.Errorf("%d passed; used %s and %s, want 20", n, w.used("a", "configmaps"), w.used("b", "count/configmaps"))
	}
}

// Resources that are limited by the configuration cannot be used without a quota.
func TestResourceQuotaLimited(t *testing.T) {
	t.Parallel()
	const head = "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins:\n- name: ResourceQuota\n  configuration:\n" +
		"    apiVersion: apiserver.config.k8s.io/v1\n    kind: ResourceQuotaConfiguration\n    limitedResources:\n"
	w := newWorld(t)
	w.options.ConfigFile = tempFile(t, head+"    - resource: configmaps\n      matchContains: [configmaps]\n")
	err := admitWrite(t, w.only("ResourceQuota"), w.write(configMap("c"), nil))
	const want = `configmaps "c" is forbidden: insufficient quota to consume: configmaps,count/configmaps`
	if err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	if err := admitWrite(t, w.only("ResourceQuota"), w.write(aPod(), nil)); err != nil {
		t.Errorf("another resource: %v", err)
	}
	w.options.ConfigFile = tempFile(t, head+"    - apiGroup: a\n")
	if _, err := New(w.config()); err == nil || !strings.Contains(err.Error(), "admission plugin ResourceQuota: ") {
		t.Errorf("a limit without a resource: %v", err)
	}
}

func tempFile(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "admission.yaml")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}
