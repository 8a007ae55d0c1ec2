package upstream

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	clientrest "k8s.io/client-go/rest"

	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controller/endpoint"
	"k8s.io/kubernetes/pkg/controller/endpointslice"
	"k8s.io/kubernetes/pkg/controller/endpointslicemirroring"

	"portico/backends/core/controllers"
	"portico/backends/core/kinds"
	"portico/discovery"
	"portico/internal/testing/memstore"
	"portico/resource"
	porticorest "portico/resource/rest"
	"portico/resource/rest/handlers"
)

// serveKinds serves all built-in kinds from memory.
func serveKinds(t *testing.T) *clientrest.Config {
	t.Helper()
	kept := memstore.New()
	var addresses atomic.Int32
	rows := kinds.All(kinds.Config{Permissions: kinds.Permissions{Authorize: allow}, AllocateService: func(_ context.Context, svc, _ *corev1.Service, _ bool) (func(), error) {
		if svc.Spec.ClusterIP == "" {
			svc.Spec.ClusterIP = fmt.Sprintf("10.96.0.%d", addresses.Add(1))
			svc.Spec.ClusterIPs = []string{svc.Spec.ClusterIP}
		}
		return func() {}, nil
	}})
	var resources []*porticorest.Resource
	for _, k := range rows {
		resources = append(resources, &porticorest.Resource{Kind: k, Store: kept.Store(&k.Info)})
	}
	documents, err := discovery.Build(discovery.FromKinds(rows), "")
	if err != nil {
		t.Fatal(err)
	}
	api, found := handlers.New(handlers.Config{Resources: resources}), discovery.NewHandler(discovery.Fixed(documents))
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		act := resource.ParseAction(r)
		act.User = &resource.User{Name: "admin", Groups: []string{resource.GroupMasters}}
		if !act.IsResource {
			found.ServeHTTP(w, r)
			return
		}
		api.ServeHTTP(w, r.WithContext(resource.WithAction(r.Context(), act)))
	}))
	t.Cleanup(web.Close)
	return &clientrest.Config{Host: web.URL, QPS: -1, WarningHandler: clientrest.NoWarnings{}}
}

// inBackground runs f until the test ends.
func inBackground(t *testing.T, f func(context.Context)) {
	t.Helper()
	ctx, cancel := context.WithCancel(klog.NewContext(context.Background(), klog.NewKlogr().V(10)))
	done := make(chan struct{})
	go func() { defer close(done); f(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
}

// runTheirs runs controllers of kube-controller-manager.
func runTheirs(t *testing.T, cfg *clientrest.Config) {
	client := kubernetes.NewForConfigOrDie(cfg)
	factory := informers.NewSharedInformerFactory(client, 0)
	core, slices := factory.Core().V1(), factory.Discovery().V1().EndpointSlices()
	inBackground(t, func(ctx context.Context) {
		e := endpoint.NewEndpointController(ctx, core.Pods(), core.Services(), core.Endpoints(), client, 0)
		s := endpointslice.NewController(ctx, core.Pods(), core.Services(), core.Nodes(), slices, 100, client, 0)
		m := endpointslicemirroring.NewController(ctx, core.Endpoints(), slices, core.Services(), 1000, client, 0)
		factory.Start(ctx.Done())
		go e.Run(ctx, 5)
		go m.Run(ctx, 5)
		s.Run(ctx, 5)
		factory.Shutdown()
	})
}

// runOurs runs the same controllers of Portico.
func runOurs(t *testing.T, cfg *clientrest.Config) {
	selected, err := controllers.Select([]string{"endpoints-controller", "endpointslice-controller", "endpointslice-mirroring-controller"})
	if err != nil {
		t.Fatal(err)
	}
	inBackground(t, func(ctx context.Context) {
		_ = controllers.Run(ctx, controllers.Config{
			Gateway: cfg, Selection: selected, Log: slog.New(slog.DiscardHandler), Serves: func(schema.GroupVersionResource) bool { return true },
		})
	})
}

// written are the kinds that the controllers write.
var written = []schema.GroupVersionResource{
	{Version: "v1", Resource: "endpoints"}, {Group: "discovery.k8s.io", Version: "v1", Resource: "endpointslices"},
}

var (
	uids      = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)
	times     = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`)
	generated = regexp.MustCompile(`"name":"(\w+)-[a-z0-9]{5}"`)
)

// state returns the objects that controllers write, without what differs between any two
// runs.
func state(t *testing.T, cfg *clientrest.Config) string {
	t.Helper()
	client := dynamic.NewForConfigOrDie(cfg)
	var out []string
	for _, gvr := range written {
		list, err := client.Resource(gvr).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for i := range list.Items {
			o := &list.Items[i]
			for _, field := range []string{"managedFields", "resourceVersion", "uid", "creationTimestamp", "generation"} {
				unstructured.RemoveNestedField(o.Object, "metadata", field)
			}
			unstructured.RemoveNestedField(o.Object, "metadata", "annotations", corev1.EndpointsLastChangeTriggerTime)
			if len(o.GetAnnotations()) == 0 {
				o.SetAnnotations(nil)
			}
			s := uids.ReplaceAllString(text(o.Object), "UID")
			s = times.ReplaceAllString(s, "TIME")
			if err := json.Unmarshal([]byte(s), &o.Object); err != nil {
				t.Fatal(err)
			}
			for _, set := range []string{"endpoints", "subsets"} { // in an order that depends on uids
				if list, ok := o.Object[set].([]any); ok {
					slices.SortFunc(list, func(a, b any) int { return strings.Compare(text(a), text(b)) })
				}
			}
			out = append(out, generated.ReplaceAllString(text(o.Object), `"name":"$1-GENERATED"`))
		}
	}
	slices.Sort(out)
	return strings.Join(out, "\n")
}

func text(v any) string {
	out, _ := json.Marshal(v) // JSON values
	return string(out)
}

// scenario are steps with which controllers have something to do.
var scenario = []func(ctx context.Context, c *kubernetes.Clientset) error{
	func(ctx context.Context, c *kubernetes.Clientset) error {
		for i := range 2 {
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("n", i), Labels: map[string]string{corev1.LabelTopologyZone: fmt.Sprint("z", i)}}}
			if _, err := c.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}); err != nil {
				return err
			}
		}
		for _, svc := range services() {
			if _, err := c.CoreV1().Services("default").Create(ctx, svc, metav1.CreateOptions{}); err != nil {
				return err
			}
		}
		return nil
	},
	func(ctx context.Context, c *kubernetes.Clientset) error {
		for i := range 7 {
			if err := addPod(ctx, c, i); err != nil {
				return err
			}
		}
		return nil
	},
	func(ctx context.Context, c *kubernetes.Clientset) error {
		//lint:ignore SA1019 a controller mirrors the deprecated kind
		e := &corev1.Endpoints{ObjectMeta: metav1.ObjectMeta{Name: "manual", Labels: map[string]string{"a": "b"}, Annotations: map[string]string{"c": "d"}}, Subsets: []corev1.EndpointSubset{
			{Addresses: []corev1.EndpointAddress{{IP: "192.0.2.1"}, {IP: "2001:db8::1"}}, Ports: []corev1.EndpointPort{{Name: "b", Port: 2}, {Name: "a", Port: 1}}},
			{NotReadyAddresses: []corev1.EndpointAddress{{IP: "192.0.2.2", Hostname: "h"}}, Ports: []corev1.EndpointPort{{Port: 3}}},
		}}
		_, err := c.CoreV1().Endpoints("default").Create(ctx, e, metav1.CreateOptions{})
		return err
	},
	patch("services", "web", `{"metadata":{"labels":{"new":"label"}},"spec":{"ports":[{"name":"http","port":80,"targetPort":"other"}]}}`),
	patch("services", "headless", `{"spec":{"publishNotReadyAddresses":true}}`),
	patch("pods", "p3", `{"metadata":{"labels":{"app":"moved"}}}`),
	func(ctx context.Context, c *kubernetes.Clientset) error {
		if err := c.CoreV1().Pods("default").Delete(ctx, "p1", *metav1.NewDeleteOptions(0)); err != nil {
			return err
		}
		return c.CoreV1().Pods("default").Delete(ctx, "p4", metav1.DeleteOptions{}) // with grace
	},
	patch("endpoints", "manual", `{"subsets":[{"addresses":[{"ip":"192.0.2.9"}],"ports":[{"name":"c","port":9}]}]}`),
	patch("services", "manual", `{"spec":{"selector":{"app":"web"}}}`),
	func(ctx context.Context, c *kubernetes.Clientset) error {
		return c.CoreV1().Services("default").Delete(ctx, "web", metav1.DeleteOptions{})
	},
}

// patch returns a step that applies a merge patch.
func patch(resource, name, body string) func(context.Context, *kubernetes.Clientset) error {
	return func(ctx context.Context, c *kubernetes.Clientset) error {
		return c.CoreV1().RESTClient().Patch(types.MergePatchType).Namespace("default").Resource(resource).Name(name).Body([]byte(body)).Do(ctx).Error()
	}
}

func services() []*corev1.Service {
	ports := []corev1.ServicePort{{Name: "http", Port: 80, TargetPort: intstr.FromString("http")}, {Name: "metrics", Port: 90, TargetPort: intstr.FromInt32(9090), AppProtocol: new("x")}}
	web := map[string]string{"app": "web"}
	meta := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Name: name, Labels: map[string]string{"of": name}}
	}
	return []*corev1.Service{
		{ObjectMeta: meta("web"), Spec: corev1.ServiceSpec{Selector: web, Ports: ports}},
		{ObjectMeta: meta("headless"), Spec: corev1.ServiceSpec{Selector: web, ClusterIP: corev1.ClusterIPNone}},
		{ObjectMeta: meta("near"), Spec: corev1.ServiceSpec{Selector: web, Ports: ports, TrafficDistribution: new(corev1.ServiceTrafficDistributionPreferSameZone)}},
		{ObjectMeta: meta("manual"), Spec: corev1.ServiceSpec{Ports: ports}},
		{ObjectMeta: meta("name"), Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "example.com", Selector: web}},
	}
}

// addPod creates a pod with an address of each family; every third is not ready.
func addPod(ctx context.Context, c *kubernetes.Clientset, i int) error {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("p", i), Labels: map[string]string{"app": "web"}},
		Spec: corev1.PodSpec{NodeName: fmt.Sprint("n", i%2), Hostname: fmt.Sprint("p", i), Subdomain: "headless", Containers: []corev1.Container{{
			Name: "c", Image: "i", Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080 + int32(i%2)}, {Name: "other", ContainerPort: 8090}},
		}}},
	}
	pod, err := c.CoreV1().Pods("default").Create(ctx, pod, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	ready := corev1.ConditionTrue
	if i%3 == 2 {
		ready = corev1.ConditionFalse
	}
	pod.Status.Phase, pod.Status.PodIP = corev1.PodRunning, fmt.Sprintf("10.0.0.%d", i+1)
	pod.Status.PodIPs = []corev1.PodIP{{IP: pod.Status.PodIP}, {IP: fmt.Sprintf("2001:db8::%d", i+1)}}
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: ready, LastTransitionTime: metav1.Now()}}
	_, err = c.CoreV1().Pods("default").UpdateStatus(ctx, pod, metav1.UpdateOptions{})
	return err
}

// TestControllersWriteWhatThoseOfKubeControllerManagerWrite does the same with two servers, one
// with the controllers of kube-controller-manager and one with Portico's. After every step
// both have the same objects.
func TestControllersWriteWhatThoseOfKubeControllerManagerWrite(t *testing.T) {
	theirs, ours := serveKinds(t), serveKinds(t)
	runTheirs(t, theirs)
	runOurs(t, ours)
	for i, step := range scenario {
		for _, cfg := range []*clientrest.Config{theirs, ours} {
			if err := step(t.Context(), kubernetes.NewForConfigOrDie(cfg)); err != nil {
				t.Fatal(i, err)
			}
		}
		want, got := settled(t, theirs), ""
		for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline) && got != want; time.Sleep(50 * time.Millisecond) {
			want, got = state(t, theirs), state(t, ours)
		}
		if got != want {
			t.Fatalf("after step %d:\n%s\nwant:\n%s", i, got, want)
		}
	}
}

// settled waits until the objects have been the same for a while.
func settled(t *testing.T, cfg *clientrest.Config) string {
	t.Helper()
	last, since := "", time.Now()
	for time.Since(since) < 1500*time.Millisecond {
		if now := state(t, cfg); now != last {
			last, since = now, time.Now()
		}
		time.Sleep(50 * time.Millisecond)
	}
	return last
}

// allow permits everything.
func allow(context.Context, *resource.Action) error { return nil }
