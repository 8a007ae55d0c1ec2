package plugins

import (
	"context"
	"slices"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	nodev1 "k8s.io/api/node/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"portico/resource"
	"portico/resource/rest"
)

// kubernetesCase is a write that a plugin of kube-apiserver refuses or changes.
type kubernetesCase struct {
	plugin string
	// stored are the objects that the plugin finds.
	stored []rest.Object
	config map[string]any
	old    rest.Object // set for an update
	obj    rest.Object
	change func(*rest.Attributes)
	// err is a part of the error; "": the write is accepted.
	err string
	// is reports whether the plugin has changed the object. It is nil for a plugin that changes nothing.
	is func(obj rest.Object) bool
}

func kubernetesCases() []kubernetesCase {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ns"}}
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{"topology.kubernetes.io/zone": "z", "kubernetes.io/os": "linux"}},
		Status:     corev1.NodeStatus{Allocatable: amounts("cpu=1")},
	}
	with := func(change func(*corev1.Pod)) *corev1.Pod { return aPod(change) }
	spec := func(is func(*corev1.PodSpec) bool) func(rest.Object) bool {
		return func(o rest.Object) bool { return is(&o.(*corev1.Pod).Spec) }
	}
	return slices.Concat([]kubernetesCase{
		{plugin: "AlwaysDeny", obj: aPod(), err: "admission control is denying all modifications"},
		{plugin: "NamespaceExists", obj: aPod(), err: `namespaces "ns" not found`},
		{plugin: "NamespaceExists", stored: []rest.Object{ns}, obj: aPod()},
		{plugin: "LimitPodHardAntiAffinityTopology", err: "has TopologyKey zone", obj: with(func(p *corev1.Pod) {
			p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{TopologyKey: "zone"}}}}
		})},
		{plugin: "AlwaysPullImages", obj: aPod(), is: spec(func(s *corev1.PodSpec) bool { return s.Containers[0].ImagePullPolicy == corev1.PullAlways })},
		{plugin: "TaintNodesByCondition", obj: node.DeepCopy(), is: func(o rest.Object) bool { return len(o.(*corev1.Node).Spec.Taints) == 1 }},
		{plugin: "PodNodeSelector", stored: []rest.Object{ns}, config: map[string]any{"podNodeSelectorPluginConfig": map[string]any{"clusterDefaultNodeSelector": "a=b"}},
			obj: aPod(), is: spec(func(s *corev1.PodSpec) bool { return s.NodeSelector["a"] == "b" })},
		{plugin: "PodTolerationRestriction", stored: []rest.Object{ns}, config: map[string]any{
			"apiVersion": "podtolerationrestriction.admission.k8s.io/v1alpha1", "kind": "Configuration", "default": []any{map[string]any{"key": "d"}},
		}, obj: aPod(), is: spec(func(s *corev1.PodSpec) bool { return len(s.Tolerations) == 1 })},
		{plugin: "ExtendedResourceToleration", is: spec(func(s *corev1.PodSpec) bool { return len(s.Tolerations) == 1 }), obj: with(func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Requests = amounts("example.com/gpu=1")
		})},
		{plugin: "RuntimeClass", err: `RuntimeClass "gone" not found`, obj: with(func(p *corev1.Pod) { p.Spec.RuntimeClassName = ptr.To("gone") })},
		{plugin: "RuntimeClass", stored: []rest.Object{&nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: "c"}, Handler: "h", Scheduling: &nodev1.Scheduling{NodeSelector: map[string]string{"a": "b"}}}},
			obj: with(func(p *corev1.Pod) { p.Spec.RuntimeClassName = ptr.To("c") }), is: spec(func(s *corev1.PodSpec) bool { return s.NodeSelector["a"] == "b" })},
		{plugin: "DefaultIngressClass", stored: []rest.Object{&networkingv1.IngressClass{ObjectMeta: metav1.ObjectMeta{Name: "d", Annotations: map[string]string{networkingv1.AnnotationIsDefaultIngressClass: "true"}}}},
			obj: &networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "i"}},
			is:  func(o rest.Object) bool { return ptr.Deref(o.(*networkingv1.Ingress).Spec.IngressClassName, "") == "d" }},
		{plugin: "DenyServiceExternalIPs", err: "Use of external IPs is denied", obj: &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "s"}, Spec: corev1.ServiceSpec{ExternalIPs: []string{"1.2.3.4"}}}},
		{plugin: "PodTopologyLabels", stored: []rest.Object{node}, obj: with(func(p *corev1.Pod) { p.Spec.NodeName = "n1" }),
			is: func(o rest.Object) bool { return o.GetLabels()["topology.kubernetes.io/zone"] == "z" }},
		{plugin: "PersistentVolumeClaimResize", err: "only dynamically provisioned pvc can be resized", old: claimOf("1Gi"), obj: claimOf("2Gi")},
		{plugin: "PersistentVolumeClaimResize", old: claimOf("1Gi"), obj: claimOf("2Gi"),
			stored: []rest.Object{&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "c"}, Provisioner: "p", AllowVolumeExpansion: ptr.To(true)}}},
		{plugin: "PodResizeValidator", stored: []rest.Object{node}, change: subresource("resize"), old: sized("1", 1), obj: sized("2", 2), err: "node didn't have enough allocatable resources: cpu"},
		{plugin: "NodeDeclaredFeatureValidator", stored: []rest.Object{node}, old: sized("1", 1), obj: sized("2", 2)},
	}, accountCases(), classCases(), rightsCases())
}

func claimOf(size string) *corev1.PersistentVolumeClaim {
	return claim(func(c *corev1.PersistentVolumeClaim) {
		c.Spec.StorageClassName, c.Status.Phase = ptr.To("c"), corev1.ClaimBound
		c.Spec.Resources.Requests = amounts("storage=" + size)
	})
}

func sized(cpu string, generation int64) *corev1.Pod {
	return aPod(func(p *corev1.Pod) {
		p.Generation, p.Spec.NodeName = generation, "n1"
		p.Spec.Containers[0].Resources.Requests = amounts("cpu=" + cpu)
	})
}

// accountCases returns writes for plugins that look up a service account or a limit range.
func accountCases() []kubernetesCase {
	limits := &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "l"}, Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{
		Type: corev1.LimitTypeContainer, Default: amounts("cpu=1"), Max: amounts("cpu=2"),
	}}}}
	return []kubernetesCase{
		{plugin: "ServiceAccount", stored: []rest.Object{accountOf("default")}, obj: aPod(), is: func(o rest.Object) bool {
			s := o.(*corev1.Pod).Spec
			return s.ServiceAccountName == "default" && len(s.Volumes) == 1 && len(s.Containers[0].VolumeMounts) == 1
		}},
		{plugin: "ServiceAccount", obj: aPod(func(p *corev1.Pod) { p.Spec.ServiceAccountName = "gone" }), err: `error looking up service account ns/gone`},
		{plugin: "LimitRanger", stored: []rest.Object{limits}, obj: aPod(), is: func(o rest.Object) bool {
			return o.(*corev1.Pod).Spec.Containers[0].Resources.Limits.Cpu().String() == "1"
		}},
		{plugin: "LimitRanger", stored: []rest.Object{limits}, err: "maximum cpu usage per Container is 2", obj: aPod(func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Limits = amounts("cpu=3")
		})},
	}
}

// classCases returns writes for Priority.
func classCases() []kubernetesCase {
	high := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "high"}, Value: 7, GlobalDefault: true}
	return []kubernetesCase{
		{plugin: "Priority", stored: []rest.Object{high}, obj: aPod(), is: func(o rest.Object) bool { return ptr.Deref(o.(*corev1.Pod).Spec.Priority, 0) == 7 }},
		{plugin: "Priority", obj: aPod(func(p *corev1.Pod) { p.Spec.PriorityClassName = "gone" }), err: "no PriorityClass with name gone was found"},
		{plugin: "Priority", stored: []rest.Object{high}, obj: &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "b"}, GlobalDefault: true}, err: "already marked as default"},
	}
}

// rightsCases returns writes for plugins that check rights beyond the right to write. Alice may act on
// objects named example.com/permitted only.
func rightsCases() []kubernetesCase {
	request := func(signer string) *certificatesv1.CertificateSigningRequest {
		return &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: "r"}, Spec: certificatesv1.CertificateSigningRequestSpec{SignerName: signer}}
	}
	issued := request("example.com/other")
	issued.Status.Certificate = []byte("c")
	owned := aPod(func(p *corev1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "n1", UID: "u"}}
	})
	bundle := &certificatesv1.ClusterTrustBundle{ObjectMeta: metav1.ObjectMeta{Name: "b"}, Spec: certificatesv1.ClusterTrustBundleSpec{SignerName: "example.com/other"}}
	return []kubernetesCase{
		{plugin: "CertificateApproval", change: subresource("approval"), old: request("example.com/other"), obj: request("example.com/other"), err: `user not permitted to approve requests with signerName "example.com/other"`},
		{plugin: "CertificateApproval", change: subresource("approval"), old: request("example.com/permitted"), obj: request("example.com/permitted")},
		{plugin: "CertificateSigning", change: subresource("status"), old: request("example.com/other"), obj: issued, err: `user not permitted to sign requests with signerName "example.com/other"`},
		{plugin: "CertificateSubjectRestriction", obj: &certificatesv1.CertificateSigningRequest{
			ObjectMeta: metav1.ObjectMeta{Name: "r"}, Spec: certificatesv1.CertificateSigningRequestSpec{SignerName: "kubernetes.io/kube-apiserver-client", Request: []byte("no request")},
		}, err: "failed to parse CSR"},
		{plugin: "ClusterTrustBundleAttest", obj: bundle, err: `user not permitted to attest for signerName "example.com/other"`},
		{plugin: "OwnerReferencesPermissionEnforcement", old: aPod(), obj: owned, err: "cannot set an ownerRef on a resource you can't delete"},
		{plugin: "NodeRestriction", stored: []rest.Object{aPod(func(p *corev1.Pod) { p.Spec.NodeName, p.UID = "n2", "u" })}, change: byNode(func(a *rest.Attributes) {
			a.Action.Subresource = "token"
			a.Object = &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: "p", UID: "u"}}}
		}), obj: accountOf("default"), err: "the UID in the bound object reference (u) does not match"},
		{plugin: "NodeRestriction", change: byNode(nil), obj: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n2"}}, err: `node "n1" is not allowed to modify node "n2"`},
		{plugin: "NodeRestriction", change: byNode(nil), obj: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}},
	}
}

// byNode makes a write one of the kubelet of node n1.
func byNode(change func(*rest.Attributes)) func(*rest.Attributes) {
	return func(a *rest.Attributes) {
		a.Action.User = &resource.User{Name: "system:node:n1", Groups: []string{"system:nodes"}}
		if change != nil {
			change(a)
		}
	}
}

// Each plugin of kube-apiserver gets the write in the internal version, finds what it reads, and changes
// the object of the write.
func TestPluginsOfKubeAPIServer(t *testing.T) {
	t.Parallel()
	tested := map[string]bool{"DefaultTolerationSeconds": true, "PodSecurity": true, "EventRateLimit": true, "AlwaysAdmit": true, "NamespaceAutoProvision": true}
	for _, c := range kubernetesCases() {
		tested[c.plugin] = true
		t.Run(c.plugin, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, c.stored...)
			w.allowed = func(a *resource.Action) bool { return a.Name == "example.com/permitted" }
			if c.config != nil {
				w.configure(c.plugin, c.config)
			}
			plugin := w.only(c.plugin)
			a := w.write(c.obj, c.old)
			if c.change != nil {
				c.change(a)
			}
			err := admitWrite(t, plugin, a)
			switch {
			case c.err == "" && err != nil, c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)):
				t.Errorf("got %v, want %q", err, c.err)
			case c.is != nil && !c.is(c.obj):
				t.Errorf("got %+v", c.obj)
			}
		})
	}
	for _, r := range all() {
		if r.register != nil && !tested[r.name] {
			t.Errorf("%s is not tested", r.name)
		}
	}
}

// Namespaces that NamespaceAutoProvision creates are as those that clients create.
func TestNamespaceAutoProvision(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	if err := admitWrite(t, w.only("NamespaceAutoProvision"), w.write(aPod(), nil)); err != nil {
		t.Fatal(err)
	}
	ns, err := rest.GetObject[*corev1.Namespace](t.Context(), w.resources["namespaces"], resource.Key{Name: "ns"}, resource.At{})
	if err != nil || ns.Status.Phase != corev1.NamespaceActive || ns.Labels["kubernetes.io/metadata.name"] != "ns" || len(ns.Spec.Finalizers) != 1 {
		t.Errorf("%+v %v", ns, err)
	}
}

// unreadable is a store that cannot be listed.
type unreadable struct{ resource.Store }

func (unreadable) List(context.Context, resource.ListOptions) (*resource.List, error) {
	return nil, apierrors.NewServiceUnavailable("no quorum")
}

// A plugin that cannot list what it needs refuses the write.
func TestObjectsThatCannotBeListed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	classes := w.resources["priorityclasses.scheduling.k8s.io"]
	w.resources["priorityclasses.scheduling.k8s.io"] = &rest.Resource{Kind: classes.Kind, Store: unreadable{classes.Store}}
	if err := admitWrite(t, w.only("Priority"), w.write(aPod(), nil)); err == nil || !strings.Contains(err.Error(), "no quorum") {
		t.Errorf("got %v", err)
	}
}

// A gateway that does not answer is no refusal.
func TestGatewayDoesNotAnswer(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	cfg := w.config()
	cfg.Authorize = func(context.Context, *resource.Action) error { return apierrors.NewServiceUnavailable("no gateway") }
	cfg.Enable, cfg.Disable = []string{"CertificateApproval"}, slices.DeleteFunc(Names(), func(n string) bool { return n == "CertificateApproval" })
	plugin, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	request := &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: "r"}, Spec: certificatesv1.CertificateSigningRequestSpec{SignerName: "example.com/x"}}
	if err := admitWrite(t, plugin, w.write(request, request, subresource("approval"))); !apierrors.IsServiceUnavailable(err) {
		t.Errorf("got %v", err)
	}
}

// Configurations with unknown fields and malformed selectors are refused at the start.
func TestConfigurationsAreStrict(t *testing.T) {
	t.Parallel()
	for plugin, config := range map[string]map[string]any{
		"PodNodeSelector":          {"podNodeSelectorPluginCofig": map[string]any{"ns": "a=b"}},
		"PodTolerationRestriction": {"apiVersion": "podtolerationrestriction.admission.k8s.io/v1alpha1", "kind": "Configuration", "whitelists": []any{}},
		"EventRateLimit":           {"apiVersion": "eventratelimit.admission.k8s.io/v1alpha1", "kind": "Configuration", "limit": []any{}},
	} {
		w := newWorld(t)
		w.options.Enable = []string{plugin}
		w.configure(plugin, config)
		if err := w.options.Check(); err == nil || !strings.Contains(err.Error(), "unknown field") {
			t.Errorf("%s: %v", plugin, err)
		}
	}
	w := newWorld(t)
	w.options.Enable = []string{"PodNodeSelector"}
	w.configure("PodNodeSelector", map[string]any{"podNodeSelectorPluginConfig": map[string]any{"ns": "a in (b)"}})
	if err := w.options.Check(); err == nil || !strings.Contains(err.Error(), `podNodeSelectorPluginConfig["ns"]`) {
		t.Errorf("a malformed selector: %v", err)
	}
}

// Plugins decide about deletions, which have an old object only.
func TestDeletions(t *testing.T) {
	t.Parallel()
	w := newWorld(t, sized("1", 1))
	a := w.write(nil, sized("1", 1))
	byNode(nil)(a)
	if err := admitWrite(t, w.only("NodeRestriction"), a); err != nil {
		t.Errorf("a pod of the node: %v", err)
	}
	a.Action.User.Name = "system:node:n2"
	if err := admitWrite(t, w.only("NodeRestriction"), a); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "can only delete pods with spec.nodeName set to itself") {
		t.Errorf("a pod of another node: %v", err)
	}
}

// PodSecurity refuses pods by the labels of their namespace, and warns about templates and about pods
// of a namespace that gets another level.
func TestPodSecurity(t *testing.T) {
	t.Parallel()
	baseline := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ns", Labels: map[string]string{"pod-security.kubernetes.io/enforce": "baseline"}}}
	privileged := aPod(func(p *corev1.Pod) {
		p.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{Privileged: ptr.To(true)}
	})
	const violates = `violates PodSecurity "baseline:latest": privileged (container "c" must not set securityContext.privileged=true)`
	w := newWorld(t, baseline, privileged)
	plugin := w.only("PodSecurity")
	if err := admitWrite(t, plugin, w.write(privileged.DeepCopy(), nil)); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), violates) {
		t.Errorf("got %v", err)
	}
	if err := admitWrite(t, plugin, w.write(baseline, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ns"}})); err != nil || len(w.warnings) != 2 || !strings.Contains(w.warnings[1], "p: privileged") {
		t.Errorf("got %v, warnings %q", err, w.warnings)
	}
	w = newWorld(t)
	w.configure("PodSecurity", map[string]any{"apiVersion": "pod-security.admission.config.k8s.io/v1", "kind": "PodSecurityConfiguration", "defaults": map[string]any{"enforce": "strict"}})
	if err := w.options.Check(); err == nil || !strings.Contains(err.Error(), "PodSecurity configuration error: enforce") {
		t.Errorf("a wrong configuration: %v", err)
	}
}

// EventRateLimit limits the events of a user, but for dry runs, and checks its configuration.
func TestEventRateLimit(t *testing.T) {
	t.Parallel()
	limit := func(kind string) map[string]any {
		return map[string]any{"apiVersion": "eventratelimit.admission.k8s.io/v1alpha1", "kind": "Configuration", "limits": []any{map[string]any{"type": kind, "qps": 1, "burst": 1}}}
	}
	w := newWorld(t)
	w.configure("EventRateLimit", limit("User"))
	plugin := w.only("EventRateLimit")
	write := func(dryRun bool) error {
		// kindOf cannot tell the two kinds Event apart.
		a := w.write(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "e"}}, nil)
		a.Kind, a.Object, a.DryRun = w.resources["events"].Kind, &corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "e"}}, dryRun
		return admitWrite(t, plugin, a)
	}
	for _, dryRun := range []bool{true, true, false} {
		if err := write(dryRun); err != nil {
			t.Errorf("dry run %v: %v", dryRun, err)
		}
	}
	if err := write(false); !apierrors.IsTooManyRequests(err) || !strings.Contains(err.Error(), "limit reached on type User for key alice") {
		t.Errorf("got %v", err)
	}
	w.options.Enable = []string{"EventRateLimit"}
	w.configure("EventRateLimit", limit("Nothing"))
	if err := w.options.Check(); err == nil || !strings.Contains(err.Error(), "limits[0].type: Unsupported value") {
		t.Errorf("a wrong configuration: %v", err)
	}
}
