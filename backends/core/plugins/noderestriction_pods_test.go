package plugins

import (
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"portico/resource"
	"portico/resource/rest"
)

// put stores an object and returns it with its uid.
func put[T rest.Object](w *world, obj T) T {
	w.t.Helper()
	stored, err := rest.CreateObject(w.t.Context(), w.kindOf(obj), obj)
	if err != nil {
		w.t.Fatal(err)
	}
	return stored
}

// podOn returns a pod of a node.
func podOn(name, node string, change ...func(*corev1.Pod)) *corev1.Pod {
	p := aPod(change...)
	p.Name, p.Spec.NodeName = name, node
	return p
}

func withVolume(source corev1.VolumeSource) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "v", VolumeSource: source})
	}
}

func withProjection(source corev1.VolumeProjection) func(*corev1.Pod) {
	return withVolume(corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{source}}})
}

// A node creates copies of its own pods, which name it as the owner and refer to nothing.
func TestNodeRestrictionMirrorPods(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	uid := put(w, nodeOfName("n1")).UID
	mirror := func(change ...func(*corev1.Pod)) *corev1.Pod {
		p := podOn("p", "n1")
		p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"}
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "n1", UID: uid, Controller: ptr.To(true)}}
		for _, f := range change {
			f(p)
		}
		return p
	}
	owner := func(f func(*metav1.OwnerReference)) *corev1.Pod {
		return mirror(func(p *corev1.Pod) { f(&p.OwnerReferences[0]) })
	}
	named := corev1.LocalObjectReference{Name: "x"}
	const reference, single = "can not create pods that reference ", "with a single owner reference set to itself"
	writes := []nodeWrite{
		{name: "mirror", now: mirror()},
		{name: "no mirror", now: mirror(func(p *corev1.Pod) { p.Annotations = nil }), err: "can only create mirror pods"},
		{name: "another node", now: mirror(func(p *corev1.Pod) { p.Spec.NodeName = "n2" }), err: "can only create pods with spec.nodeName set to itself"},
		{name: "no owner", now: mirror(func(p *corev1.Pod) { p.OwnerReferences = nil }), err: "with an owner reference set to itself"},
		{name: "two owners", now: mirror(func(p *corev1.Pod) { p.OwnerReferences = append(p.OwnerReferences, p.OwnerReferences[0]) }), err: single},
		{name: "version", now: owner(func(o *metav1.OwnerReference) { o.APIVersion = "v2" }), err: "with an owner reference set to itself"},
		{name: "kind", now: owner(func(o *metav1.OwnerReference) { o.Kind = "Pod" }), err: "with an owner reference set to itself"},
		{name: "owner", now: owner(func(o *metav1.OwnerReference) { o.Name = "n2" }), err: "with an owner reference set to itself"},
		{name: "no controller", now: owner(func(o *metav1.OwnerReference) { o.Controller = nil }), err: "with a controller owner reference set to itself"},
		{name: "blocks", now: owner(func(o *metav1.OwnerReference) { o.BlockOwnerDeletion = ptr.To(true) }), err: "must not set blockOwnerDeletion"},
		{name: "uid", now: owner(func(o *metav1.OwnerReference) { o.UID = "u" }), err: "node n1 UID mismatch"},
		{name: "account", now: mirror(func(p *corev1.Pod) { p.Spec.ServiceAccountName = "a" }), err: reference + "serviceaccounts"},
		{name: "pull secret", now: mirror(func(p *corev1.Pod) { p.Spec.ImagePullSecrets = []corev1.LocalObjectReference{named} }), err: reference + "secrets"},
		{name: "config map", now: mirror(func(p *corev1.Pod) {
			p.Spec.Containers[0].EnvFrom = []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: named}}}
		}), err: reference + "configmaps"},
		{name: "device", now: mirror(func(p *corev1.Pod) {
			p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "r", ResourceClaimName: ptr.To("x")}}
		}), err: reference + "resourceclaims"},
	}
	for _, c := range []struct {
		source corev1.VolumeSource
		err    string
	}{
		{corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}, ""},
		{corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}, ""},
		{corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{}}, "configmaps (via configmap volumes)"},
		{corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{}}, "secrets (via secret volumes)"},
		{corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: "d"}}, "csidrivers (via CSI volumes)"},
		{corev1.VolumeSource{Glusterfs: &corev1.GlusterfsVolumeSource{}}, "endpoints (via glusterFS volumes)"},
		{corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}}, "persistentvolumeclaims"},
		{corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}, "persistentvolumeclaims (via ephemeral volumes)"},
		{corev1.VolumeSource{AzureFile: &corev1.AzureFileVolumeSource{}}, "secrets (via azureFile volumes)"},
		{corev1.VolumeSource{RBD: &corev1.RBDVolumeSource{SecretRef: &named}}, "secrets"},
	} {
		writes = append(writes, nodeWrite{name: "volume: " + c.err, now: mirror(withVolume(c.source)), err: orNothing(reference, c.err)})
	}
	for _, c := range []struct {
		source corev1.VolumeProjection
		err    string
	}{
		{corev1.VolumeProjection{DownwardAPI: &corev1.DownwardAPIProjection{}}, ""},
		{corev1.VolumeProjection{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{}}, "serviceaccounts (via projected volumes)"},
		{corev1.VolumeProjection{ClusterTrustBundle: &corev1.ClusterTrustBundleProjection{}}, "clustertrustbundles"},
		{corev1.VolumeProjection{PodCertificate: &corev1.PodCertificateProjection{}}, "podcertificates"},
		{corev1.VolumeProjection{Secret: &corev1.SecretProjection{LocalObjectReference: named}}, "secrets"},
		{corev1.VolumeProjection{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: named}}, "configmaps"},
		{corev1.VolumeProjection{Secret: &corev1.SecretProjection{}}, "secrets (via projected volumes)"},
	} {
		writes = append(writes, nodeWrite{name: "projected: " + c.err, now: mirror(withProjection(c.source)), err: orNothing(reference, c.err)})
	}
	w.test(append(writes, nodeWrite{name: "unknown volume", now: mirror(withVolume(corev1.VolumeSource{})), err: `unknown volume type for volume  "v"`},
		nodeWrite{name: "unknown projection", now: mirror(withProjection(corev1.VolumeProjection{})), err: `unknown source for projected volume "v"`})...)
	if err := admit(t, newWorld(t).only("NodeRestriction"), w.write(mirror(), nil, byNode)); !apierrors.IsNotFound(err) {
		t.Errorf("a node that does not exist: %v", err)
	}
}

// orNothing returns a message with its head; "" for none.
func orNothing(head, message string) string {
	if message == "" {
		return ""
	}
	return head + message
}

// A node deletes and evicts its pods, and writes their status without labels and claims of devices.
func TestNodeRestrictionPods(t *testing.T) {
	t.Parallel()
	w := newWorld(t, podOn("own", "n1"), podOn("other", "n2"))
	own, other := podOn("own", "n1"), podOn("other", "n2")
	own1 := func(change func(*corev1.Pod)) *corev1.Pod { return podOn("own", "n1", change) }
	w.test([]nodeWrite{
		{name: "delete", old: own},
		{name: "delete another", old: other, err: "can only delete pods with spec.nodeName set to itself"},
		{name: "delete one of no node", old: podOn("p", ""), err: "can only delete pods"},
		{name: "update", now: own, old: own, err: "can only create and delete mirror pods"},
		{name: "status", sub: "status", old: own, now: own1(func(p *corev1.Pod) { p.Status.Phase = corev1.PodRunning })},
		{name: "status of another", sub: "status", old: other, now: own, err: "can only update pod status for pods with spec.nodeName set to itself"},
		{name: "labels", sub: "status", old: own, now: own1(func(p *corev1.Pod) { p.Labels = map[string]string{"a": "b"} }), err: "cannot update labels"},
		{name: "claims", sub: "status", old: own, now: own1(func(p *corev1.Pod) {
			p.Status.ResourceClaimStatuses = []corev1.PodResourceClaimStatus{{Name: "r", ResourceClaimName: ptr.To("x")}}
		}), err: "cannot update resource claim"},
		{name: "extended claim", sub: "status", old: own, now: own1(func(p *corev1.Pod) {
			p.Status.ExtendedResourceClaimStatus = &corev1.PodExtendedResourceClaimStatus{ResourceClaimName: "x"}
		}), err: "cannot update extended resource claim"},
		{name: "allocatable claims", sub: "status", old: own, now: own1(func(p *corev1.Pod) {
			p.Status.NodeAllocatableResourceClaimStatuses = []corev1.NodeAllocatableResourceClaimStatus{{ResourceClaimName: "x"}}
		}), err: "cannot update node allocatable"},
		{name: "create of a status", sub: "status", now: own, err: "unexpected operation"},
		{name: "delete of an eviction", sub: "eviction", old: own, err: "unexpected operation"},
		{name: "another subresource", sub: "ephemeralcontainers", now: own, old: own, err: "unexpected pod subresource"},
	}...)
	evict := func(name string) error {
		return admit(t, w.only("NodeRestriction"), w.write(podOn(name, "n1"), nil, byNode, subresource("eviction"), func(a *rest.Attributes) {
			a.Object = &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
		}))
	}
	expect(t, "evict", evict("own"), "")
	expect(t, "evict another", evict("other"), "can only evict pods with spec.nodeName set to itself")
	if err := evict("gone"); !apierrors.IsNotFound(err) {
		t.Errorf("evict one that is gone: %v", err)
	}
}

// A node gets tokens for its pods, of the audiences that their volumes need or that it has a right to.
func TestNodeRestrictionTokens(t *testing.T) {
	t.Parallel()
	disk := &corev1.GCEPersistentDiskVolumeSource{PDName: "d"}
	w := newWorld(t,
		&storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: "d"}, Spec: storagev1.CSIDriverSpec{TokenRequests: []storagev1.TokenRequest{{Audience: "of-driver"}}}},
		&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}, Spec: corev1.PersistentVolumeSpec{
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "d", VolumeHandle: "h"}}}},
		&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "nfs"}},
		// A driver that replaces volumes of a type in Kubernetes.
		&storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: "pd.csi.storage.gke.io"}, Spec: storagev1.CSIDriverSpec{TokenRequests: []storagev1.TokenRequest{{Audience: "of-disk"}}}},
		&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "disk"}, Spec: corev1.PersistentVolumeSpec{PersistentVolumeSource: corev1.PersistentVolumeSource{GCEPersistentDisk: disk}}},
		claim(func(c *corev1.PersistentVolumeClaim) { c.Name, c.Spec.VolumeName = "of-disk", "disk" }),
		claim(func(c *corev1.PersistentVolumeClaim) { c.Name, c.Spec.VolumeName = "bound", "pv" }),
		claim(func(c *corev1.PersistentVolumeClaim) { c.Name, c.Spec.VolumeName = "own-v", "pv" }),
		claim(func(c *corev1.PersistentVolumeClaim) { c.Name, c.Spec.VolumeName = "of-nfs", "nfs" }),
		claim(func(c *corev1.PersistentVolumeClaim) { c.Name = "pending" }),
	)
	w.allowed = func(a *resource.Action) bool {
		return a.Verb == "request-serviceaccounts-token-audience" && a.Resource == "granted" && a.Name == "sa" && a.Namespace == "ns" && a.User.Name == "system:node:n1"
	}
	claimed := func(name string) func(*corev1.Pod) {
		return withVolume(corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}})
	}
	uids := map[string]types.UID{"gone": "u"}
	for _, p := range []*corev1.Pod{
		podOn("bare", "n1"), podOn("other", "n2"),
		podOn("projected", "n1", withProjection(corev1.VolumeProjection{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Audience: "of-volume"}})),
		podOn("default", "n1", withProjection(corev1.VolumeProjection{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{}})),
		podOn("inline", "n1", withVolume(corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: "d"}})),
		podOn("unknown", "n1", withVolume(corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: "none"}})),
		podOn("claims", "n1", claimed("bound")), podOn("pending", "n1", claimed("pending"), claimed("of-nfs"), claimed("none")),
		podOn("disk", "n1", withVolume(corev1.VolumeSource{GCEPersistentDisk: disk})), podOn("claimed disk", "n1", claimed("of-disk")),
		podOn("own", "n1", withVolume(corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}})),
	} {
		uids[p.Name] = put(w, p).UID
	}
	plugin := w.only("NodeRestriction")
	ask := func(pod string, change func(*authenticationv1.TokenRequest), audiences ...string) error {
		request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
			Audiences: audiences, BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod, UID: uids[pod]},
		}}
		if change != nil {
			change(request)
		}
		return admit(t, plugin, w.write(accountOf("sa"), nil, byNode, subresource("token"), func(a *rest.Attributes) { a.Object = request }))
	}
	for _, c := range []struct{ pod, audience, err string }{
		{"bare", "granted", ""}, {"bare", "vault", `is not authorized to request tokens for audience "vault"`}, {"bare", "", `for audience ""`},
		{"projected", "of-volume", ""}, {"projected", "", "not authorized"}, {"projected", "of-driver", "not authorized"}, {"default", "", ""},
		{"inline", "of-driver", ""}, {"inline", "of-volume", "not authorized"}, {"unknown", "of-driver", `error validating audience "of-driver": csidriver.storage.k8s.io "none" not found`}, {"unknown", "granted", "error validating audience"},
		{"disk", "of-disk", ""}, {"disk", "of-driver", "not authorized"}, {"claimed disk", "of-disk", ""},
		{"claims", "of-driver", ""}, {"own", "of-driver", ""}, {"pending", "of-driver", "error validating audience"}, {"other", "granted", "bound to a pod scheduled on a different node"},
	} {
		expect(t, c.pod+" "+c.audience, ask(c.pod, nil, c.audience), c.err)
	}
	expect(t, "no audience", ask("default", nil), "")
	expect(t, "two audiences", ask("default", nil, "", "granted"), "may only request 0 or 1 audiences")
	const bound = "node requested token not bound to a pod"
	for want, changes := range map[string][]func(r *authenticationv1.BoundObjectReference){
		bound: {
			func(r *authenticationv1.BoundObjectReference) { r.Kind = "Secret" }, func(r *authenticationv1.BoundObjectReference) { r.APIVersion = "v2" },
			func(r *authenticationv1.BoundObjectReference) { r.Name = "" },
		},
		"a pod binding without a uid": {func(r *authenticationv1.BoundObjectReference) { r.UID = "" }},
		"does not match the UID":      {func(r *authenticationv1.BoundObjectReference) { r.UID = "u" }},
	} {
		for _, change := range changes {
			expect(t, want, ask("default", func(r *authenticationv1.TokenRequest) { change(r.Spec.BoundObjectRef) }), want)
		}
	}
	expect(t, "not bound", ask("default", func(r *authenticationv1.TokenRequest) { r.Spec.BoundObjectRef = nil }), bound)
	if err := ask("gone", nil); !apierrors.IsNotFound(err) {
		t.Errorf("a pod that is gone: %v", err)
	}
}

// A node asks for certificates of pods that run on it, from signers that they mount or that it has a
// right to.
func TestNodeRestrictionPodCertificates(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.allowed = func(a *resource.Action) bool {
		return a.Verb == "request-serviceaccounts-podcertificate-signer" && a.Resource == "example.com:granted" && a.Name == "sa" && a.Namespace == "ns"
	}
	mounts := withProjection(corev1.VolumeProjection{PodCertificate: &corev1.PodCertificateProjection{SignerName: "example.com/mounted", KeyType: "ED25519"}})
	account := func(p *corev1.Pod) { p.Spec.ServiceAccountName = "sa" }
	mirror := func(p *corev1.Pod) { p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"} }
	node, sa := put(w, nodeOfName("n1")), put(w, accountOf("sa"))
	second := put(w, accountOf("second"))
	uids := map[string]types.UID{}
	for _, p := range []*corev1.Pod{podOn("own", "n1", account, mounts), podOn("other", "n2", account, mounts), podOn("mirror", "n1", account, mounts, mirror)} {
		uids[p.Name] = put(w, p).UID
	}
	request := func(pod string, change func(*certificatesv1.PodCertificateRequestSpec)) *certificatesv1.PodCertificateRequest {
		r := &certificatesv1.PodCertificateRequest{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "r"}, Spec: certificatesv1.PodCertificateRequestSpec{
			SignerName: "example.com/mounted", PodName: pod, PodUID: uids[pod], ServiceAccountName: "sa", ServiceAccountUID: sa.UID, NodeName: "n1", NodeUID: node.UID,
		}}
		if change != nil {
			change(&r.Spec)
		}
		return r
	}
	of := func(change func(*certificatesv1.PodCertificateRequestSpec)) rest.Object {
		return request("own", change)
	}
	signer := func(name string) rest.Object {
		return of(func(s *certificatesv1.PodCertificateRequestSpec) { s.SignerName = name })
	}
	w.test([]nodeWrite{
		{name: "mounted", now: request("own", nil)},
		{name: "granted", now: signer("example.com/granted")},
		{name: "neither", now: signer("example.com/neither"), err: "does not mount a podCertificate projected volume for signer"},
		{name: "another node", now: of(func(s *certificatesv1.PodCertificateRequestSpec) { s.NodeName = "n2" }), err: "which is not the requesting node"},
		{name: "uid of the node", now: of(func(s *certificatesv1.PodCertificateRequestSpec) { s.NodeUID = "u" }), err: "names node UID"},
		{name: "uid of the pod", now: of(func(s *certificatesv1.PodCertificateRequestSpec) { s.PodUID = "u" }), err: "contains pod UID"},
		{name: "uid of the account", now: of(func(s *certificatesv1.PodCertificateRequestSpec) { s.ServiceAccountUID = "u" }), err: "names service account UID"},
		{name: "pod elsewhere", now: request("other", nil), err: `is not running on node "n1"`},
		{name: "mirror", now: request("mirror", nil), err: "is a mirror pod"},
		{name: "account", now: of(func(s *certificatesv1.PodCertificateRequestSpec) {
			s.ServiceAccountName, s.ServiceAccountUID = "second", second.UID
		}), err: "that differs from running pod"},
		{name: "update", now: request("own", nil), old: request("own", nil), err: "unexpected operation"},
		{name: "status", sub: "status", now: request("own", nil), old: request("own", nil), err: "unexpected operation"},
	}...)
	gone := put(w, podOn("gone", "n1", mounts, func(p *corev1.Pod) { p.Spec.ServiceAccountName = "gone" }))
	for _, r := range []rest.Object{
		of(func(s *certificatesv1.PodCertificateRequestSpec) { s.PodName = "none" }),
		of(func(s *certificatesv1.PodCertificateRequestSpec) {
			s.PodName, s.PodUID, s.ServiceAccountName = gone.Name, gone.UID, "gone"
		}),
	} {
		if err := admit(t, w.only("NodeRestriction"), w.write(r, nil, byNode)); !apierrors.IsNotFound(err) {
			t.Errorf("got %v", err)
		}
	}
}
