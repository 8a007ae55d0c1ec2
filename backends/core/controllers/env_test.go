package controllers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	clientrest "k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/clock"

	"portico/backends/core/kinds"
	"portico/discovery"
	"portico/discovery/openapi"
	"portico/internal/testing/memstore"
	"portico/resource"
	"portico/resource/rest"
	"portico/resource/rest/handlers"
)

// server serves all built-in kinds, as the core server does, without authorization. Its
// objects are in memory.
type server struct {
	*kubernetes.Clientset
	t   *testing.T
	cfg *clientrest.Config

	mu   sync.Mutex
	seen []string // the requests of controllers, "PUT /api/v1/..."
	may  []string // what controllers may watch: Controller.Needs
}

func newServer(t *testing.T) *server {
	t.Helper()
	s := &server{t: t}
	kept := memstore.New()
	var resources []*rest.Resource
	var addresses atomic.Int32
	allocate := func(_ context.Context, svc, _ *corev1.Service, _ bool) (func(), error) {
		if svc.Spec.ClusterIP == "" {
			svc.Spec.ClusterIP = fmt.Sprintf("10.96.0.%d", addresses.Add(1))
			svc.Spec.ClusterIPs = []string{svc.Spec.ClusterIP}
		}
		return func() {}, nil
	}
	rows := kinds.All(kinds.Config{AllocateService: allocate})
	for _, k := range rows {
		resources = append(resources, &rest.Resource{Kind: k, Store: kept.Store(&k.Info)})
	}
	api := handlers.New(handlers.Config{Resources: resources})
	documents, err := discovery.Build(discovery.FromKinds(rows), "")
	if err != nil {
		t.Fatal(err)
	}
	found, published := discovery.NewHandler(discovery.Fixed(documents)), openapi.FromKinds(openapi.Config{}, rows).Handler()
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.UserAgent() == controllerAgent {
			s.mu.Lock()
			s.seen = append(s.seen, r.Method+" "+r.URL.Path)
			s.mu.Unlock()
		}
		act := resource.ParseAction(r)
		if act.Verb == "watch" && r.UserAgent() == controllerAgent {
			s.checkWatch(path.Join(act.Group, act.Version, act.Resource))
		}
		act.User = &resource.User{Name: "admin", Groups: []string{resource.GroupMasters}}
		if strings.HasPrefix(r.URL.Path, "/openapi/") {
			published.ServeHTTP(w, r)
			return
		}
		if !act.IsResource {
			found.ServeHTTP(w, r)
			return
		}
		api.ServeHTTP(w, r.WithContext(resource.WithAction(r.Context(), act)))
	}))
	t.Cleanup(web.Close)
	s.cfg = &clientrest.Config{Host: web.URL, QPS: -1, UserAgent: controllerAgent}
	s.Clientset = kubernetes.NewForConfigOrDie(&clientrest.Config{Host: web.URL, QPS: -1, UserAgent: "test"})
	return s
}

// controllerAgent is the User-Agent of controllers.
const controllerAgent = "controllers"

// requests returns the requests of controllers since the last call.
func (s *server) requests() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.seen
	s.seen = nil
	return out
}

// checkWatch fails the test if no row of a running controller names a resource that is watched.
func (s *server) checkWatch(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	quotas := slices.Contains(s.may, "v1/resourcequotas") // their controller watches what they name as well
	if !quotas && !slices.Contains(s.may, name) {
		s.t.Errorf("a controller watches %s, which its row does not name", name)
	}
}

// env returns the Env of a controller, which ends with the test. c may be nil.
func (s *server) env(name string, opts Options, c clock.WithTicker) *Env {
	s.t.Helper()
	s.mu.Lock()
	s.may = append(s.may, rowOf(name).Needs...)
	s.mu.Unlock()
	mapper, err := NewMapper(s.cfg)
	if err != nil {
		s.t.Fatal(err)
	}
	env, err := newEnv(Config{Gateway: s.cfg, Mapper: mapper, Serves: served, Options: opts, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(env.stop)
	if c != nil {
		env.Clock = c
	}
	return env
}

// run runs a controller until the test ends. c may be nil.
func (s *server) run(name string, opts Options, c clock.WithTicker) {
	s.t.Helper()
	s.runIn(name, s.env(name, opts, c))
}

// runIn is run with an Env.
func (s *server) runIn(name string, env *Env) {
	s.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- rowOf(name).Run(ctx, env) }()
	s.t.Cleanup(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			s.t.Errorf("%s ended with %v", name, err)
		}
	})
}

// served is a Config.Serves of a server on which nothing is switched off.
func served(schema.GroupVersionResource) bool { return true }

func rowOf(name string) Controller {
	for _, c := range All() {
		if c.Name == name {
			return c
		}
	}
	panic("no controller " + name)
}

// must fails the test with an error of a client.
func must[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// creator is a client of one kind.
type creator[T any] interface {
	Create(ctx context.Context, obj *T, opts metav1.CreateOptions) (*T, error)
	Get(ctx context.Context, name string, opts metav1.GetOptions) (*T, error)
	UpdateStatus(ctx context.Context, obj *T, opts metav1.UpdateOptions) (*T, error)
}

// create creates an object, and then writes the status that it has. A controller may write
// the object in between.
func create[T any, P interface {
	*T
	metav1.Object
}](t *testing.T, client creator[T], obj P, status func(*T)) *T {
	t.Helper()
	made := must[*T](t)(client.Create(t.Context(), obj, metav1.CreateOptions{}))
	if status == nil {
		return made
	}
	name := P(made).GetName()
	err := retry.RetryOnConflict(retry.DefaultRetry, func() (err error) {
		if made, err = client.Get(t.Context(), name, metav1.GetOptions{}); err != nil {
			return err
		}
		status(made)
		made, err = client.UpdateStatus(t.Context(), made, metav1.UpdateOptions{})
		return err
	})
	return must[*T](t)(made, err)
}

// addNode creates a node.
func (s *server) addNode(name, zone string) {
	s.t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelTopologyZone: zone}}}
	must[*corev1.Node](s.t)(s.CoreV1().Nodes().Create(s.t.Context(), node, metav1.CreateOptions{}))
}

// addPod creates a pod in namespace default.
func (s *server) addPod(name, node, app string, change func(*corev1.Pod)) *corev1.Pod {
	s.t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": app}},
		Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{
			Name: "c", Image: "i", Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080}},
		}}},
	}
	if change != nil {
		change(pod)
	}
	status := pod.Status
	return create(s.t, s.CoreV1().Pods("default"), pod, func(p *corev1.Pod) { p.Status = status })
}

// running makes a pod run with an address.
func running(ip string, ready corev1.ConditionStatus) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.Phase, p.Status.PodIP, p.Status.PodIPs = corev1.PodRunning, ip, []corev1.PodIP{{IP: ip}}
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: ready, LastTransitionTime: metav1.Now()}}
	}
}

// setReady changes the readiness of a pod.
func (s *server) setReady(name string, ready corev1.ConditionStatus) {
	s.t.Helper()
	pods := s.CoreV1().Pods("default")
	pod := must[*corev1.Pod](s.t)(pods.Get(s.t.Context(), name, metav1.GetOptions{}))
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: ready, LastTransitionTime: metav1.Now()}}
	must[*corev1.Pod](s.t)(pods.UpdateStatus(s.t.Context(), pod, metav1.UpdateOptions{}))
}

// remove deletes a pod at once.
func (s *server) remove(name string) {
	s.t.Helper()
	if err := s.CoreV1().Pods("default").Delete(s.t.Context(), name, *metav1.NewDeleteOptions(0)); err != nil {
		s.t.Fatal(err)
	}
}
