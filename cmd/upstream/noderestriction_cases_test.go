package upstream

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"slices"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/utils/ptr"

	porticorest "portico/resource/rest"
)

// change is a named change of an object.
type change[T any] struct {
	name string
	do   func(T)
}

// variants calls f with an object without a change, with each change, and with each two.
func variants[T porticorest.Object](base func() T, changes []change[T], f func(name string, obj T)) {
	f("none", base())
	for i, one := range changes {
		obj := base()
		one.do(obj)
		f(one.name, obj)
		for _, two := range changes[i+1:] {
			obj := base()
			one.do(obj)
			two.do(obj)
			f(one.name+" and "+two.name, obj)
		}
	}
}

func objectNamed(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name}
}

// restrictedObjects are what the plugin reads. Names of pods say what is special about them.
func restrictedObjects() []porticorest.Object {
	account := func(name string) *corev1.ServiceAccount {
		return &corev1.ServiceAccount{ObjectMeta: objectNamed("ns", name)}
	}
	claim := func(name, volume string) *corev1.PersistentVolumeClaim {
		return &corev1.PersistentVolumeClaim{ObjectMeta: objectNamed("ns", name), Spec: corev1.PersistentVolumeClaimSpec{VolumeName: volume}}
	}
	pod := func(name, node string, volumes ...corev1.VolumeSource) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: objectNamed("ns", name), Spec: corev1.PodSpec{NodeName: node, ServiceAccountName: "sa", Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
		for i, v := range volumes {
			p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: fmt.Sprintf("v%d", i), VolumeSource: v})
		}
		return p
	}
	projected := func(p corev1.VolumeProjection) corev1.VolumeSource {
		return corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{p}}}
	}
	of := func(claim string) corev1.VolumeSource {
		return corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}
	}
	inline := func(driver string) corev1.VolumeSource {
		return corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: driver}}
	}
	token := func(audience string) corev1.VolumeSource {
		return projected(corev1.VolumeProjection{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Audience: audience, Path: "p"}})
	}
	certificate := projected(corev1.VolumeProjection{PodCertificate: &corev1.PodCertificateProjection{SignerName: "example.com/mounted", KeyType: "ED25519"}})
	mirror := pod("mirror", "n1", certificate)
	mirror.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"}
	second, gone := pod("second", "n1", certificate), pod("gone", "n1", certificate)
	second.Spec.ServiceAccountName, gone.Spec.ServiceAccountName = "second", "gone"
	ephemeral := corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{}}}
	return []porticorest.Object{
		&corev1.Node{ObjectMeta: objectNamed("", "n1")}, &corev1.Node{ObjectMeta: objectNamed("", "n2")}, account("sa"), account("second"),
		&storagev1.CSIDriver{ObjectMeta: objectNamed("", "d"), Spec: storagev1.CSIDriverSpec{TokenRequests: []storagev1.TokenRequest{{Audience: "of-driver"}, {Audience: "two"}}}},
		&storagev1.CSIDriver{ObjectMeta: objectNamed("", "tokenless")},
		&corev1.PersistentVolume{ObjectMeta: objectNamed("", "pv"), Spec: corev1.PersistentVolumeSpec{PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "d", VolumeHandle: "h"}}}},
		&corev1.PersistentVolume{ObjectMeta: objectNamed("", "nfs"), Spec: corev1.PersistentVolumeSpec{PersistentVolumeSource: corev1.PersistentVolumeSource{NFS: &corev1.NFSVolumeSource{Server: "s", Path: "/"}}}},
		claim("bound", "pv"), claim("own-v0", "pv"), claim("of-nfs", "nfs"), claim("pending", ""), claim("lost", "none"),
		pod("bare", "n1"), pod("elsewhere", "n2", token("of-volume"), certificate), pod("nowhere", "", certificate), mirror, second, gone,
		pod("token", "n1", token("of-volume")), pod("default", "n1", token("")), pod("certificate", "n1", certificate),
		pod("inline", "n1", inline("d")), pod("tokenless", "n1", inline("tokenless")), pod("unknown", "n1", inline("none")), pod("unknown-first", "n1", inline("none"), token("of-volume")),
		pod("claimed", "n1", of("bound")), pod("of-nfs", "n1", of("of-nfs")), pod("pending", "n1", of("pending")), pod("lost", "n1", of("lost")), pod("unclaimed", "n1", of("none")),
		pod("several", "n1", of("pending"), of("none"), inline("none"), of("bound")), pod("own", "n1", ephemeral), pod("others", "n1", ephemeral),
	}
}

// TestNodesAreRestrictedAsByKubeAPIServer has the plugins NodeRestriction of both servers decide about writes of every
// kind that it limits, made of all combinations of what it looks at. They refuse the same writes, with the same
// messages, except that Portico leaves out the Go diff after the message about the status of a claim, and answers
// 403, not 500, to a request for the certificate of a pod with other UIDs. TestMigratedVolumes has volumes of types that CSI drivers have replaced.
func TestNodesAreRestrictedAsByKubeAPIServer(t *testing.T) {
	objects := restrictedObjects()
	r := newRestrictions(t, objects)
	uids := map[string]types.UID{}
	for _, obj := range objects {
		uids[fmt.Sprintf("%T %s", obj, obj.GetName())] = obj.GetUID()
	}
	restrictUsers(t, r)
	restrictNodes(t, r)
	restrictOwnObjects(t, r)
	restrictClaims(t, r)
	restrictPods(t, r)
	restrictMirrorPods(t, r, uids)
	restrictTokens(t, r, uids)
	restrictSigning(t, r)
	restrictPodCertificates(t, r, uids)
	t.Logf("%d writes, %d refused", r.cases, r.refused)
}

func core(name string) schema.GroupResource { return schema.GroupResource{Resource: name} }

func restrictUsers(t *testing.T, r *restrictions) {
	for _, u := range []*user.DefaultInfo{
		{Name: "alice", Groups: []string{user.NodesGroup}}, {Name: "system:node:n2"}, {Name: "system:node:", Groups: []string{user.NodesGroup}},
		{Name: "system:node:n2", Groups: []string{user.NodesGroup}}, {Name: "system:node:n1:x", Groups: []string{user.NodesGroup}}, {Name: "system:nodes:n1", Groups: []string{user.NodesGroup}},
	} {
		node, pod := &corev1.Node{ObjectMeta: objectNamed("", "n1")}, &corev1.Pod{ObjectMeta: objectNamed("ns", "p")}
		r.compare(t, nodeWrite{name: u.Name, resource: core("nodes"), now: node, user: u})
		r.compare(t, nodeWrite{name: u.Name, resource: core("nodes"), now: node, old: node, user: u})
		r.compare(t, nodeWrite{name: u.Name, resource: core("pods"), now: pod, user: u})
		r.compare(t, nodeWrite{name: u.Name, resource: core("configmaps"), now: &corev1.ConfigMap{ObjectMeta: objectNamed("ns", "m")}, user: u})
	}
	for _, name := range []string{"configmaps", "secrets", "services"} {
		obj := map[string]porticorest.Object{"configmaps": &corev1.ConfigMap{}, "secrets": &corev1.Secret{}, "services": &corev1.Service{}}[name]
		obj.SetNamespace("ns")
		obj.SetName("x")
		r.compare(t, nodeWrite{name: "another kind", resource: core(name), now: obj})
		r.compare(t, nodeWrite{name: "another kind", resource: core(name), old: obj})
	}
}

// nodeLabels are labels of every kind that the plugin tells apart.
var nodeLabels = strings.Fields(`plain example.com/x notkubernetes.io/x kubernetes.io.example.com/x kubernetes.io/x k8s.io/x x.kubernetes.io/y x.k8s.io/y xk8s.io/y
	kubernetes.io/hostname kubernetes.io/os kubernetes.io/arch beta.kubernetes.io/os beta.kubernetes.io/arch beta.kubernetes.io/instance-type node.kubernetes.io/instance-type
	topology.kubernetes.io/zone topology.kubernetes.io/region topology.kubernetes.io/rack failure-domain.beta.kubernetes.io/zone failure-domain.beta.kubernetes.io/region
	failure-domain.beta.kubernetes.io/rack failure-domain.kubernetes.io/zone kubelet.kubernetes.io/x x.kubelet.kubernetes.io/y notkubelet.kubernetes.io/x node.kubernetes.io/x
	x.node.kubernetes.io/y xnode.kubernetes.io/y node-role.kubernetes.io/control-plane node-restriction.kubernetes.io/x x.node-restriction.kubernetes.io/y
	xnode-restriction.kubernetes.io/y node.k8s.io/x kubelet.k8s.io/x csi.volume.kubernetes.io/nodeid feature.node.kubernetes.io/cpu`)

func restrictNodes(t *testing.T, r *restrictions) {
	changes := []change[*corev1.Node]{
		{"source", func(n *corev1.Node) {
			//lint:ignore SA1019 clients may send the deprecated field
			n.Spec.ConfigSource = &corev1.NodeConfigSource{ConfigMap: &corev1.ConfigMapNodeConfigSource{Namespace: "ns", Name: "a", UID: "u", KubeletConfigKey: "k"}}
		}},
		{"another source", func(n *corev1.Node) {
			//lint:ignore SA1019 clients may send the deprecated field
			n.Spec.ConfigSource = &corev1.NodeConfigSource{ConfigMap: &corev1.ConfigMapNodeConfigSource{Namespace: "ns", Name: "b", UID: "u", KubeletConfigKey: "k"}}
		}},
		{"taint", func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: "k", Effect: corev1.TaintEffectNoSchedule}} }},
		{"no taints", func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{} }},
		{"owner", func(n *corev1.Node) {
			n.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "n1"}}
		}},
		{"label", func(n *corev1.Node) { n.Labels = map[string]string{"kubernetes.io/x": "v"} }},
		{"labels", func(n *corev1.Node) { n.Labels = map[string]string{"z.k8s.io/b": "", "kubernetes.io/a": "v", "ok": ""} }},
		{"own label", func(n *corev1.Node) { n.Labels = map[string]string{"kubernetes.io/hostname": "n1"} }},
		{"status", func(n *corev1.Node) { n.Status.Phase = corev1.NodeRunning }},
		{"unschedulable", func(n *corev1.Node) { n.Spec.Unschedulable = true }},
		{"annotation", func(n *corev1.Node) { n.Annotations = map[string]string{"kubernetes.io/x": "v"} }},
	}
	for _, name := range []string{"n1", "n2"} {
		base := func() *corev1.Node { return &corev1.Node{ObjectMeta: objectNamed("", name)} }
		r.compare(t, nodeWrite{name: "delete", resource: core("nodes"), old: base()})
		variants(base, changes, func(now string, obj *corev1.Node) {
			r.compare(t, nodeWrite{name: now, resource: core("nodes"), now: obj})
			variants(base, changes, func(before string, old *corev1.Node) {
				for _, sub := range []string{"", "status"} {
					r.compare(t, nodeWrite{name: before + " to " + now, resource: core("nodes"), sub: sub, now: obj, old: old})
				}
			})
		})
	}
	with := func(label, value string) *corev1.Node {
		n := &corev1.Node{ObjectMeta: objectNamed("", "n1")}
		if label != "" {
			n.Labels = map[string]string{label: value}
		}
		return n
	}
	for _, label := range nodeLabels {
		r.compare(t, nodeWrite{name: label, resource: core("nodes"), now: with(label, "v")})
		for _, pair := range [][2]*corev1.Node{{with("", ""), with(label, "")}, {with(label, "v"), with(label, "w")}, {with(label, "v"), with("", "")}, {with(label, "v"), with(label, "v")}, {with(label, "v"), with("kubernetes.io/z", "v")}} {
			r.compare(t, nodeWrite{name: label, resource: core("nodes"), now: pair[1], old: pair[0]})
		}
	}
}

func restrictOwnObjects(t *testing.T, r *restrictions) {
	each := func(name string, res schema.GroupResource, obj func() porticorest.Object, subs ...string) {
		r.compare(t, nodeWrite{name: name, resource: res, now: obj()})
		r.compare(t, nodeWrite{name: name, resource: res, old: obj()})
		for _, sub := range append(subs, "") {
			r.compare(t, nodeWrite{name: name, resource: res, sub: sub, now: obj(), old: obj()})
		}
	}
	for _, namespace := range []string{"kube-node-lease", "kube-system", "ns"} {
		for _, name := range []string{"n1", "n2", "n1x", ""} {
			lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, GenerateName: "n1"}}
			each(namespace+"/"+name, schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}, func() porticorest.Object { return lease })
		}
	}
	for _, name := range []string{"n1", "n2", ""} {
		node := &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: name, GenerateName: "n1"}}
		each(name, schema.GroupResource{Group: "storage.k8s.io", Resource: "csinodes"}, func() porticorest.Object { return node }, "status")
	}
	for _, node := range []*string{nil, ptr.To(""), ptr.To("n1"), ptr.To("n2")} {
		slice := &resourcev1.ResourceSlice{ObjectMeta: objectNamed("", "s"), Spec: resourcev1.ResourceSliceSpec{NodeName: node}}
		each("slice", schema.GroupResource{Group: "resource.k8s.io", Resource: "resourceslices"}, func() porticorest.Object { return slice })
	}
}

func restrictClaims(t *testing.T, r *restrictions) {
	quantity := corev1.ResourceList{corev1.ResourceStorage: apiresource.MustParse("1Gi")}
	base := func() *corev1.PersistentVolumeClaim {
		return &corev1.PersistentVolumeClaim{ObjectMeta: objectNamed("ns", "c")}
	}
	changes := []change[*corev1.PersistentVolumeClaim]{
		{"capacity", func(c *corev1.PersistentVolumeClaim) { c.Status.Capacity = quantity }},
		{"conditions", func(c *corev1.PersistentVolumeClaim) {
			c.Status.Conditions = []corev1.PersistentVolumeClaimCondition{{Type: "Resizing"}}
		}},
		{"allocated", func(c *corev1.PersistentVolumeClaim) { c.Status.AllocatedResources = quantity }},
		{"allocation", func(c *corev1.PersistentVolumeClaim) {
			c.Status.AllocatedResourceStatuses = map[corev1.ResourceName]corev1.ClaimResourceStatus{"storage": corev1.PersistentVolumeClaimNodeResizePending}
		}},
		{"managed fields", func(c *corev1.PersistentVolumeClaim) {
			c.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubelet"}}
		}},
		{"version", func(c *corev1.PersistentVolumeClaim) { c.ResourceVersion = "7" }},
		{"phase", func(c *corev1.PersistentVolumeClaim) { c.Status.Phase = corev1.ClaimLost }},
		{"modes", func(c *corev1.PersistentVolumeClaim) {
			c.Status.AccessModes = []corev1.PersistentVolumeAccessMode{"ReadWriteOnce"}
		}},
		{"class", func(c *corev1.PersistentVolumeClaim) { c.Status.CurrentVolumeAttributesClassName = ptr.To("x") }},
		{"modification", func(c *corev1.PersistentVolumeClaim) {
			c.Status.ModifyVolumeStatus = &corev1.ModifyVolumeStatus{TargetVolumeAttributesClassName: "x", Status: "Pending"}
		}},
		{"label", func(c *corev1.PersistentVolumeClaim) { c.Labels = map[string]string{"a": "b"} }},
		{"annotation", func(c *corev1.PersistentVolumeClaim) { c.Annotations = map[string]string{"a": "b"} }},
		{"finalizer", func(c *corev1.PersistentVolumeClaim) { c.Finalizers = []string{"example.com/f"} }},
		{"owner", func(c *corev1.PersistentVolumeClaim) { c.OwnerReferences = []metav1.OwnerReference{{Name: "o"}} }},
		{"volume", func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeName = "v" }},
		{"request", func(c *corev1.PersistentVolumeClaim) { c.Spec.Resources.Requests = quantity }},
	}
	res := core("persistentvolumeclaims")
	r.compare(t, nodeWrite{name: "create", resource: res, now: base()})
	r.compare(t, nodeWrite{name: "delete", resource: res, old: base()})
	variants(base, changes, func(name string, c *corev1.PersistentVolumeClaim) {
		r.compare(t, nodeWrite{name: name, resource: res, now: c, old: base()})
		r.compare(t, nodeWrite{name: name, resource: res, sub: "status", now: c, old: base()})
		r.compare(t, nodeWrite{name: "back from " + name, resource: res, sub: "status", now: base(), old: c})
	})
}

func restrictPods(t *testing.T, r *restrictions) {
	changes := []change[*corev1.Pod]{
		{"phase", func(p *corev1.Pod) { p.Status.Phase = corev1.PodRunning }},
		{"labels", func(p *corev1.Pod) { p.Labels = map[string]string{"a": "b"} }},
		{"empty labels", func(p *corev1.Pod) { p.Labels = map[string]string{} }},
		{"annotations", func(p *corev1.Pod) { p.Annotations = map[string]string{"a": "b"} }},
		{"claims", func(p *corev1.Pod) {
			p.Status.ResourceClaimStatuses = []corev1.PodResourceClaimStatus{{Name: "r", ResourceClaimName: ptr.To("x")}}
		}},
		{"claims without a name", func(p *corev1.Pod) { p.Status.ResourceClaimStatuses = []corev1.PodResourceClaimStatus{{Name: "r"}} }},
		{"no claims", func(p *corev1.Pod) { p.Status.ResourceClaimStatuses = []corev1.PodResourceClaimStatus{} }},
		{"extended claim", func(p *corev1.Pod) {
			p.Status.ExtendedResourceClaimStatus = &corev1.PodExtendedResourceClaimStatus{ResourceClaimName: "x"}
		}},
		{"extended claim with requests", func(p *corev1.Pod) {
			p.Status.ExtendedResourceClaimStatus = &corev1.PodExtendedResourceClaimStatus{ResourceClaimName: "x", RequestMappings: []corev1.ContainerExtendedResourceRequest{{ContainerName: "c", ResourceName: "r", RequestName: "q"}}}
		}},
		{"allocatable claim", func(p *corev1.Pod) {
			p.Status.NodeAllocatableResourceClaimStatuses = []corev1.NodeAllocatableResourceClaimStatus{{ResourceClaimName: "x", Containers: []string{"c"}}}
		}},
		{"allocatable claim of another", func(p *corev1.Pod) {
			p.Status.NodeAllocatableResourceClaimStatuses = []corev1.NodeAllocatableResourceClaimStatus{{ResourceClaimName: "x", Containers: []string{"d"}}}
		}},
	}
	for _, node := range []string{"n1", "n2", ""} {
		base := func() *corev1.Pod {
			return &corev1.Pod{ObjectMeta: objectNamed("ns", map[string]string{"n1": "bare", "n2": "elsewhere", "": "nowhere"}[node]), Spec: corev1.PodSpec{NodeName: node}}
		}
		pod := base()
		r.compare(t, nodeWrite{name: "delete " + node, resource: core("pods"), old: pod})
		r.compare(t, nodeWrite{name: "update " + node, resource: core("pods"), now: pod, old: pod})
		r.compare(t, nodeWrite{name: "evict " + node, resource: core("pods"), sub: "eviction", now: &policyv1.Eviction{ObjectMeta: pod.ObjectMeta}})
		for _, sub := range []string{"ephemeralcontainers", "resize"} {
			r.compare(t, nodeWrite{name: sub, resource: core("pods"), sub: sub, now: pod, old: pod})
		}
		r.compare(t, nodeWrite{name: "bind " + node, resource: core("pods"), sub: "binding", now: &corev1.Binding{ObjectMeta: pod.ObjectMeta, Target: corev1.ObjectReference{Name: "n1"}}})
		variants(base, changes, func(before string, old *corev1.Pod) {
			variants(base, changes, func(after string, now *corev1.Pod) {
				r.compare(t, nodeWrite{name: before + " to " + after, resource: core("pods"), sub: "status", now: now, old: old})
			})
		})
	}
	r.compare(t, nodeWrite{name: "evict one that is gone", resource: core("pods"), sub: "eviction", now: &policyv1.Eviction{ObjectMeta: objectNamed("ns", "none")}})
}

// references are changes that make a pod refer to other objects, or to none.
func references() (out []change[*corev1.Pod]) {
	named := corev1.LocalObjectReference{Name: "x"}
	add := func(name string, do func(*corev1.Pod)) { out = append(out, change[*corev1.Pod]{name, do}) }
	add("none", func(*corev1.Pod) {})
	add("account", func(p *corev1.Pod) { p.Spec.ServiceAccountName = "sa" })
	add("pull secret", func(p *corev1.Pod) { p.Spec.ImagePullSecrets = []corev1.LocalObjectReference{named} })
	add("pull secret without a name", func(p *corev1.Pod) { p.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{}} })
	add("environment of a secret", func(p *corev1.Pod) {
		p.Spec.InitContainers = []corev1.Container{{Name: "i", EnvFrom: []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: named}}}}}
	})
	add("variable of a config map", func(p *corev1.Pod) {
		p.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "A", ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: named, Key: "k"}}}}
	})
	add("variable of an ephemeral container", func(p *corev1.Pod) {
		p.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "e",
			Env: []corev1.EnvVar{{Name: "A", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: named, Key: "k"}}}}}}}
	})
	add("device", func(p *corev1.Pod) {
		p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "r", ResourceClaimName: ptr.To("x")}}
	})
	for name, source := range map[string]corev1.VolumeSource{
		"unknown": {}, "hostPath": {HostPath: &corev1.HostPathVolumeSource{Path: "/"}}, "emptyDir": {EmptyDir: &corev1.EmptyDirVolumeSource{}},
		"downwardAPI": {DownwardAPI: &corev1.DownwardAPIVolumeSource{}}, "secret": {Secret: &corev1.SecretVolumeSource{SecretName: "x"}}, "secret without a name": {Secret: &corev1.SecretVolumeSource{}},
		"configMap": {ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: named}}, "configMap without a name": {ConfigMap: &corev1.ConfigMapVolumeSource{}},
		"claim": {PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "x"}}, "ephemeral": {Ephemeral: &corev1.EphemeralVolumeSource{}},
		"csi": {CSI: &corev1.CSIVolumeSource{Driver: "d"}}, "csi with a secret": {CSI: &corev1.CSIVolumeSource{Driver: "d", NodePublishSecretRef: &named}},
		"glusterfs": {Glusterfs: &corev1.GlusterfsVolumeSource{}}, "azureFile": {AzureFile: &corev1.AzureFileVolumeSource{SecretName: "x"}}, "azureFile without a name": {AzureFile: &corev1.AzureFileVolumeSource{}},
		"azureDisk": {AzureDisk: &corev1.AzureDiskVolumeSource{}}, "awsElasticBlockStore": {AWSElasticBlockStore: &corev1.AWSElasticBlockStoreVolumeSource{}},
		"cephfs": {CephFS: &corev1.CephFSVolumeSource{}}, "cephfs with a secret": {CephFS: &corev1.CephFSVolumeSource{SecretRef: &named}},
		"cinder": {Cinder: &corev1.CinderVolumeSource{}}, "cinder with a secret": {Cinder: &corev1.CinderVolumeSource{SecretRef: &named}},
		"fc": {FC: &corev1.FCVolumeSource{}}, "flexVolume": {FlexVolume: &corev1.FlexVolumeSource{}}, "flexVolume with a secret": {FlexVolume: &corev1.FlexVolumeSource{SecretRef: &named}},
		"flocker": {Flocker: &corev1.FlockerVolumeSource{}}, "gcePersistentDisk": {GCEPersistentDisk: &corev1.GCEPersistentDiskVolumeSource{}}, "gitRepo": {GitRepo: &corev1.GitRepoVolumeSource{}},
		"image": {Image: &corev1.ImageVolumeSource{}}, "iscsi": {ISCSI: &corev1.ISCSIVolumeSource{}}, "iscsi with a secret": {ISCSI: &corev1.ISCSIVolumeSource{SecretRef: &named}},
		"nfs": {NFS: &corev1.NFSVolumeSource{}}, "photon": {PhotonPersistentDisk: &corev1.PhotonPersistentDiskVolumeSource{}}, "portworx": {PortworxVolume: &corev1.PortworxVolumeSource{}},
		"quobyte": {Quobyte: &corev1.QuobyteVolumeSource{}}, "rbd": {RBD: &corev1.RBDVolumeSource{}}, "rbd with a secret": {RBD: &corev1.RBDVolumeSource{SecretRef: &named}},
		"scaleIO": {ScaleIO: &corev1.ScaleIOVolumeSource{}}, "scaleIO with a secret": {ScaleIO: &corev1.ScaleIOVolumeSource{SecretRef: &named}},
		"storageos": {StorageOS: &corev1.StorageOSVolumeSource{}}, "storageos with a secret": {StorageOS: &corev1.StorageOSVolumeSource{SecretRef: &named}},
		"vsphere": {VsphereVolume: &corev1.VsphereVirtualDiskVolumeSource{}}, "projected": {Projected: &corev1.ProjectedVolumeSource{}},
	} {
		add(name, func(p *corev1.Pod) {
			p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "v", VolumeSource: source})
		})
	}
	for name, source := range map[string]corev1.VolumeProjection{
		"unknown": {}, "downwardAPI": {DownwardAPI: &corev1.DownwardAPIProjection{}}, "token": {ServiceAccountToken: &corev1.ServiceAccountTokenProjection{}},
		"secret": {Secret: &corev1.SecretProjection{LocalObjectReference: named}}, "secret without a name": {Secret: &corev1.SecretProjection{}},
		"configMap": {ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: named}}, "configMap without a name": {ConfigMap: &corev1.ConfigMapProjection{}},
		"trust bundle": {ClusterTrustBundle: &corev1.ClusterTrustBundleProjection{}}, "certificate": {PodCertificate: &corev1.PodCertificateProjection{}},
	} {
		add("projected "+name, func(p *corev1.Pod) {
			sources := []corev1.VolumeProjection{{DownwardAPI: &corev1.DownwardAPIProjection{}}, source}
			p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "w", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: sources}}})
		})
	}
	slices.SortFunc(out, func(a, b change[*corev1.Pod]) int { return strings.Compare(a.name, b.name) })
	return out
}

func restrictMirrorPods(t *testing.T, r *restrictions, uids map[string]types.UID) {
	owner := func(change func(*metav1.OwnerReference)) []metav1.OwnerReference {
		o := metav1.OwnerReference{APIVersion: "v1", Kind: "Node", Name: "n1", UID: uids["*v1.Node n1"], Controller: ptr.To(true)}
		if change != nil {
			change(&o)
		}
		return []metav1.OwnerReference{o}
	}
	owners := map[string][]metav1.OwnerReference{
		"none": nil, "own": owner(nil), "two": append(owner(nil), owner(nil)...), "version": owner(func(o *metav1.OwnerReference) { o.APIVersion = "v2" }),
		"kind": owner(func(o *metav1.OwnerReference) { o.Kind = "Pod" }), "name": owner(func(o *metav1.OwnerReference) { o.Name = "n2" }),
		"uid": owner(func(o *metav1.OwnerReference) { o.UID = "u" }), "no uid": owner(func(o *metav1.OwnerReference) { o.UID = "" }),
		"no controller": owner(func(o *metav1.OwnerReference) { o.Controller = nil }), "not the controller": owner(func(o *metav1.OwnerReference) { o.Controller = ptr.To(false) }),
		"blocks": owner(func(o *metav1.OwnerReference) { o.BlockOwnerDeletion = ptr.To(true) }), "blocks not": owner(func(o *metav1.OwnerReference) { o.BlockOwnerDeletion = ptr.To(false) }),
	}
	base := func() *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: objectNamed("ns", "new"), Spec: corev1.PodSpec{NodeName: "n1", Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
		p.Annotations, p.OwnerReferences = map[string]string{corev1.MirrorPodAnnotationKey: "x"}, owners["own"]
		return p
	}
	variants(base, references(), func(name string, p *corev1.Pod) {
		r.compare(t, nodeWrite{name: "mirror with " + name, resource: core("pods"), now: p})
	})
	for _, annotations := range []map[string]string{nil, {corev1.MirrorPodAnnotationKey: ""}, {"kubernetes.io/config.source": "file"}} {
		for _, node := range []string{"n1", "n2", ""} {
			for name, of := range owners {
				for _, reference := range references()[:3] {
					p := base()
					p.Annotations, p.Spec.NodeName, p.OwnerReferences = annotations, node, of
					reference.do(p)
					r.compare(t, nodeWrite{name: fmt.Sprintf("%v on %q of %s with %s", annotations, node, name, reference.name), resource: core("pods"), now: p})
				}
			}
		}
	}
	p := base()
	p.Spec.NodeName, p.OwnerReferences = "n3", owner(func(o *metav1.OwnerReference) { o.Name = "n3" })
	r.compare(t, nodeWrite{name: "a node that does not exist", resource: core("pods"), now: p, user: &user.DefaultInfo{Name: "system:node:n3", Groups: []string{user.NodesGroup}}})
	p.Name, p.GenerateName = "", "new-"
	r.compare(t, nodeWrite{name: "a generated name", resource: core("pods"), now: p})
}

func restrictTokens(t *testing.T, r *restrictions, uids map[string]types.UID) {
	ask := func(name, account string, request *authenticationv1.TokenRequest) {
		request.ObjectMeta = objectNamed("ns", account)
		r.compare(t, nodeWrite{name: name, resource: core("serviceaccounts"), sub: "token", now: request})
	}
	bound := func(pod string, audiences ...string) *authenticationv1.TokenRequest {
		return &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: audiences,
			BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod, UID: uids["*v1.Pod "+pod]}}}
	}
	for _, obj := range restrictedObjects() {
		pod, ok := obj.(*corev1.Pod)
		if !ok {
			continue
		}
		for _, account := range []string{"sa", "second"} {
			for _, audiences := range [][]string{nil, {""}, {"of-volume"}, {"of-driver"}, {"two"}, {"granted"}, {"vault"}, {"of-volume", "of-driver"}} {
				ask(fmt.Sprintf("%s for %q of %s", pod.Name, audiences, account), account, bound(pod.Name, audiences...))
			}
		}
	}
	for name, change := range map[string]func(*authenticationv1.BoundObjectReference){
		"kind": func(o *authenticationv1.BoundObjectReference) { o.Kind = "Secret" }, "version": func(o *authenticationv1.BoundObjectReference) { o.APIVersion = "v2" },
		"no name": func(o *authenticationv1.BoundObjectReference) { o.Name = "" }, "no uid": func(o *authenticationv1.BoundObjectReference) { o.UID = "" },
		"uid": func(o *authenticationv1.BoundObjectReference) { o.UID = "u" }, "none": func(o *authenticationv1.BoundObjectReference) { o.Name, o.UID = "none", "u" },
		"node": func(o *authenticationv1.BoundObjectReference) {
			o.Kind, o.Name, o.UID = "Node", "n1", uids["*v1.Node n1"]
		},
	} {
		request := bound("default")
		change(request.Spec.BoundObjectRef)
		ask(name, "sa", request)
	}
	ask("not bound", "sa", &authenticationv1.TokenRequest{})
	account := &corev1.ServiceAccount{ObjectMeta: objectNamed("ns", "sa")}
	r.compare(t, nodeWrite{name: "account", resource: core("serviceaccounts"), now: account})
	r.compare(t, nodeWrite{name: "account", resource: core("serviceaccounts"), now: account, old: account})
	r.compare(t, nodeWrite{name: "account", resource: core("serviceaccounts"), old: account})
}

func restrictSigning(t *testing.T, r *restrictions) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	var texts [][]byte
	for _, name := range []string{"system:node:n1", "system:node:n2", "system:node:", "n1", "system:node:n1 "} {
		der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: name, Organization: []string{"system:nodes"}}}, key)
		if err != nil {
			t.Fatal(err)
		}
		for _, kind := range []string{"CERTIFICATE REQUEST", "CERTIFICATE", "NEW CERTIFICATE REQUEST"} {
			texts = append(texts, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der[:len(der)-1]}))
		}
	}
	texts = append(texts, nil, []byte("x"), append([]byte("x\n"), texts[0]...), append(slices.Clone(texts[0]), texts[0]...))
	res := schema.GroupResource{Group: "certificates.k8s.io", Resource: "certificatesigningrequests"}
	for i, text := range texts {
		for _, signer := range []string{certificatesv1.KubeletServingSignerName, certificatesv1.KubeAPIServerClientKubeletSignerName, certificatesv1.KubeAPIServerClientSignerName, "example.com/s", ""} {
			request := &certificatesv1.CertificateSigningRequest{ObjectMeta: objectNamed("", "r"), Spec: certificatesv1.CertificateSigningRequestSpec{SignerName: signer, Request: text}}
			name := fmt.Sprintf("%d by %s", i, signer)
			r.compare(t, nodeWrite{name: name, resource: res, now: request})
			r.compare(t, nodeWrite{name: name, resource: res, old: request})
			for _, sub := range []string{"", "status", "approval"} {
				r.compare(t, nodeWrite{name: name, resource: res, sub: sub, now: request, old: request})
			}
		}
	}
}

func restrictPodCertificates(t *testing.T, r *restrictions, uids map[string]types.UID) {
	res := schema.GroupResource{Group: "certificates.k8s.io", Resource: "podcertificaterequests"}
	for _, pod := range []string{"certificate", "bare", "elsewhere", "nowhere", "mirror", "second", "gone", "none"} {
		base := func() *certificatesv1.PodCertificateRequest {
			return &certificatesv1.PodCertificateRequest{ObjectMeta: objectNamed("ns", "r"), Spec: certificatesv1.PodCertificateRequestSpec{
				SignerName: "example.com/mounted", PodName: pod, PodUID: uids["*v1.Pod "+pod], ServiceAccountName: "sa", ServiceAccountUID: uids["*v1.ServiceAccount sa"],
				NodeName: "n1", NodeUID: uids["*v1.Node n1"],
			}}
		}
		variants(base, []change[*certificatesv1.PodCertificateRequest]{
			{"granted signer", func(p *certificatesv1.PodCertificateRequest) { p.Spec.SignerName = "example.com/granted" }},
			{"another signer", func(p *certificatesv1.PodCertificateRequest) { p.Spec.SignerName = "example.com/other" }},
			{"node", func(p *certificatesv1.PodCertificateRequest) {
				p.Spec.NodeName, p.Spec.NodeUID = "n2", uids["*v1.Node n2"]
			}},
			{"uid of the node", func(p *certificatesv1.PodCertificateRequest) { p.Spec.NodeUID = "u" }},
			{"uid of the pod", func(p *certificatesv1.PodCertificateRequest) { p.Spec.PodUID = "u" }},
			{"account", func(p *certificatesv1.PodCertificateRequest) {
				p.Spec.ServiceAccountName, p.Spec.ServiceAccountUID = "second", uids["*v1.ServiceAccount second"]
			}},
			{"account that is gone", func(p *certificatesv1.PodCertificateRequest) { p.Spec.ServiceAccountName = "gone" }},
			{"uid of the account", func(p *certificatesv1.PodCertificateRequest) { p.Spec.ServiceAccountUID = "u" }},
		}, func(name string, request *certificatesv1.PodCertificateRequest) {
			r.compare(t, nodeWrite{name: pod + " " + name, resource: res, now: request})
		})
		for _, sub := range []string{"", "status"} {
			r.compare(t, nodeWrite{name: pod + " update", resource: res, sub: sub, now: base(), old: base()})
		}
		r.compare(t, nodeWrite{name: pod + " delete", resource: res, old: base()})
	}
	missing := &certificatesv1.PodCertificateRequest{ObjectMeta: objectNamed("ns", "r"), Spec: certificatesv1.PodCertificateRequestSpec{NodeName: "n3"}}
	r.compare(t, nodeWrite{name: "a node that does not exist", resource: res, now: missing, user: &user.DefaultInfo{Name: "system:node:n3", Groups: []string{user.NodesGroup}}})
}

// A node may request tokens for the audiences of the CSI driver that has replaced the type of a volume.
func TestMigratedVolumes(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: objectNamed("ns", "p"), Spec: corev1.PodSpec{NodeName: "n1", ServiceAccountName: "sa", Containers: []corev1.Container{{Name: "c", Image: "i"}},
		Volumes: []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{AWSElasticBlockStore: &corev1.AWSElasticBlockStoreVolumeSource{VolumeID: "vol-1"}}}}}}
	driver := &storagev1.CSIDriver{ObjectMeta: objectNamed("", "ebs.csi.aws.com"), Spec: storagev1.CSIDriverSpec{TokenRequests: []storagev1.TokenRequest{{Audience: "of-driver"}}}}
	objects := []porticorest.Object{pod, driver}
	r := newRestrictions(t, objects)
	for _, audience := range []string{"of-driver", "granted", "other"} {
		w := nodeWrite{name: audience, resource: core("serviceaccounts"), sub: "token", now: &authenticationv1.TokenRequest{ObjectMeta: objectNamed("ns", "sa"), Spec: authenticationv1.TokenRequestSpec{
			Audiences: []string{audience}, BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: "p", UID: objects[0].GetUID()}}}}
		w.key.Namespace, w.key.Name = "ns", "sa"
		r.compare(t, w)
	}
	if r.refused != 1 {
		t.Errorf("%d of 3 audiences are refused, want 1", r.refused)
	}
}
