package garbage

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico/resource"
	porticorest "portico/resource/rest"
	"portico/resource/rest/resttest"
)

// nodes is a kind without namespaces.
func nodes() *porticorest.Kind {
	return &porticorest.Kind{
		Info:  resource.Info{Versions: []string{"v1"}, Resource: "nodes", Kind: "Node"},
		Codec: porticorest.Typed(resttest.CoreScheme(), corev1.SchemeGroupVersion.WithKind("Node")),
	}
}

// addNode creates a node.
func (s *server) addNode(name string, owners ...metav1.OwnerReference) *corev1.Node {
	s.t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: owners}}
	made, err := s.clients.CoreV1().Nodes().Create(s.t.Context(), node, metav1.CreateOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	return made
}

// An owner without a namespace takes along its dependents, with and without a namespace, or
// leaves them without their reference.
func TestOwnersWithoutNamespace(t *testing.T) {
	t.Parallel()
	for policy, left := range map[metav1.DeletionPropagation][]string{
		metav1.DeletePropagationBackground: nil,
		metav1.DeletePropagationForeground: nil,
		metav1.DeletePropagationOrphan:     {"child"},
	} {
		t.Run(string(policy), func(t *testing.T) {
			t.Parallel()
			s := start(t)
			owner := s.addNode("owner")
			owned := []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "owner", UID: owner.UID, BlockOwnerDeletion: new(true)}}
			s.addNode("child", owned...)
			s.create(metav1.ObjectMeta{Name: "child", OwnerReferences: owned})
			s.eventually("the graph has the references", func() bool {
				return len(s.collector.Graph.dependentsOf(ID{Kind: "Node", UID: string(owner.UID)})) == 2
			})
			if err := s.clients.CoreV1().Nodes().Delete(t.Context(), "owner", metav1.DeleteOptions{PropagationPolicy: &policy}); err != nil {
				t.Fatal(err)
			}
			s.eventually("the nodes are those that are left", func() bool {
				list, err := s.clients.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
				return err == nil && len(list.Items) == len(left) && !slices.ContainsFunc(list.Items, func(n corev1.Node) bool { return n.Name != "child" || len(n.OwnerReferences) > 0 })
			})
			for _, cm := range s.waitFor(left...) {
				if len(cm.OwnerReferences) > 0 {
					t.Errorf("%s has an owner", cm.Name)
				}
			}
		})
	}
}

// An object without a namespace that refers to an owner of a kind with namespaces is not deleted:
// the owner cannot be read.
func TestOwnersInNamespacesOfObjectsWithoutOne(t *testing.T) {
	t.Parallel()
	s := start(t)
	node := s.addNode("child", refs(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "absent", UID: "absent"}})...)
	id := ID{Kind: "Node", UID: string(node.UID)}
	s.eventually("the graph has the node", func() bool { return s.collector.Graph.get(id) != nil })
	if err := s.collector.act(t.Context(), s.collector.Graph.get(id)); !errors.Is(err, ErrNamespaced) {
		t.Errorf("got %v, want ErrNamespaced", err)
	}
	if _, err := s.clients.CoreV1().Nodes().Get(t.Context(), "child", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
}

// An object that refers to an owner in another namespace neither holds up its deletion nor counts
// as its dependent. It is deleted, or stays if it has no namespace itself, and one Event says why.
func TestOwnersInOtherNamespaces(t *testing.T) {
	t.Parallel()
	s := start(t)
	owner := s.create(metav1.ObjectMeta{Name: "owner", Finalizers: held})
	s.eventually("the graph has the owner", func() bool { return s.collector.Graph.get(ID{Kind: "ConfigMap", UID: string(owner.UID)}) != nil })
	child := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "child", OwnerReferences: refs(owner), Finalizers: held}}
	if _, err := s.clients.CoreV1().ConfigMaps("other").Create(t.Context(), child, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	node := s.addNode("child", refs(owner)...)
	s.eventually("the child is being deleted", func() bool {
		got, err := s.clients.CoreV1().ConfigMaps("other").Get(t.Context(), "child", metav1.GetOptions{})
		return err == nil && got.DeletionTimestamp != nil
	})
	events := map[string]bool{}
	for _, namespace := range []string{"other", ""} {
		events[fmt.Sprintf("Warning OwnerRefInvalidNamespace ownerRef [v1/ConfigMap, namespace: %s, name: owner, uid: %s] does not exist in namespace %q", namespace, owner.UID, namespace)] = true
	}
	for range 2 {
		if text := <-s.events.Events; !events[text] {
			t.Errorf("got the event %q", text)
		} else {
			delete(events, text)
		}
	}
	for range 3 { // as after errors
		_ = s.collector.act(t.Context(), s.collector.Graph.get(ID{Kind: "Node", UID: string(node.UID)}))
	}
	s.remove("owner", metav1.DeletePropagationForeground)
	s.eventually("the owner waits for nothing but its own finalizer", func() bool {
		got, err := s.clients.CoreV1().ConfigMaps("default").Get(t.Context(), "owner", metav1.GetOptions{})
		return err == nil && got.DeletionTimestamp != nil && slices.Equal(got.Finalizers, held)
	})
	if _, err := s.clients.CoreV1().Nodes().Get(t.Context(), "child", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	select {
	case text := <-s.events.Events:
		t.Errorf("another event: %q", text)
	default:
	}
}
