package plugins

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"portico/resource"
	"portico/resource/rest"
)

// byNode makes a write one of the kubelet of node n1.
func byNode(a *rest.Attributes) {
	a.Action.User = &resource.User{Name: "system:node:n1", Groups: []string{"system:nodes"}}
}

// nodeWrite is a write of the kubelet of node n1 and what is wrong with it; "": nothing.
type nodeWrite struct {
	name     string
	now, old rest.Object
	sub      string
	err      string
}

// test has the plugin decide about writes.
func (w *world) test(writes ...nodeWrite) {
	w.t.Helper()
	plugin := w.only("NodeRestriction")
	for _, c := range writes {
		expect(w.t, c.name, admit(w.t, plugin, w.write(c.now, c.old, byNode, subresource(c.sub))), c.err)
	}
}

func nodeOfName(name string, change ...func(*corev1.Node)) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for _, f := range change {
		f(n)
	}
	return n
}

// The plugin concerns kubelets alone, and one without the name of a node may write nothing.
func TestNodeRestrictionUsers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	plugin := w.only("NodeRestriction")
	for want, users := range map[string][]*resource.User{
		"": {nil, {Name: "alice", Groups: []string{"system:nodes"}}, {Name: "system:node:n2"}},
		`could not determine node from user "system:node:"`: {{Name: "system:node:", Groups: []string{"system:nodes"}}},
		`node "n2" is not allowed to modify node "n1"`:      {{Name: "system:node:n2", Groups: []string{"other", "system:nodes"}}},
	} {
		for _, u := range users {
			a := w.write(nodeOfName("n1"), nil, func(a *rest.Attributes) { a.Action.User = u })
			expect(t, want, admit(t, plugin, a), want)
		}
	}
	a := w.write(nodeOfName("n1"), nil)
	a.Action = nil // of the server itself
	expect(t, "no request", admit(t, plugin, a), "")
	expect(t, "another kind", admit(t, plugin, w.write(configMap("m"), nil, byNode)), "")
}

// A node writes itself, but not what places pods on it.
func TestNodeRestrictionNodes(t *testing.T) {
	t.Parallel()
	source := func(name string) func(*corev1.Node) {
		return func(n *corev1.Node) {
			n.Spec.ConfigSource = &corev1.NodeConfigSource{ConfigMap: &corev1.ConfigMapNodeConfigSource{Name: name}}
		}
	}
	taint := func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: "k", Effect: corev1.TaintEffectNoSchedule}} }
	owner := func(n *corev1.Node) { n.OwnerReferences = []metav1.OwnerReference{{Kind: "Node", Name: "n1"}} }
	running := func(n *corev1.Node) { n.Status.Phase = corev1.NodeRunning }
	node := func(change ...func(*corev1.Node)) *corev1.Node { return nodeOfName("n1", change...) }
	newWorld(t).test([]nodeWrite{
		{name: "create", now: node(taint)},
		{name: "create another", now: nodeOfName("n2"), err: `node "n1" is not allowed to modify node "n2"`},
		{name: "create with a source", now: node(source("a")), err: "non-nil configSource"},
		{name: "same", now: node(taint, owner, source("a")), old: node(taint, owner, source("a"))},
		{name: "status", now: node(running), old: node(), sub: "status"},
		{name: "update another", now: nodeOfName("n2", running), old: nodeOfName("n2"), err: "not allowed to modify node"},
		{name: "status of another", now: nodeOfName("n2", running), old: nodeOfName("n2"), sub: "status", err: "not allowed to modify node"},
		{name: "new source", now: node(source("a")), old: node(), err: "to a new non-nil configSource"},
		{name: "another source", now: node(source("b")), old: node(source("a")), err: "to a new non-nil configSource"},
		{name: "no source", now: node(), old: node(source("a"))},
		{name: "taint", now: node(taint), old: node(), err: "modify taints"},
		{name: "no taint", now: node(), old: node(taint), err: "modify taints"},
		{name: "taint by status", now: node(taint), old: node(), sub: "status", err: "modify taints"},
		{name: "owner", now: node(owner), old: node(), err: "modify ownerReferences"},
		{name: "no owner", now: node(), old: node(owner), err: "modify ownerReferences"},
		{name: "delete", old: node()},
		{name: "delete another", old: nodeOfName("n2"), err: "not allowed to modify node"},
	}...)
}

// A node sets labels of its own, of the kubelet and those that Kubernetes leaves to it.
func TestNodeRestrictionLabels(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for label, allowed := range map[string]bool{
		"plain": true, "example.com/x": true, "notkubernetes.io/x": true, "kubernetes.io.example.com/x": true,
		"kubernetes.io/hostname": true, "kubernetes.io/os": true, "kubernetes.io/arch": true, "beta.kubernetes.io/os": true, "beta.kubernetes.io/arch": true,
		"topology.kubernetes.io/zone": true, "topology.kubernetes.io/region": true, "failure-domain.beta.kubernetes.io/zone": true,
		"failure-domain.beta.kubernetes.io/region": true, "node.kubernetes.io/instance-type": true, "beta.kubernetes.io/instance-type": true,
		"kubelet.kubernetes.io/x": true, "x.kubelet.kubernetes.io/y": true, "node.kubernetes.io/x": true, "x.node.kubernetes.io/y": true,
		"kubernetes.io/x": false, "k8s.io/x": false, "x.kubernetes.io/y": false, "x.k8s.io/y": false, "topology.kubernetes.io/rack": false,
		"node-restriction.kubernetes.io/x": false, "x.node-restriction.kubernetes.io/y": false, "node-role.kubernetes.io/control-plane": false,
		"notkubelet.kubernetes.io/x": false,
	} {
		with := func(value string) *corev1.Node {
			return nodeOfName("n1", func(n *corev1.Node) { n.Labels = map[string]string{label: value} })
		}
		create, update := "not allowed to set the following labels: "+label, "is not allowed to modify labels: "+label
		if allowed {
			create, update = "", ""
		}
		w.test([]nodeWrite{
			{name: label + " at creation", now: with("v"), err: create},
			{name: label + " added", now: with("v"), old: nodeOfName("n1"), err: update},
			{name: label + " empty", now: with(""), old: nodeOfName("n1"), err: update},
			{name: label + " changed", now: with("v"), old: with("w"), err: update},
			{name: label + " removed", now: nodeOfName("n1"), old: with("v"), err: update},
			{name: label + " by status", now: with("v"), old: nodeOfName("n1"), sub: "status", err: update},
			{name: label + " kept", now: with("v"), old: with("v")},
		}...)
	}
}

// Leases, CSINodes and slices belong to a node by name or by field.
func TestNodeRestrictionOwnObjects(t *testing.T) {
	t.Parallel()
	lease := func(namespace, name string) *coordinationv1.Lease {
		return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	}
	csi := func(name string) *storagev1.CSINode {
		return &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: name}}
	}
	slice := func(node *string) *resourcev1.ResourceSlice {
		return &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: "s"}, Spec: resourcev1.ResourceSliceSpec{NodeName: node}}
	}
	const own, space, only = "with the same name as the requesting node", `in the "kube-node-lease" system namespace`, "ResourceSlice with the same NodeName as the requesting node"
	newWorld(t).test([]nodeWrite{
		{name: "lease", now: lease("kube-node-lease", "n1")},
		{name: "renewed", now: lease("kube-node-lease", "n1"), old: lease("kube-node-lease", "n1")},
		{name: "deleted", old: lease("kube-node-lease", "n1")},
		{name: "lease of another", now: lease("kube-node-lease", "n2"), err: own},
		{name: "lease of another renewed", now: lease("kube-node-lease", "n2"), old: lease("kube-node-lease", "n2"), err: own},
		{name: "lease of another deleted", old: lease("kube-node-lease", "n2"), err: own},
		{name: "lease with a generated name", now: &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-node-lease", GenerateName: "n1"}}, err: own},
		{name: "lease elsewhere", now: lease("kube-system", "n1"), err: space},
		{name: "CSINode", now: csi("n1")},
		{name: "CSINode of another", now: csi("n2"), err: own},
		{name: "CSINode of another updated", now: csi("n2"), old: csi("n2"), err: own},
		{name: "CSINode of another deleted", old: csi("n2"), err: own},
		{name: "status of CSINode", now: csi("n1"), old: csi("n1"), sub: "status", err: "CSIVolumeHealth"},
		{name: "slice", now: slice(ptr.To("n1"))},
		{name: "slice of another", now: slice(ptr.To("n2")), err: "can only create " + only},
		{name: "slice of no node", now: slice(nil), err: "can only create " + only},
		{name: "slice deleted", old: slice(ptr.To("n1"))},
		{name: "slice of another deleted", old: slice(ptr.To("n2")), err: "can only delete " + only},
		{name: "slice of no node deleted", old: slice(nil), err: "can only delete " + only},
		{name: "slice updated", now: slice(ptr.To("n1")), old: slice(ptr.To("n1"))}, // nodeName is immutable, and node authorization knows the slice
	}...)
}

// Of a claim a node writes capacity, conditions and allocated resources.
func TestNodeRestrictionClaims(t *testing.T) {
	t.Parallel()
	const other = "is not allowed to update fields other than status.quantity and status.conditions"
	now := func(f func(*corev1.PersistentVolumeClaim)) rest.Object { return claim(f) }
	newWorld(t).test([]nodeWrite{
		{name: "capacity", sub: "status", old: claim(), now: now(func(c *corev1.PersistentVolumeClaim) { c.Status.Capacity = resources("storage", "1Gi") })},
		{name: "conditions", sub: "status", old: claim(), now: now(func(c *corev1.PersistentVolumeClaim) {
			c.Status.Conditions = []corev1.PersistentVolumeClaimCondition{{Type: "Resizing"}}
		})},
		{name: "allocated", sub: "status", old: claim(), now: now(func(c *corev1.PersistentVolumeClaim) {
			c.Status.AllocatedResources = resources("storage", "1Gi")
			c.Status.AllocatedResourceStatuses = map[corev1.ResourceName]corev1.ClaimResourceStatus{"storage": "x"}
		})},
		{name: "managed fields", sub: "status", old: claim(), now: now(func(c *corev1.PersistentVolumeClaim) {
			c.ResourceVersion, c.ManagedFields = "7", []metav1.ManagedFieldsEntry{{Manager: "kubelet"}}
		})},
		{name: "phase", sub: "status", old: claim(), now: now(func(c *corev1.PersistentVolumeClaim) { c.Status.Phase = corev1.ClaimLost }), err: other},
		{name: "labels", sub: "status", old: claim(), now: now(func(c *corev1.PersistentVolumeClaim) { c.Labels = map[string]string{"a": "b"} }), err: other},
		{name: "volume", sub: "status", old: claim(), now: now(func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeName = "v" }), err: other},
		{name: "the claim itself", old: claim(), now: claim(), err: "may only update PVC status"},
		{name: "create", now: claim(), err: "may only update PVC status"},
		{name: "delete", old: claim(), err: "may only update PVC status"},
	}...)
}

// A node asks for certificates of kubelets in its own name only.
func TestNodeRestrictionCertificates(t *testing.T) {
	t.Parallel()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	block := func(kind, name string) []byte {
		der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: name}}, key)
		if err != nil {
			t.Fatal(err)
		}
		return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
	}
	request := func(signer string, pem []byte) *certificatesv1.CertificateSigningRequest {
		return &certificatesv1.CertificateSigningRequest{
			ObjectMeta: metav1.ObjectMeta{Name: "r"}, Spec: certificatesv1.CertificateSigningRequestSpec{SignerName: signer, Request: pem},
		}
	}
	const kind = "CERTIFICATE REQUEST"
	var writes []nodeWrite
	for _, signer := range []string{certificatesv1.KubeletServingSignerName, certificatesv1.KubeAPIServerClientKubeletSignerName} {
		writes = append(writes, []nodeWrite{
			{name: "own", now: request(signer, block(kind, "system:node:n1"))},
			{name: "of another", now: request(signer, block(kind, "system:node:n2")), err: "can only create a node CSR with CN=system:node:n1"},
			{name: "of no node", now: request(signer, block(kind, "n1")), err: "can only create a node CSR"},
			{name: "no PEM", now: request(signer, []byte("x")), err: "unable to parse csr: PEM block type"},
			{name: "another block", now: request(signer, block("CERTIFICATE", "system:node:n1")), err: "unable to parse csr: PEM block type"},
			{name: "no request", now: request(signer, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: []byte("x")})), err: "unable to parse csr: "},
			{name: "updated", now: request(signer, nil), old: request(signer, nil)},
			{name: "approved", now: request(signer, nil), old: request(signer, nil), sub: "approval"},
		}...)
	}
	newWorld(t).test(append(writes, nodeWrite{name: "another signer", now: request("example.com/s", []byte("x"))})...)
}
