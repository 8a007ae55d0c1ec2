package core

import (
	"net/http"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"portico/resource"
)

func TestSystemNamespaces(t *testing.T) {
	c := newCore(t, Config{})
	if c.system.ready() == nil {
		t.Error("ready before anything runs")
	}
	start(t, c.runParts)
	for _, name := range []string{"default", "kube-system", "kube-public", "kube-node-lease"} {
		there := func() bool {
			ns, ok := load[*corev1.Namespace](t, c, "", "namespaces", "", name)
			return ok && ns.Status.Phase == corev1.NamespaceActive && ns.Labels["kubernetes.io/metadata.name"] == name && len(ns.Spec.Finalizers) == 1
		}
		eventually(t, name+" is there", there)
		if _, err := c.find("", "namespaces").Store.Delete(t.Context(), resource.Key{Name: name}, nil); err != nil {
			t.Fatal(err)
		}
		eventually(t, name+" is there again", there)
	}
	eventually(t, "ready", func() bool { return c.system.ready() == nil })
}

func TestNamespaceDefaults(t *testing.T) {
	c := running(t, Config{RootCAFile: writeFile(t, "ca.crt", []byte("the bundle"))})
	c.must(t, http.MethodPost, "/api/v1/namespaces", object("n"), nil)
	account := func() bool {
		_, ok := load[*corev1.ServiceAccount](t, c, "", "serviceaccounts", "n", "default")
		return ok
	}
	bundle := func() bool {
		cm, ok := load[*corev1.ConfigMap](t, c, "", "configmaps", "n", "kube-root-ca.crt")
		return ok && len(cm.Data) == 1 && cm.Data["ca.crt"] == "the bundle" && cm.Annotations["kubernetes.io/description"] != ""
	}
	eventually(t, "the service account is there", account)
	eventually(t, "the bundle is there", bundle)
	account1, _ := load[*corev1.ServiceAccount](t, c, "", "serviceaccounts", "n", "default")
	c.must(t, http.MethodDelete, "/api/v1/namespaces/n/serviceaccounts/default", nil, nil)
	eventually(t, "there is another service account", func() bool {
		got, ok := load[*corev1.ServiceAccount](t, c, "", "serviceaccounts", "n", "default")
		return ok && got.UID != account1.UID
	})
	c.must(t, http.MethodPut, "/api/v1/namespaces/n/configmaps/kube-root-ca.crt", map[string]any{
		"metadata": map[string]any{"name": "kube-root-ca.crt"}, "data": map[string]any{"ca.crt": "forged", "more": "x"},
	}, nil)
	eventually(t, "the bundle is repaired", bundle)
	c.must(t, http.MethodDelete, "/api/v1/namespaces/n/configmaps/kube-root-ca.crt", nil, nil)
	eventually(t, "the bundle is there again", bundle)
}

func TestKubernetesService(t *testing.T) {
	c := running(t, Config{AdvertiseAddress: "192.0.2.7:8443"})
	eventually(t, "the service is there", func() bool {
		_, ok := load[*corev1.Service](t, c, "", "services", "default", "kubernetes")
		return ok
	})
	svc, _ := load[*corev1.Service](t, c, "", "services", "default", "kubernetes")
	if svc.Spec.ClusterIP != "10.96.0.1" || len(svc.Spec.Ports) != 1 || svc.Spec.Ports[0].Port != 443 || svc.Spec.Ports[0].TargetPort.IntValue() != 8443 || svc.Labels["component"] != "apiserver" {
		t.Errorf("service %+v", svc)
	}
	slice, ok := load[*discoveryv1.EndpointSlice](t, c, "discovery.k8s.io", "endpointslices", "default", "kubernetes")
	if !ok || slice.Labels["kubernetes.io/service-name"] != "kubernetes" || slice.Endpoints[0].Addresses[0] != "192.0.2.7" || *slice.Ports[0].Port != 8443 {
		t.Errorf("endpoints %+v", slice)
	}
	err := c.do(t, http.MethodPost, "/api/v1/namespaces/default/services", map[string]any{
		"metadata": map[string]any{"name": "thief"},
		"spec":     map[string]any{"clusterIP": "10.96.0.1", "ports": []any{map[string]any{"port": 80}}},
	}, nil)
	if err == nil {
		t.Error("its address is given to another service")
	}
}
