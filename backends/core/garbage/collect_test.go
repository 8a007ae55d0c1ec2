package garbage

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"

	"portico/internal/testing/await"
	"portico/internal/testing/memstore"
	"portico/resource"
	porticorest "portico/resource/rest"
	"portico/resource/rest/handlers"
	"portico/resource/rest/resttest"
)

// server serves config maps, secrets and nodes from memory, and a collector has their metadata.
type server struct {
	t         *testing.T
	clients   *kubernetes.Clientset
	collector *Collector
	events    *record.FakeRecorder
	// refuse makes requests for secrets fail with a 503.
	refuse atomic.Bool
}

func start(t *testing.T) *server {
	t.Helper()
	s := &server{t: t}
	kept := memstore.New()
	var resources []*porticorest.Resource
	known := meta.NewDefaultRESTMapper([]schema.GroupVersion{{Version: "v1"}})
	for _, k := range []*porticorest.Kind{resttest.ConfigMaps(), resttest.Secrets(), nodes()} {
		resources = append(resources, &porticorest.Resource{Kind: k, Store: kept.Store(&k.Info)})
		scope := meta.RESTScope(meta.RESTScopeRoot)
		if k.Namespaced {
			scope = meta.RESTScopeNamespace
		}
		known.Add(k.GVK("v1"), scope)
	}
	api := handlers.New(handlers.Config{Resources: resources})
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.refuse.Load() && strings.Contains(r.URL.Path, "/secrets") {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		act := resource.ParseAction(r)
		act.User = &resource.User{Name: "gc"}
		api.ServeHTTP(w, r.WithContext(resource.WithAction(r.Context(), act)))
	}))
	t.Cleanup(web.Close)
	cfg := &rest.Config{Host: web.URL, QPS: -1}
	s.clients = kubernetes.NewForConfigOrDie(cfg)
	s.collector = New(NewAPI(metadata.NewForConfigOrDie(cfg), known), NewMetrics(), slog.New(slog.DiscardHandler))
	s.events = record.NewFakeRecorder(100)
	s.collector.Events = s.events
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{}, len(resources)+1)
	go func() { _ = s.collector.Run(ctx); done <- struct{}{} }()
	for _, r := range resources {
		go func() { s.follow(ctx, r); done <- struct{}{} }()
	}
	t.Cleanup(func() {
		cancel()
		for range cap(done) {
			<-done
		}
	})
	return s
}

// follow gives the metadata of the objects of a resource to the graph.
func (s *server) follow(ctx context.Context, r *porticorest.Resource) {
	w, err := r.Store.Watch(ctx, resource.WatchOptions{InitialEvents: true})
	if err != nil {
		s.t.Error(err)
		return
	}
	defer w.Close()
	for {
		events, err := w.Next(ctx)
		if err != nil {
			return
		}
		for _, e := range events {
			switch {
			case e.Object == nil:
			case e.Type == resource.Deleted:
				s.collector.Graph.Remove(idOf(&e.Object.Header))
			default:
				s.collector.Graph.Set(&e.Object.Header)
			}
		}
	}
}

// add creates a config map that the others own.
func (s *server) add(name string, owners ...*corev1.ConfigMap) *corev1.ConfigMap {
	s.t.Helper()
	return s.create(metav1.ObjectMeta{Name: name, OwnerReferences: refs(owners...)})
}

// create creates a config map.
func (s *server) create(m metav1.ObjectMeta) *corev1.ConfigMap {
	s.t.Helper()
	made, err := s.clients.CoreV1().ConfigMaps("default").Create(s.t.Context(), &corev1.ConfigMap{ObjectMeta: m}, metav1.CreateOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	return made
}

// held are the finalizers of a config map that stays when it is deleted, until it is released.
var held = []string{"example.com/held"}

// release removes the finalizers of a config map.
func (s *server) release(name string) {
	s.t.Helper()
	if _, err := s.clients.CoreV1().ConfigMaps("default").Patch(s.t.Context(), name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}); err != nil {
		s.t.Fatal(err)
	}
}

func refs(owners ...*corev1.ConfigMap) []metav1.OwnerReference {
	var out []metav1.OwnerReference
	for _, o := range owners {
		out = append(out, metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: o.Name, UID: o.UID, BlockOwnerDeletion: new(true)})
	}
	return out
}

func (s *server) remove(name string, policy metav1.DeletionPropagation) {
	s.t.Helper()
	if err := s.clients.CoreV1().ConfigMaps("default").Delete(s.t.Context(), name, metav1.DeleteOptions{PropagationPolicy: &policy}); err != nil {
		s.t.Fatal(err)
	}
}

// waitFor waits until exactly these config maps are left.
func (s *server) waitFor(names ...string) []corev1.ConfigMap {
	s.t.Helper()
	var got []string
	for end := time.Now().Add(await.Patience()); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		list, err := s.clients.CoreV1().ConfigMaps("default").List(s.t.Context(), metav1.ListOptions{})
		if err != nil {
			s.t.Fatal(err)
		}
		got = nil
		for _, cm := range list.Items {
			got = append(got, cm.Name)
		}
		if slices.Equal(got, names) {
			return list.Items
		}
	}
	s.t.Fatalf("config maps %v are left, want %v", got, names)
	return nil
}

func (s *server) eventually(what string, ok func() bool) {
	s.t.Helper()
	for end := time.Now().Add(await.Patience()); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			s.t.Fatalf("not within 10 s: %s", what)
		}
	}
}

// An owner that is deleted in the background takes its dependents and theirs along. A
// dependent with another owner stays and loses the reference.
func TestBackgroundDeletion(t *testing.T) {
	t.Parallel()
	s := start(t)
	owner, other := s.add("owner"), s.add("other")
	child := s.add("child", owner)
	s.add("grandchild", child)
	s.add("shared", owner, other)
	s.waitFor("child", "grandchild", "other", "owner", "shared")
	s.remove("owner", metav1.DeletePropagationBackground)
	s.waitFor("other", "shared")
	s.eventually("the reference to the absent owner is removed", func() bool {
		cm, err := s.clients.CoreV1().ConfigMaps("default").Get(t.Context(), "shared", metav1.GetOptions{})
		return err == nil && len(cm.OwnerReferences) == 1 && cm.OwnerReferences[0].UID == other.UID
	})
}

// An owner that is deleted in the foreground goes after its dependents and theirs.
func TestForegroundDeletion(t *testing.T) {
	t.Parallel()
	s := start(t)
	owner := s.add("owner")
	child := s.add("child", owner)
	s.create(metav1.ObjectMeta{Name: "grandchild", Finalizers: held, OwnerReferences: refs(child)})
	s.eventually("the graph has all", func() bool { return s.collector.Graph.Len() == 3 })
	s.remove("owner", metav1.DeletePropagationForeground)
	s.eventually("the grandchild is being deleted", func() bool {
		grandchild, err := s.clients.CoreV1().ConfigMaps("default").Get(t.Context(), "grandchild", metav1.GetOptions{})
		return err == nil && grandchild.DeletionTimestamp != nil
	})
	for _, cm := range s.waitFor("child", "grandchild", "owner") {
		if cm.DeletionTimestamp == nil {
			t.Errorf("%s is not being deleted", cm.Name)
		}
	}
	s.release("grandchild")
	s.waitFor()
}

// In the foreground, dependents without blockOwnerDeletion are deleted with the others, and their
// owner does not wait for them.
func TestForegroundDeletionWithoutBlocking(t *testing.T) {
	t.Parallel()
	s := start(t)
	owner := s.add("owner")
	free := refs(owner)
	free[0].BlockOwnerDeletion = new(false)
	s.create(metav1.ObjectMeta{Name: "blocking", Finalizers: held, OwnerReferences: refs(owner)})
	s.create(metav1.ObjectMeta{Name: "free", Finalizers: held, OwnerReferences: free})
	s.eventually("the graph has all", func() bool { return s.collector.Graph.Len() == 3 })
	s.remove("owner", metav1.DeletePropagationForeground)
	s.eventually("all are being deleted", func() bool {
		return !slices.ContainsFunc(s.waitFor("blocking", "free", "owner"), func(cm corev1.ConfigMap) bool { return cm.DeletionTimestamp == nil })
	})
	s.release("blocking")
	s.waitFor("free")
	s.release("free")
	s.waitFor()
}

// An owner that leaves its dependents goes after they have lost their reference.
func TestOrphanDeletion(t *testing.T) {
	t.Parallel()
	s := start(t)
	owner := s.add("owner")
	s.add("a", owner)
	s.add("b", owner)
	s.eventually("the graph has all", func() bool { return s.collector.Graph.Len() == 3 })
	s.remove("owner", metav1.DeletePropagationOrphan)
	for _, cm := range s.waitFor("a", "b") {
		if len(cm.OwnerReferences) > 0 {
			t.Errorf("%s has an owner", cm.Name)
		}
	}
}

// References in a circle, and objects that own themselves, are deleted in the foreground.
func TestCircularReferences(t *testing.T) {
	t.Parallel()
	for _, size := range []int{1, 2, 3} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			t.Parallel()
			s := start(t)
			first := s.add("0")
			last := first
			for i := 1; i < size; i++ {
				last = s.add(fmt.Sprint(i), last)
			}
			first.OwnerReferences = refs(last)
			if _, err := s.clients.CoreV1().ConfigMaps("default").Update(t.Context(), first, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
			s.eventually("the graph has the references", func() bool {
				h := s.collector.Graph.get(ID{Kind: "ConfigMap", UID: string(first.UID)})
				return s.collector.Graph.Len() == size && h != nil && len(h.Owners) == 1
			})
			s.remove("0", metav1.DeletePropagationForeground)
			s.waitFor()
		})
	}
}

// An object is deleted if its owner never existed or exists with another uid or kind, also if
// the uid is that of another object.
func TestWrongOwners(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(o *metav1.OwnerReference){
		"uid":  func(o *metav1.OwnerReference) { o.UID = "absent" },
		"name": func(o *metav1.OwnerReference) { o.Name = "absent" },
		"kind": func(o *metav1.OwnerReference) { o.Kind = "Secret" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t)
			owner := s.add("owner")
			wrong := refs(owner)
			change(&wrong[0])
			s.create(metav1.ObjectMeta{Name: "child", OwnerReferences: wrong})
			s.waitFor("owner")
		})
	}
}

// While the server of an owner does not respond, its dependents stay and those of other
// owners are deleted. An owner of a kind that no server has keeps its dependents.
func TestServerOfOwnerAway(t *testing.T) {
	t.Parallel()
	s := start(t)
	secret, err := s.clients.CoreV1().Secrets("default").Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "owner"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	owned := func(name, kind string, uid types.UID) {
		s.create(metav1.ObjectMeta{Name: name, OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: kind, Name: "owner", UID: uid}}})
	}
	s.refuse.Store(true)
	owned("absent", "Secret", "x")
	owned("present", "Secret", secret.UID)
	owned("unknown", "Nothing", "y")
	s.add("gone", &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "z", UID: "z"}})
	s.waitFor("absent", "present", "unknown")
	s.refuse.Store(false)
	s.waitFor("present", "unknown")
}

// Many dependents are deleted with their owner.
func TestManyDependents(t *testing.T) {
	t.Parallel()
	const many = 1000
	s := start(t)
	owner := s.add("owner")
	for i := range many {
		s.add(fmt.Sprint("child-", i), owner)
	}
	s.remove("owner", metav1.DeletePropagationBackground)
	s.waitFor()
}

// An object that was changed after it was looked at is not deleted by what was seen before.
func TestDeletionIsOfWhatWasSeen(t *testing.T) {
	t.Parallel()
	s := start(t)
	cm := s.add("a")
	err := s.collector.api.Delete(t.Context(), &resource.Header{APIVersion: "v1", Kind: "ConfigMap", Namespace: "default", Name: "a", UID: string(cm.UID), Revision: 1}, metav1.DeletePropagationBackground)
	if !apierrors.IsConflict(err) {
		t.Errorf("got %v, want a conflict", err)
	}
	if _, err := s.collector.api.Get(t.Context(), Ref{APIVersion: "v1", Kind: "ConfigMap", Name: "a"}); !errors.Is(err, ErrNamespaced) {
		t.Errorf("got %v, want ErrNamespaced", err)
	}
}
