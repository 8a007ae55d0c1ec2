package controllers

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"portico/internal/testing/await"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// waitEndpoints waits until the Endpoints of a Service has addresses, in the form of shown.
func (s *server) waitEndpoints(service, want string) *corev1.Endpoints {
	s.t.Helper()
	var e *corev1.Endpoints
	var got string
	defer func() {
		if s.t.Failed() {
			s.t.Logf("the Endpoints of %s are %q", service, got)
		}
	}()
	await.Until(s.t, service+" has the Endpoints "+want, func() bool {
		var err error
		if e, err = s.CoreV1().Endpoints("default").Get(s.t.Context(), service, metav1.GetOptions{}); err != nil {
			return false
		}
		var list []string
		for _, subset := range e.Subsets {
			for _, p := range subset.Ports {
				for _, a := range subset.Addresses {
					list = append(list, fmt.Sprintf("%s:%d", a.IP, p.Port))
				}
				for _, a := range subset.NotReadyAddresses {
					list = append(list, fmt.Sprintf("%s:%d!", a.IP, p.Port))
				}
			}
		}
		slices.Sort(list)
		got = strings.Join(list, " ")
		return got == want
	})
	return e
}

// Endpoints follow pods and the Service, and go with it.
func TestEndpoints(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	// Its Service went while no controller ran. The other is a lock of old.
	for name, notes := range map[string]map[string]string{"left": nil, "lock": {"control-plane.alpha.kubernetes.io/leader": "{}"}} {
		e := &corev1.Endpoints{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: notes}}
		must[*corev1.Endpoints](t)(s.CoreV1().Endpoints("default").Create(t.Context(), e, metav1.CreateOptions{}))
	}
	s.run("endpoints-controller", Options{}, nil)
	svc := s.addService("web", "web", nil)
	if e := s.waitEndpoints("web", ""); e.Annotations[corev1.EndpointsLastChangeTriggerTime] != svc.CreationTimestamp.UTC().Format(time.RFC3339) {
		t.Errorf("annotations %v", e.Annotations)
	}
	s.addPod("a", "n1", "web", running("10.0.0.1", corev1.ConditionTrue))
	s.addPod("b", "n1", "web", running("10.0.0.2", corev1.ConditionFalse))
	e := s.waitEndpoints("web", "10.0.0.1:8080 10.0.0.2:8080!")
	if len(e.Subsets) != 1 || e.Labels["of"] != "web" || e.Labels[endpointsManagedBy] != endpointsManager {
		t.Errorf("Endpoints %+v", e)
	}
	if a := e.Subsets[0].Addresses[0]; *a.NodeName != "n1" || a.TargetRef.Kind != "Pod" || a.TargetRef.Name != "a" || a.TargetRef.UID == "" {
		t.Errorf("address %+v", a)
	}
	s.setReady("b", corev1.ConditionTrue)
	s.waitEndpoints("web", "10.0.0.1:8080 10.0.0.2:8080")
	s.remove("a")
	s.waitEndpoints("web", "10.0.0.2:8080")
	patch := []byte(`{"metadata":{"labels":{"of":null,"more":"x"}},"spec":{"publishNotReadyAddresses":true}}`)
	must[*corev1.Service](t)(s.CoreV1().Services("default").Patch(t.Context(), "web", types.StrategicMergePatchType, patch, metav1.PatchOptions{}))
	await.Until(t, "the labels follow", func() bool {
		e := s.waitEndpoints("web", "10.0.0.2:8080")
		return e.Labels["more"] == "x" && len(e.Labels) == 2
	})
	if err := s.CoreV1().Services("default").Delete(t.Context(), "web", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"web", "left"} {
		await.Until(t, name+" is gone", func() bool {
			_, err := s.CoreV1().Endpoints("default").Get(t.Context(), name, metav1.GetOptions{})
			return apierrors.IsNotFound(err)
		})
	}
	must[*corev1.Endpoints](t)(s.CoreV1().Endpoints("default").Get(t.Context(), "lock", metav1.GetOptions{}))
}

// A headless Service without ports has addresses without ports, and hostnames of its pods.
func TestEndpointsOfHeadlessService(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.run("endpoints-controller", Options{}, nil)
	s.addService("db", "db", func(svc *corev1.Service) { svc.Spec.ClusterIP, svc.Spec.Ports = corev1.ClusterIPNone, nil })
	s.addPod("db-0", "n1", "db", func(p *corev1.Pod) {
		p.Spec.Hostname, p.Spec.Subdomain = "db-0", "db"
		running("10.0.0.1", corev1.ConditionTrue)(p)
	})
	await.Until(t, "there is an address", func() bool {
		e, err := s.CoreV1().Endpoints("default").Get(t.Context(), "db", metav1.GetOptions{})
		_, headless := e.Labels[corev1.IsHeadlessService]
		return err == nil && headless && len(e.Subsets) == 1 && len(e.Subsets[0].Ports) == 0 &&
			e.Subsets[0].Addresses[0].IP == "10.0.0.1" && e.Subsets[0].Addresses[0].Hostname == "db-0"
	})
}

// Ports with the same addresses are in one subset; an address that is not ready somewhere is
// not ready.
func TestRepack(t *testing.T) {
	t.Parallel()
	address := func(ips ...string) (out []corev1.EndpointAddress) {
		for _, ip := range ips {
			out = append(out, corev1.EndpointAddress{IP: ip})
		}
		return out
	}
	port := func(n int32) []corev1.EndpointPort { return []corev1.EndpointPort{{Port: n}} }
	for name, tc := range map[string]struct{ in, want []corev1.EndpointSubset }{
		"nothing":   {nil, []corev1.EndpointSubset{}},
		"addresses": {[]corev1.EndpointSubset{{Addresses: address("b"), Ports: port(1)}, {Addresses: address("a"), Ports: port(1)}}, []corev1.EndpointSubset{{Addresses: address("a", "b"), Ports: port(1)}}},
		"not ready": {
			[]corev1.EndpointSubset{{Addresses: address("a"), Ports: port(1)}, {NotReadyAddresses: address("a"), Ports: port(1)}},
			[]corev1.EndpointSubset{{NotReadyAddresses: address("a"), Ports: port(1)}},
		},
		"no ports": {[]corev1.EndpointSubset{{Addresses: address("a")}}, []corev1.EndpointSubset{{Addresses: address("a")}}},
	} {
		if got := repack(tc.in); !subsetsEqual.DeepEqual(got, tc.want) {
			t.Errorf("%s: %+v, want %+v", name, got, tc.want)
		}
	}
	merged := repack([]corev1.EndpointSubset{{Addresses: address("a"), Ports: port(1)}, {Addresses: address("a"), Ports: port(2)}})
	if len(merged) != 1 || len(merged[0].Ports) != 2 {
		t.Errorf("subsets %+v", merged)
	}
	if again := repack(merged); !subsetsEqual.DeepEqual(again, merged) {
		t.Errorf("again: %+v", again)
	}
}

// Above 1,000 addresses those that are not ready are left out, and then some of every subset.
func TestTruncate(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ ready, notReady, wantReady, wantNotReady [2]int }{
		{ready: [2]int{500, 300}, notReady: [2]int{100, 100}, wantReady: [2]int{500, 300}, wantNotReady: [2]int{100, 100}},
		{ready: [2]int{500, 300}, notReady: [2]int{300, 100}, wantReady: [2]int{500, 300}, wantNotReady: [2]int{150, 50}},
		{ready: [2]int{1500, 500}, notReady: [2]int{10, 10}, wantReady: [2]int{750, 250}},
	} {
		subsets := make([]corev1.EndpointSubset, 2)
		total := 0
		for i := range subsets {
			subsets[i].Addresses = make([]corev1.EndpointAddress, tc.ready[i])
			subsets[i].NotReadyAddresses = make([]corev1.EndpointAddress, tc.notReady[i])
			total += tc.ready[i] + tc.notReady[i]
		}
		if truncate(subsets) != (total > 1000) {
			t.Errorf("%v: truncated is wrong", tc)
		}
		for i, s := range subsets {
			if len(s.Addresses) != tc.wantReady[i] || len(s.NotReadyAddresses) != tc.wantNotReady[i] {
				t.Errorf("%v: subset %d has %d and %d", tc, i, len(s.Addresses), len(s.NotReadyAddresses))
			}
		}
	}
}
