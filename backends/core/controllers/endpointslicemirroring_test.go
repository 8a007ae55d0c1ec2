package controllers

import (
	"slices"
	"testing"

	"portico/internal/testing/await"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Endpoints of a Service without a selector are mirrored to slices, per family of addresses.
func TestEndpointSliceMirroring(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.run("endpointslice-mirroring-controller", Options{}, nil)
	ctx, client := t.Context(), s.CoreV1().Endpoints("default")
	s.addService("db", "", nil)
	s.addService("selecting", "x", nil)
	for _, name := range []string{"db", "selecting", "alone", "skipped"} {
		e := &corev1.Endpoints{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"a": "b"}, Annotations: map[string]string{"note": "x", corev1.EndpointsLastChangeTriggerTime: "now"}},
			Subsets: []corev1.EndpointSubset{{
				Addresses: []corev1.EndpointAddress{{IP: "192.0.2.1"}, {IP: "2001:db8::1"}}, NotReadyAddresses: []corev1.EndpointAddress{{IP: "192.0.2.2", Hostname: "h"}},
				Ports: []corev1.EndpointPort{{Name: "web", Port: 5432}},
			}},
		}
		if name == "skipped" {
			s.addService(name, "", nil)
			e.Labels[discoveryv1.LabelSkipMirror] = "true"
		}
		must[*corev1.Endpoints](t)(client.Create(ctx, e, metav1.CreateOptions{}))
	}
	s.waitShown("db", "192.0.2.1:5432 192.0.2.2:5432! 2001:db8::1:5432")
	got := s.slices("db")
	if len(got) != 2 || got[0].AddressType == got[1].AddressType || got[0].Labels["a"] != "b" || got[0].Labels[discoveryv1.LabelManagedBy] != mirrorManager ||
		len(got[0].Annotations) != 1 || got[0].OwnerReferences[0].Kind != "Endpoints" {
		t.Errorf("slices %+v", got)
	}
	for _, name := range []string{"selecting", "alone", "skipped"} {
		if got := s.shown(name); got != "" {
			t.Errorf("%s is mirrored: %s", name, got)
		}
	}

	names := map[string]bool{got[0].Name: true, got[1].Name: true}
	e := must[*corev1.Endpoints](t)(client.Get(ctx, "db", metav1.GetOptions{}))
	e.Subsets[0].Ports[0].Port = 5433
	e.Subsets[0].NotReadyAddresses = nil
	must[*corev1.Endpoints](t)(client.Update(ctx, e, metav1.UpdateOptions{}))
	s.waitShown("db", "192.0.2.1:5433 2001:db8::1:5433")
	for _, slice := range s.slices("db") {
		if !names[slice.Name] {
			t.Error("other ports take another slice, where one could be used again")
		}
	}

	forged := s.slices("db")[0]
	forged.Endpoints = nil
	must[*discoveryv1.EndpointSlice](t)(s.DiscoveryV1().EndpointSlices("default").Update(ctx, &forged, metav1.UpdateOptions{}))
	s.waitShown("db", "192.0.2.1:5433 2001:db8::1:5433")

	patch := func(p string) {
		t.Helper()
		must[*corev1.Service](t)(s.CoreV1().Services("default").Patch(ctx, "db", types.MergePatchType, []byte(p), metav1.PatchOptions{}))
	}
	patch(`{"spec":{"selector":{"app":"x"}}}`)
	s.waitShown("db", "")
	patch(`{"spec":{"selector":null}}`)
	s.waitShown("db", "192.0.2.1:5433 2001:db8::1:5433")
	s.losesSlice("db", mirrorManager)
	if err := client.Delete(ctx, "db", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	await.Until(t, "the mirrored slices are deleted", func() bool {
		return !slices.ContainsFunc(s.slices("db"), func(slice discoveryv1.EndpointSlice) bool { return managedByMirroring(&slice) })
	})
}
