package core

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"portico/backends/process"
	"portico/internal/testing/await"
	"portico/internal/testing/memstore"
	"portico/resource"
	"portico/resource/authn"
	"portico/resource/client"
	"portico/resource/loop"
	"portico/resource/masterlease"
	"portico/resource/serve"
)

// The system namespaces are created, and created again when one is missing.
func TestSystemNamespaces(t *testing.T) {
	t.Parallel()
	c := newCore(t, Config{})
	if c.started.namespaces.Load() {
		t.Error("ready before anything runs")
	}
	start(t, c.runParts)
	for _, name := range []string{"default", "kube-system", "kube-public", "kube-node-lease"} {
		there := func() bool {
			ns := get[corev1.Namespace](t, c, "/api/v1/namespaces/"+name)
			return ns != nil && ns.Status.Phase == corev1.NamespaceActive && ns.Labels["kubernetes.io/metadata.name"] == name && len(ns.Spec.Finalizers) == 1
		}
		await.Until(t, name+" is there", there)
		if _, err := c.find("", "namespaces").Store.Delete(t.Context(), resource.Key{Name: name}, nil); err != nil {
			t.Fatal(err)
		}
		await.Until(t, name+" is there again", there)
	}
	await.Until(t, "ready", c.started.namespaces.Load)
}

// Everything that the post-start checks wait for succeeds in a server that is alone.
func TestStarted(t *testing.T) {
	t.Parallel()
	c := running(t, Config{})
	for name, done := range map[string]func() bool{
		"Service default/kubernetes": c.started.kubernetesService.Load, "system priority classes": c.started.priorityClasses.Load,
		"legacy token tracking": c.started.legacyTokenTracking.Load, "repair": c.started.repair.Load,
	} {
		await.Until(t, name, done)
	}
}

// The ConfigMap of legacy token tracking is created. A value that is not a day is replaced; a day and
// other keys are kept.
func TestLegacyTokenTracking(t *testing.T) {
	t.Parallel()
	c := newCore(t, Config{})
	start(t, c.cache.Run)
	createNamespace(t, c, "kube-system")
	const collection = "/api/v1/namespaces/kube-system/configmaps"
	path, key := collection+"/"+authn.LegacyTokenTrackingConfigMap, resource.Key{Namespace: "kube-system", Name: authn.LegacyTokenTrackingConfigMap}
	cached := func(want bool) {
		t.Helper()
		await.Until(t, "the cache follows", func() bool {
			_, err := c.find("", "configmaps").Store.Get(t.Context(), key, resource.At{Freshness: resource.Any})
			return want == (err == nil)
		})
	}
	today := func() string { return time.Now().UTC().Format(authn.DayFormat) }
	begin := today()
	for before, kept := range map[string]bool{"": false, `{"since":"2024-01-31"}`: true, `{"since":"yesterday"}`: false, `{"other":"2024-01-31"}`: false} {
		if before != "" {
			c.must(t, http.MethodPost, collection, json.RawMessage(`{"metadata":{"name":"`+key.Name+`"},"data":`+before+`}`), nil)
			cached(true)
		}
		if err := (&legacyTokenTracking{core: c}).ensure(t.Context()); err != nil {
			t.Fatal(err)
		}
		data := get[corev1.ConfigMap](t, c, path).Data
		since := data[authn.LegacyTokenTrackingKey]
		if kept && since != "2024-01-31" || !kept && (since < begin || since > today()) || strings.Contains(before, "other") != (data["other"] != "") {
			t.Errorf("%q becomes %v", before, data)
		}
		c.must(t, http.MethodDelete, path, nil, nil)
		cached(false)
	}
}

// A namespace gets the default service account, and the root certificates once their file
// is there, and when it changes. Both are created again and repaired.
func TestNamespaceDefaults(t *testing.T) {
	t.Parallel()
	c := running(t, Config{RootCAFile: filepath.Join(t.TempDir(), "ca.crt")})
	createNamespace(t, c, "n")
	const accountPath, bundlePath = "/api/v1/namespaces/n/serviceaccounts/default", "/api/v1/namespaces/n/configmaps/kube-root-ca.crt"
	bundle := func() bool {
		cm := get[corev1.ConfigMap](t, c, bundlePath)
		return cm != nil && len(cm.Data) == 1 && cm.Data["ca.crt"] == "the bundle" && cm.Annotations["kubernetes.io/description"] != ""
	}
	var account *corev1.ServiceAccount
	await.Until(t, "the service account is there", func() bool {
		account = get[corev1.ServiceAccount](t, c, accountPath)
		return account != nil
	})
	if err := os.WriteFile(c.cfg.RootCAFile, []byte("the bundle"), 0o600); err != nil {
		t.Fatal(err)
	}
	await.Until(t, "the bundle is there", bundle)
	c.must(t, http.MethodDelete, accountPath, nil, nil)
	await.Until(t, "there is another service account", func() bool {
		got := get[corev1.ServiceAccount](t, c, accountPath)
		return got != nil && got.UID != account.UID
	})
	c.must(t, http.MethodPut, bundlePath, map[string]any{
		"metadata": map[string]any{"name": "kube-root-ca.crt"}, "data": map[string]any{"ca.crt": "forged", "more": "x"},
	}, nil)
	await.Until(t, "the bundle is repaired", bundle)
	c.must(t, http.MethodDelete, bundlePath, nil, nil)
	await.Until(t, "the bundle is there again", bundle)
	if err := os.WriteFile(c.cfg.RootCAFile, []byte("the next bundle"), 0o600); err != nil {
		t.Fatal(err)
	}
	await.Until(t, "the next bundle is there", func() bool {
		cm := get[corev1.ConfigMap](t, c, bundlePath)
		return cm != nil && cm.Data["ca.crt"] == "the next bundle"
	})
}

// A drained namespace may be in the snapshot of namespaces after that of accounts shows it
// empty; no object is created in it.
func TestNamespaceDefaultsLeaveNothingInGoneNamespaces(t *testing.T) {
	t.Parallel()
	c := newCore(t, Config{RootCAFile: writeFile(t, "ca.crt", []byte("bundle"))})
	start(t, c.cache.Run)
	await.Until(t, "the cache is ready", c.cache.Ready)
	createNamespace(t, c, "going")
	c.must(t, "DELETE", "/api/v1/namespaces/going", nil, nil)
	living := func(name string) *resource.Object {
		return &resource.Object{Header: resource.Header{Name: name}}
	}
	d := &namespaceDefaults{
		core:       c,
		namespaces: &loop.Snapshot{Items: []*resource.Object{living("going"), living("gone")}},
		accounts:   &loop.Snapshot{}, ca: &loop.Snapshot{},
	}
	if err := d.reconcile(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := len(get[corev1.ServiceAccountList](t, c, "/api/v1/serviceaccounts").Items) + len(get[corev1.ConfigMapList](t, c, "/api/v1/configmaps").Items); n != 0 {
		t.Errorf("%d objects were made in namespaces that are going or gone", n)
	}
}

// --controllers selects the controllers of this package: those that are off are not started, and
// of the two that are one, the other does its part.
func TestControllersAreSelected(t *testing.T) {
	t.Parallel()
	const all = "garbage-collector-controller,namespace defaults,namespace-controller"
	for _, tc := range []struct {
		flag, runs      string
		account, bundle int // how many are made in a namespace
	}{
		{"*", all, 1, 1},
		{"*,-namespace-controller", "garbage-collector-controller,namespace defaults", 1, 1},
		{"*,-garbage-collector-controller", "namespace defaults,namespace-controller", 1, 1},
		{"*,-serviceaccount-controller", all, 0, 1},
		{"*,-root-ca-certificate-publisher-controller", all, 1, 0},
		{"*,-serviceaccount-controller,-root-ca-certificate-publisher-controller", "garbage-collector-controller,namespace-controller", 0, 0},
		{"namespace-controller", "namespace-controller", 0, 0},
		{"endpoints-controller", "", 0, 0},
	} {
		t.Run(tc.flag, func(t *testing.T) {
			t.Parallel()
			c := newCore(t, Config{Controllers: strings.Split(tc.flag, ","), RootCAFile: writeFile(t, "ca.crt", []byte("bundle"))})
			if runs := strings.Join(slices.Sorted(maps.Keys(c.selectedParts())), ","); runs != tc.runs {
				t.Errorf("%s run, want %s", runs, tc.runs)
			}
			start(t, c.cache.Run)
			await.Until(t, "the cache is ready", c.cache.Ready)
			createNamespace(t, c, "n")
			d := &namespaceDefaults{
				core: c, namespaces: &loop.Snapshot{Items: []*resource.Object{{Header: resource.Header{Name: "n"}}}},
				accounts: &loop.Snapshot{}, ca: &loop.Snapshot{},
			}
			if err := d.reconcile(t.Context()); err != nil {
				t.Fatal(err)
			}
			accounts, bundles := get[corev1.ServiceAccountList](t, c, "/api/v1/serviceaccounts"), get[corev1.ConfigMapList](t, c, "/api/v1/configmaps")
			if len(accounts.Items) != tc.account || len(bundles.Items) != tc.bundle {
				t.Errorf("%d service accounts and %d bundles, want %d and %d", len(accounts.Items), len(bundles.Items), tc.account, tc.bundle)
			}
		})
	}
}

// The target port of default/kubernetes stays as it is while no gateway is known, even if it is a name.
func TestTargetPortWithoutGateways(t *testing.T) {
	t.Parallel()
	for _, port := range []intstr.IntOrString{intstr.FromString("https"), intstr.FromInt32(8443)} {
		svc := &corev1.Service{Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: portName, TargetPort: port}}}}
		if retarget(svc, nil) || svc.Spec.Ports[0].TargetPort != port {
			t.Errorf("%v is changed to %v", &port, &svc.Spec.Ports[0].TargetPort)
		}
	}
}

// Service default/kubernetes has the first address, which no other service gets.
func TestKubernetesService(t *testing.T) {
	t.Parallel()
	c := running(t, Config{AdvertiseAddress: "192.0.2.7:8443"})
	var svc *corev1.Service
	await.Until(t, "the service has the port of the gateway", func() bool {
		svc = get[corev1.Service](t, c, "/api/v1/namespaces/default/services/kubernetes")
		return svc != nil && svc.Spec.Ports[0].TargetPort.IntValue() == 8443
	})
	if svc.Spec.ClusterIP != "10.96.0.1" || len(svc.Spec.Ports) != 1 || svc.Spec.Ports[0].Port != 443 || svc.Labels["component"] != "apiserver" {
		t.Errorf("service %+v", svc)
	}
	err := c.do(t, http.MethodPost, "/api/v1/namespaces/default/services", map[string]any{
		"metadata": map[string]any{"name": "thief"},
		"spec":     map[string]any{"clusterIP": "10.96.0.1", "ports": []any{map[string]any{"port": 80}}},
	}, nil)
	if err == nil {
		t.Error("its address is given to another service")
	}
}

// The endpoints of default/kubernetes are the addresses of the gateways that have leases. Missing
// ones are created again, and without a lease they remain.
func TestKubernetesEndpoints(t *testing.T) {
	t.Parallel()
	kept := inMemory{memstore.New()}
	c := newCoreOver(t, kept, Config{})
	start(t, c.cache.Run)
	await.Until(t, "the cache is ready", c.cache.Ready)
	createNamespace(t, c, "default")
	k := &kubernetesService{core: c, leases: masterlease.New(kept.Store)}
	const path, slicePath = "/api/v1/namespaces/default/endpoints/kubernetes", "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes"
	check := func(want ...string) {
		t.Helper()
		if err := k.ensure(t.Context()); err != nil {
			t.Fatal(err)
		}
		ep, slice := get[corev1.Endpoints](t, c, path), get[discoveryv1.EndpointSlice](t, c, slicePath)
		var got, sliced []string
		for _, a := range ep.Subsets[0].Addresses {
			got = append(got, a.IP)
		}
		for _, e := range slice.Endpoints {
			sliced = append(sliced, e.Addresses...)
		}
		if !slices.Equal(got, want) || !slices.Equal(sliced, want) || ep.Subsets[0].Ports[0].Port != 8443 || *slice.Ports[0].Port != 8443 {
			t.Errorf("endpoints %+v, slice %+v, want %v", ep.Subsets, slice.Endpoints, want)
		}
		if ep.Labels["endpointslice.kubernetes.io/skip-mirror"] != "true" || slice.Labels["kubernetes.io/service-name"] != "kubernetes" {
			t.Errorf("labels %v, %v", ep.Labels, slice.Labels)
		}
	}
	lease := func(address string, change func(context.Context, netip.AddrPort) error) {
		t.Helper()
		addr, ok := masterlease.Parse(address)
		if !ok {
			t.Fatal(address)
		}
		if err := change(t.Context(), addr); err != nil {
			t.Fatal(err)
		}
	}
	target := func(want int) {
		t.Helper()
		if svc := get[corev1.Service](t, c, servicesPath+"/kubernetes"); svc.Spec.ClusterIP != "10.96.0.1" || svc.Spec.Ports[0].TargetPort.IntValue() != want {
			t.Errorf("service %+v, want target port %d", svc.Spec, want)
		}
	}
	if err := k.ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	target(6443) // no gateway is known yet
	lease("[2001:db8::1]:8443", k.leases.Renew)
	check("2001:db8::1")
	target(8443)
	lease("[2001:db8::1]:8443", k.leases.Remove)
	lease("192.0.2.2:8443", k.leases.Renew)
	lease("192.0.2.1:8443", k.leases.Renew)
	check("192.0.2.1", "192.0.2.2")
	for _, p := range []string{path, slicePath} {
		c.must(t, "DELETE", p, nil, nil)
	}
	check("192.0.2.1", "192.0.2.2")
	lease("192.0.2.1:8443", k.leases.Remove)
	check("192.0.2.2")
	lease("192.0.2.2:8443", k.leases.Remove)
	check("192.0.2.2")
	target(8443)
}

// The readiness check of writes passes once webhooks and policies are known.
func TestWritesCheckNeedsAdmission(t *testing.T) {
	t.Parallel()
	c := newCore(t, Config{Config: process.Config{Gateway: client.Gateway{URL: "https://127.0.0.1:1"}}})
	c.addHealthChecks()
	check := func() int {
		w := httptest.NewRecorder()
		c.health.ServeHTTP(w, httptest.NewRequest("GET", "/readyz/"+serve.WritesCheck, nil))
		return w.Code
	}
	start(t, c.cache.Run)
	await.Until(t, "the cache is ready", c.cache.Ready)
	if check() == http.StatusOK {
		t.Error("the check passes before the webhooks are read")
	}
	start(t, c.engine.Run)
	await.Until(t, "webhooks and policies are known", func() bool { return c.engine.Ready() == nil })
	if code := check(); code != http.StatusOK {
		t.Errorf("the check is %d when all is known", code)
	}
}
