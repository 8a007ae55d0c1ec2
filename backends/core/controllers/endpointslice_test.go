package controllers

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"portico/internal/testing/await"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	endpointsliceutil "k8s.io/endpointslice/util"
)

// addService creates a Service in namespace default; without app it has no selector.
func (s *server) addService(name, app string, change func(*corev1.Service)) *corev1.Service {
	s.t.Helper()
	svc := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"of": name}},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "web", Port: 80, TargetPort: intstr.FromString("http")}}},
	}
	if app != "" {
		svc.Spec.Selector = map[string]string{"app": app}
	}
	if change != nil {
		change(svc)
	}
	return must[*corev1.Service](s.t)(s.CoreV1().Services("default").Create(s.t.Context(), svc, metav1.CreateOptions{}))
}

// slices returns the slices of a Service.
func (s *server) slices(service string) []discoveryv1.EndpointSlice {
	s.t.Helper()
	list := must[*discoveryv1.EndpointSliceList](s.t)(s.DiscoveryV1().EndpointSlices("default").List(s.t.Context(), metav1.ListOptions{
		LabelSelector: discoveryv1.LabelServiceName + "=" + service,
	}))
	return list.Items
}

// shown returns the endpoints of a Service in one line: "10.0.0.1:8080 10.0.0.2:8080!", with !
// for those that are not ready.
func (s *server) shown(service string) string {
	s.t.Helper()
	var out []string
	for _, slice := range s.slices(service) {
		for _, e := range slice.Endpoints {
			for _, p := range slice.Ports {
				text := fmt.Sprintf("%s:%d", e.Addresses[0], *p.Port)
				if !*e.Conditions.Ready {
					text += "!"
				}
				out = append(out, text)
			}
		}
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

func (s *server) waitShown(service, want string) {
	s.t.Helper()
	got := ""
	defer func() {
		if s.t.Failed() {
			s.t.Logf("the endpoints of %s are %q", service, got)
		}
	}()
	await.Until(s.t, service+" has the endpoints "+want, func() bool {
		got = s.shown(service)
		return got == want
	})
}

// EndpointSlices follow pods and the Service, and are repaired.
func TestEndpointSlices(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.run("endpointslice-controller", Options{}, nil)
	s.addNode("n1", "z1")
	svc := s.addService("web", "web", nil)
	s.waitShown("web", "")
	a := s.addPod("a", "n1", "web", running("10.0.0.1", corev1.ConditionTrue))
	s.addPod("b", "n1", "web", running("10.0.0.2", corev1.ConditionFalse))
	s.addPod("other", "n1", "other", running("10.0.0.3", corev1.ConditionTrue))
	s.addPod("new", "", "web", nil)
	s.waitShown("web", "10.0.0.1:8080 10.0.0.2:8080!")

	got := s.slices("web")
	if len(got) != 1 || got[0].Labels[discoveryv1.LabelManagedBy] != sliceManager || got[0].Labels["of"] != "web" ||
		!metav1.IsControlledBy(&got[0], svc) || !strings.HasPrefix(got[0].Name, "web-") || got[0].AddressType != discoveryv1.AddressTypeIPv4 {
		t.Fatalf("slices %+v", got)
	}
	i := slices.IndexFunc(got[0].Endpoints, func(e discoveryv1.Endpoint) bool { return e.Addresses[0] == "10.0.0.1" })
	if e := got[0].Endpoints[i]; *e.NodeName != "n1" || *e.Zone != "z1" || e.TargetRef.UID != a.UID || !*e.Conditions.Serving || *e.Conditions.Terminating {
		t.Errorf("endpoint %+v", e)
	}

	s.setReady("b", corev1.ConditionTrue)
	s.waitShown("web", "10.0.0.1:8080 10.0.0.2:8080")
	s.remove("a")
	s.waitShown("web", "10.0.0.2:8080")

	ctx, client := t.Context(), s.DiscoveryV1().EndpointSlices("default")
	if err := client.Delete(ctx, s.slices("web")[0].Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	s.waitShown("web", "10.0.0.2:8080")
	foreign := s.slices("web")[0]
	foreign.Endpoints = nil
	must[*discoveryv1.EndpointSlice](t)(client.Update(ctx, &foreign, metav1.UpdateOptions{}))
	s.waitShown("web", "10.0.0.2:8080")

	patch := []byte(`{"spec":{"ports":[{"port":80,"$patch":"delete"},{"name":"web","port":81,"targetPort":9090}]}}`)
	must[*corev1.Service](t)(s.CoreV1().Services("default").Patch(ctx, "web", types.StrategicMergePatchType, patch, metav1.PatchOptions{}))
	s.waitShown("web", "10.0.0.2:9090")
	s.losesSlice("web", sliceManager)
}

// losesSlice labels a slice of a controller as another's, and waits until the controller has made another one.
func (s *server) losesSlice(service, manager string) {
	s.t.Helper()
	own := func(slice discoveryv1.EndpointSlice) bool { return slice.Labels[discoveryv1.LabelManagedBy] == manager }
	all := slices.DeleteFunc(s.slices(service), func(slice discoveryv1.EndpointSlice) bool { return !own(slice) })
	if len(all) == 0 {
		s.t.Fatalf("no slice of %s is of %s", service, manager)
	}
	lost := all[0]
	patch := []byte(`{"metadata":{"labels":{"` + discoveryv1.LabelManagedBy + `":"another"}}}`)
	must[*discoveryv1.EndpointSlice](s.t)(s.DiscoveryV1().EndpointSlices("default").Patch(s.t.Context(), lost.Name, types.MergePatchType, patch, metav1.PatchOptions{}))
	await.Until(s.t, "another slice is made", func() bool {
		now := slices.DeleteFunc(s.slices(service), func(slice discoveryv1.EndpointSlice) bool {
			return !own(slice) || slice.AddressType != lost.AddressType
		})
		return len(now) == 1 && len(now[0].Endpoints) == len(lost.Endpoints)
	})
}

// The slices of a Service are read from the server if a write of the controller is still missing after two syncs. What is deleted
// there makes them stale until the informer shows that it is gone.
func TestCurrentSlices(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	env, svc := s.env("endpointslice-controller", Options{}, nil), s.addService("web", "web", nil)
	slice := func(name string) *discoveryv1.EndpointSlice {
		return &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{
				Name: name, Namespace: "default", UID: types.UID(name), Generation: 1,
				Labels: map[string]string{discoveryv1.LabelServiceName: "web", discoveryv1.LabelManagedBy: sliceManager},
			},
			AddressType: discoveryv1.AddressTypeIPv4,
		}
	}
	client := s.DiscoveryV1().EndpointSlices("default")
	kept := must[*discoveryv1.EndpointSlice](t)(client.Create(t.Context(), slice("kept"), metav1.CreateOptions{}))
	foreign := slice("foreign")
	foreign.Labels[discoveryv1.LabelManagedBy] = "another"
	must[*discoveryv1.EndpointSlice](t)(client.Create(t.Context(), foreign, metav1.CreateOptions{}))
	gone, unseen := slice("gone"), slice("unseen")
	tracker, queue := endpointsliceutil.NewEndpointSliceTracker(), env.NewQueue("test")
	defer queue.ShutDown()
	current := func() ([]*discoveryv1.EndpointSlice, error) {
		have := []*discoveryv1.EndpointSlice{kept, gone}
		managed := func(s *discoveryv1.EndpointSlice) bool { return s.Labels[discoveryv1.LabelManagedBy] == sliceManager }
		return currentSlices(t.Context(), env, svc, have, managed, tracker, queue)
	}
	if got, err := current(); err != nil || len(got) != 2 {
		t.Errorf("nothing is written: %v, %v", got, err)
	}
	tracker.Update(unseen)
	for range failuresBeforeRead {
		if _, err := current(); !errors.Is(err, errStale) {
			t.Errorf("a write is missing: %v", err)
		}
		queue.AddRateLimited(Key(svc))
	}
	if got, err := current(); err != nil || len(got) != 1 || got[0].UID != kept.UID {
		t.Errorf("slices of the server: %v, %v", got, err)
	}
	if !tracker.StaleSlices(svc, []*discoveryv1.EndpointSlice{kept, gone}) {
		t.Error("a deleted slice that the informer shows is current")
	}
	tracker.HandleDeletion(gone)
	if tracker.StaleSlices(svc, []*discoveryv1.EndpointSlice{kept}) {
		t.Error("the slices of the server are stale")
	}
	if !tracker.StaleSlices(svc, nil) {
		t.Error("a slice of the server that the informer lacks is not missed")
	}
}

// A slice that another client relabels is not expected any more, unless the controller has written it since.
func TestRelabelledSlice(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	env := s.env("endpointslice-controller", Options{}, nil)
	managed := func(s *discoveryv1.EndpointSlice) bool { return s.Labels[discoveryv1.LabelManagedBy] == sliceManager }
	tracker, informer := endpointsliceutil.NewEndpointSliceTracker(), env.Informers.Discovery().V1().EndpointSlices().Informer()
	var queued atomic.Int32
	followSlices(env, informer, tracker, managed, func(string) { queued.Add(1) })
	if err := env.Fill(t.Context()); err != nil {
		t.Fatal(err)
	}
	client := s.DiscoveryV1().EndpointSlices("default")
	slice := must[*discoveryv1.EndpointSlice](t)(client.Create(t.Context(), &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Name: "web", Namespace: "default", Labels: map[string]string{discoveryv1.LabelServiceName: "web", discoveryv1.LabelManagedBy: sliceManager},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
	}, metav1.CreateOptions{}))
	relabel := func(manager string) {
		t.Helper()
		before := queued.Load()
		patch := []byte(`{"metadata":{"labels":{"` + discoveryv1.LabelManagedBy + `":"` + manager + `"}}}`)
		must[*discoveryv1.EndpointSlice](t)(client.Patch(t.Context(), "web", types.MergePatchType, patch, metav1.PatchOptions{}))
		await.Until(t, "the Service of both states is queued", func() bool { return queued.Load() == before+2 })
	}
	await.Until(t, "the Service of a new slice is queued", func() bool { return queued.Load() == 1 })
	tracker.Update(slice)
	relabel("another")
	if tracker.Has(slice) {
		t.Error("a relabelled slice is expected")
	}
	relabel(sliceManager)
	slice.Generation = 100
	tracker.Update(slice)
	relabel("another")
	if !tracker.Has(slice) {
		t.Error("the newer write of a relabelled slice is not expected")
	}
}

// A pod of a node that does not exist is left out until the node exists.
func TestEndpointSlicesWithoutNode(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.addService("web", "web", nil)
	s.addPod("a", "absent", "web", running("10.0.0.1", corev1.ConditionTrue))
	s.run("endpointslice-controller", Options{}, nil)
	await.Until(t, "there is a slice", func() bool { return len(s.slices("web")) == 1 })
	if got := s.shown("web"); got != "" {
		t.Errorf("endpoints %s", got)
	}
	s.addNode("absent", "")
	s.waitShown("web", "10.0.0.1:8080")
}

// More than a hundred endpoints are in several slices.
func TestEndpointSlicesOfManyPods(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.addNode("n1", "")
	s.addService("web", "web", nil)
	for i := range 130 {
		s.addPod(fmt.Sprint("p", i), "n1", "web", running(fmt.Sprintf("10.0.0.%d", i+1), corev1.ConditionTrue))
	}
	s.run("endpointslice-controller", Options{}, nil)
	await.Until(t, "two slices have 130 endpoints", func() bool {
		got := s.slices("web")
		return len(got) == 2 && len(got[0].Endpoints)+len(got[1].Endpoints) == 130
	})
}

// A write to one Service reads and writes no slice and no Endpoints of another.
func TestEndpointsOfOneServiceAlone(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	for _, name := range []string{"endpointslice-controller", "endpointslice-mirroring-controller", "endpoints-controller"} {
		s.run(name, Options{}, nil)
	}
	s.addNode("n1", "")
	for i := range 20 {
		name := fmt.Sprintf("s%02d", i)
		s.addService(name, name, nil)
		s.addPod(name, "n1", name, running(fmt.Sprintf("10.0.0.%d", i+1), corev1.ConditionTrue))
	}
	for i := range 20 {
		s.waitShown(fmt.Sprintf("s%02d", i), fmt.Sprintf("10.0.0.%d:8080", i+1))
		s.waitEndpoints(fmt.Sprintf("s%02d", i), fmt.Sprintf("10.0.0.%d:8080", i+1))
	}
	own := s.slices("s07")[0].Name
	s.requests()
	patch := []byte(`{"metadata":{"labels":{"changed":"yes"}},"spec":{"ports":[{"port":80,"name":"web","targetPort":9090}]}}`)
	must[*corev1.Service](t)(s.CoreV1().Services("default").Patch(t.Context(), "s07", types.StrategicMergePatchType, patch, metav1.PatchOptions{}))
	s.waitShown("s07", "10.0.0.8:9090")
	s.waitEndpoints("s07", "10.0.0.8:9090")
	got := s.requests()
	slices.Sort(got)
	want := []string{"PUT /api/v1/namespaces/default/endpoints/s07", "PUT /apis/discovery.k8s.io/v1/namespaces/default/endpointslices/" + own}
	if !slices.Equal(got, want) {
		t.Errorf("requests %q, want %q", got, want)
	}
}
