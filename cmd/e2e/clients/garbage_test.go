package clients

import (
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"portico/cmd/e2e"
)

// chain creates a config map that owns a widget that owns a role, in one namespace. The core
// server, the CRD server and the gateway store them.
type chain struct {
	t         *testing.T
	resources [3]dynamic.ResourceInterface
}

var chainKinds = [3][2]string{{"v1", "ConfigMap"}, {"garbage.example.com/v1", "Widget"}, {"rbac.authorization.k8s.io/v1", "Role"}}

func newChain(t *testing.T, up *e2e.Installation, widgets dynamic.NamespaceableResourceInterface) *chain {
	t.Helper()
	client := e2e.DynamicClient(t, up.Config(t))
	ns := e2e.NewNamespace(t, up.Client(t))
	c := &chain{t: t, resources: [3]dynamic.ResourceInterface{
		client.Resource(e2e.ConfigMaps).Namespace(ns), widgets.Namespace(ns), client.Resource(e2e.Roles).Namespace(ns),
	}}
	var owner *unstructured.Unstructured
	for i, r := range c.resources {
		o := &unstructured.Unstructured{}
		o.SetAPIVersion(chainKinds[i][0])
		o.SetKind(chainKinds[i][1])
		o.SetName("x")
		if owner != nil {
			o.SetOwnerReferences([]metav1.OwnerReference{{
				APIVersion: owner.GetAPIVersion(), Kind: owner.GetKind(), Name: "x", UID: owner.GetUID(), BlockOwnerDeletion: new(true),
			}})
		}
		made, err := r.Create(t.Context(), o, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		owner = made
	}
	return c
}

// waitFor waits until objects of exactly these kinds are left.
func (c *chain) waitFor(kinds ...string) {
	c.t.Helper()
	e2e.Eventually(c.t, "left are: "+strings.Join(kinds, ", "), func() error {
		var got []string
		for i, r := range c.resources {
			if _, err := r.Get(c.t.Context(), "x", metav1.GetOptions{}); err == nil {
				got = append(got, chainKinds[i][1])
			}
		}
		if !slices.Equal(got, kinds) {
			return errNotYet
		}
		return nil
	})
}

// Objects are deleted with their owners on other servers: in the background, in the
// foreground, and not at all.
func TestGarbageCollectionAcrossServers(t *testing.T) {
	t.Parallel()
	up := e2e.SharedInstallation(t)
	widgets := e2e.Define(t, e2e.DynamicClient(t, up.Config(t)), "garbage.example.com")
	for policy, left := range map[metav1.DeletionPropagation][]string{
		metav1.DeletePropagationBackground: nil,
		metav1.DeletePropagationForeground: nil,
		metav1.DeletePropagationOrphan:     {"Widget", "Role"},
	} {
		t.Run(string(policy), func(t *testing.T) {
			t.Parallel()
			c := newChain(t, up, widgets)
			if err := c.resources[0].Delete(t.Context(), "x", metav1.DeleteOptions{PropagationPolicy: &policy}); err != nil {
				t.Fatal(err)
			}
			c.waitFor(left...)
			if left == nil {
				return
			}
			o, err := c.resources[1].Get(t.Context(), "x", metav1.GetOptions{})
			if err != nil || len(o.GetOwnerReferences()) > 0 {
				t.Errorf("the widget has owners %v, %v", o.GetOwnerReferences(), err)
			}
		})
	}
}
