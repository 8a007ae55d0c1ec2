package routing

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apireg "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico/apiservice"
	"portico/apiservice/backend"
	"portico/resource"
	"portico/resource/loop"
)

// followed returns the snapshot of these objects.
func followed[T metav1.Object](t testing.TB, objects ...T) loop.Snapshot {
	t.Helper()
	var s loop.Snapshot
	for _, o := range objects {
		data, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		item, err := resource.Parse(data)
		if err != nil {
			t.Fatal(err)
		}
		s.Items = append(s.Items, item)
	}
	return s
}

func service(name string, spec corev1.ServiceSpec) *corev1.Service {
	return &corev1.Service{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Service"}, ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}, Spec: spec,
	}
}

func endpointSlice(name, of, portName string, port int32, endpoints ...discoveryv1.Endpoint) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{
		TypeMeta:   metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: of}},
		Ports:      []discoveryv1.EndpointPort{{Name: &portName, Port: &port}}, Endpoints: endpoints,
	}
}

// A Service resolves to its ready addresses or its external name, or to a condition.
func TestResolve(t *testing.T) {
	t.Parallel()
	yes, no := true, false
	ready := func(ready *bool, addresses ...string) discoveryv1.Endpoint {
		return discoveryv1.Endpoint{Addresses: addresses, Conditions: discoveryv1.EndpointConditions{Ready: ready}}
	}
	ports := func(p ...corev1.ServicePort) corev1.ServiceSpec { return corev1.ServiceSpec{Ports: p} }
	https := corev1.ServicePort{Name: "https", Port: 443}
	s := newServices(
		followed(t,
			service("external", corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "api.example.com"}),
			service("api", ports(corev1.ServicePort{Name: "metrics", Port: 9090}, https)),
			service("nameless", ports(corev1.ServicePort{Port: 443})),
			service("lonely", ports(https)),
			service("unready", ports(https)),
			service("renamed", ports(https)),
			service("six", ports(https)),
		),
		followed(t,
			endpointSlice("api-2", "api", "https", 8443, ready(nil, "10.0.0.3"), ready(&yes, "10.0.0.2", "10.0.0.1")),
			endpointSlice("api-1", "api", "https", 8443, ready(&yes, "10.0.0.3"), ready(&no, "10.0.0.9")),
			endpointSlice("api-3", "api", "metrics", 9090, ready(&yes, "10.0.0.1")),
			endpointSlice("nameless-1", "nameless", "", 8443, ready(&yes, "10.0.0.1")),
			endpointSlice("unready-1", "unready", "https", 8443, ready(&no, "10.0.0.1")),
			endpointSlice("renamed-1", "renamed", "web", 8443, ready(&yes, "10.0.0.1")),
			endpointSlice("six-1", "six", "https", 8443, ready(&yes, "fd00::1")),
			endpointSlice("stray", "", "https", 8443, ready(&yes, "10.0.0.1")),
		),
	)
	for name, c := range map[string]struct {
		services *services
		service  string
		port     *int32
		want     []string
		reason   string
		status   apireg.ConditionStatus
	}{
		"every ready address once, sorted": {s, "api", nil, []string{"10.0.0.1:8443", "10.0.0.2:8443", "10.0.0.3:8443"}, "", ""},
		"the port decides":                 {s, "api", new(int32(9090)), []string{"10.0.0.1:9090"}, "", ""},
		"port without a name":              {s, "nameless", nil, []string{"10.0.0.1:8443"}, "", ""},
		"IPv6":                             {s, "six", nil, []string{"[fd00::1]:8443"}, "", ""},
		"external name":                    {s, "external", nil, []string{"api.example.com:443"}, "", ""},
		"external name, other port":        {s, "external", new(int32(8443)), []string{"api.example.com:8443"}, "", ""},
		"no service":                       {s, "absent", nil, nil, "ServiceNotFound", apireg.ConditionFalse},
		"no such port":                     {s, "api", new(int32(80)), nil, "ServicePortError", apireg.ConditionFalse},
		"no slices":                        {s, "lonely", nil, nil, "EndpointsNotFound", apireg.ConditionFalse},
		"none ready":                       {s, "unready", nil, nil, "MissingEndpoints", apireg.ConditionFalse},
		"no port of that name":             {s, "renamed", nil, nil, "MissingEndpoints", apireg.ConditionFalse},
		"core server never reached":        {nil, "api", nil, nil, "ServiceAccessError", apireg.ConditionUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			got, failed := c.services.resolve(&apireg.ServiceReference{Namespace: "ns", Name: c.service, Port: c.port})
			if !slices.Equal(got.list, c.want) || got.all != len(c.want) {
				t.Errorf("addresses %v, want %v", got, c.want)
			}
			if failed == nil {
				failed = &apiservice.Condition{}
			}
			if failed.Reason != c.reason || failed.Status != c.status {
				t.Errorf("condition %+v, want %s %s", failed, c.status, c.reason)
			}
		})
	}
}

const noteOfCrowd = "; of the 20000 ready addresses of its Service the first 256 are used"

// crowded is the Service "api" with n ready addresses, 1,000 to a slice, one of them in all.
func crowded(t testing.TB, n int) *services {
	t.Helper()
	var all []*discoveryv1.EndpointSlice
	for i := 0; i < n; i += 1000 {
		var endpoints []discoveryv1.Endpoint
		for j := i; j < min(i+1000, n); j++ {
			endpoints = append(endpoints, discoveryv1.Endpoint{Addresses: []string{crowdedAddress(j)}})
		}
		endpoints = append(endpoints, discoveryv1.Endpoint{Addresses: []string{crowdedAddress(0)}})
		all = append(all, endpointSlice(fmt.Sprint("api-", i), "api", "https", 8443, endpoints...))
	}
	return newServices(followed(t, service("api", corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "https", Port: 443}}})), followed(t, all...))
}

// crowdedAddress is a loopback address without a listener.
func crowdedAddress(i int) string { return fmt.Sprintf("127.%d.%d.%d", 1+i>>16, i>>8&0xff, i&0xff) }

// At most backend.MaxEndpoints addresses of a Service are used and saved; the conditions say
// how many there are.
func TestAddressesAreBounded(t *testing.T) {
	t.Parallel()
	const n = 20000
	found, failed := crowded(t, n).resolve(&apireg.ServiceReference{Namespace: "ns", Name: "api"})
	if failed != nil || len(found.list) != backend.MaxEndpoints || found.all != n || found.list[0] != "127.1.0.0:8443" || !slices.IsSorted(found.list) {
		t.Fatalf("%d of %d addresses, %v", len(found.list), found.all, failed)
	}
	good := found.noted(apiservice.Passed())
	if good.Message != "all checks passed"+noteOfCrowd {
		t.Errorf("%q", good.Message)
	}
	for name, backends := range map[string][]*backend.Backend{"an APIService alone": nil, "a Backend": {servedBy("b")}} {
		s := onService(t, widgetsAt(), backends...)
		s.setServices(crowded(t, n))
		s.Reconcile()
		up := s.routeOf(widgetsGroup).Upstream
		if got := up.Endpoints(); len(got) != backend.MaxEndpoints {
			t.Errorf("%s: %d endpoints", name, len(got))
		}
		if kept := packed(t, s.in.savedAddresses()); len(kept) > 64<<10 {
			t.Errorf("%s: %d bytes are kept", name, len(kept))
		}
	}
}

func servicesToSave(t *testing.T) *services {
	t.Helper()
	https := corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "https", Port: 443}}}
	yes, no := true, false
	return newServices(
		followed(t, service("api", https), service("unnamed", https)),
		followed(t, endpointSlice("api-1", "api", "https", 8443,
			discoveryv1.Endpoint{Addresses: []string{"10.0.0.1"}, Conditions: discoveryv1.EndpointConditions{Ready: &yes}},
			discoveryv1.Endpoint{Addresses: []string{"10.0.0.2"}, Conditions: discoveryv1.EndpointConditions{Ready: &no}},
		)),
	)
}
