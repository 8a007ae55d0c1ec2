package upstream

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kubernetes/pkg/auth/nodeidentifier"
	theirnode "k8s.io/kubernetes/plugin/pkg/auth/authorizer/node"
	"k8s.io/kubernetes/plugin/pkg/auth/authorizer/rbac"
	"k8s.io/kubernetes/plugin/pkg/auth/authorizer/rbac/bootstrappolicy"

	"portico/gateway/access"
	"portico/gateway/authorization/node"
	"portico/internal/testing/await"
	"portico/internal/testing/memstore"
	"portico/resource"
	"portico/resource/authz"
)

// eventHandler is an informer that keeps the handler of its events for the test.
type eventHandler struct {
	cache.SharedIndexInformer
	of cache.ResourceEventHandler
}

// AddEventHandler implements cache.SharedInformer.
func (h *eventHandler) AddEventHandler(of cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	h.of = of
	return h, nil
}

// HasSynced implements cache.SharedInformer.
func (h *eventHandler) HasSynced() bool { return true }

// HasSyncedChecker implements cache.ResourceEventHandlerRegistration.
func (h *eventHandler) HasSyncedChecker() cache.DoneChecker { return nil }

// authorizedKind is a kind that both authorizers follow.
type authorizedKind struct {
	info   resource.Info
	sample runtime.Object
	theirs eventHandler
	ours   resource.Store
	stored map[resource.Key]metav1.Object
}

// nodeAuthorizers are those of both servers, with the objects that they follow.
type nodeAuthorizers struct {
	t        *testing.T
	theirs   *theirnode.NodeAuthorizer
	ours     *node.Authorizer
	kinds    map[string]*authorizedKind
	rounds   int
	compared int
}

func newNodeAuthorizers(t *testing.T) *nodeAuthorizers {
	t.Helper()
	n := &nodeAuthorizers{t: t, kinds: map[string]*authorizedKind{}}
	factory := informers.NewSharedInformerFactory(nil, 0)
	storage := memstore.New()
	for _, k := range []*authorizedKind{
		{info: resource.Info{Resource: "pods", Kind: "Pod", Namespaced: true}, sample: &corev1.Pod{}},
		{info: resource.Info{Resource: "persistentvolumes", Kind: "PersistentVolume"}, sample: &corev1.PersistentVolume{}},
		{info: resource.Info{Group: "storage.k8s.io", Resource: "volumeattachments", Kind: "VolumeAttachment"}, sample: &storagev1.VolumeAttachment{}},
		{info: resource.Info{Group: "resource.k8s.io", Resource: "resourceslices", Kind: "ResourceSlice"}, sample: &resourcev1.ResourceSlice{}},
		{info: resource.Info{Group: "certificates.k8s.io", Resource: "podcertificaterequests", Kind: "PodCertificateRequest", Namespaced: true}, sample: &certificatesv1.PodCertificateRequest{}},
	} {
		k.info.Versions, k.stored = []string{"v1"}, map[resource.Key]metav1.Object{}
		k.ours = storage.Store(&k.info)
		factory.InformerFor(k.sample, func(kubernetes.Interface, time.Duration) cache.SharedIndexInformer { return &k.theirs })
		n.kinds[k.info.Resource] = k
	}
	graph := theirnode.NewGraph()
	core := factory.Core().V1()
	theirnode.AddGraphEventHandlers(graph, core.Nodes(), core.Pods(), core.PersistentVolumes(), factory.Storage().V1().VolumeAttachments(),
		factory.Resource().V1().ResourceSlices(), factory.Certificates().V1().PodCertificateRequests())
	n.theirs = theirnode.NewAuthorizer(graph, nodeidentifier.NewDefaultNodeIdentifier(), bootstrappolicy.NodeRules())
	n.ours = node.New(node.Config{
		Reader: func(info *resource.Info) resource.Reader { return storage.Store(info) }, Others: access.AllowsNode, Logger: slog.New(slog.DiscardHandler),
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- n.ours.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return n
}

// store writes an object into the storage of ours.
func (n *nodeAuthorizers) store(k *authorizedKind, obj metav1.Object) {
	n.t.Helper()
	text, err := json.Marshal(obj)
	if err != nil {
		n.t.Fatal(err)
	}
	parsed, err := resource.Parse(text)
	if err != nil {
		n.t.Fatal(err)
	}
	_, err = k.ours.Update(n.t.Context(), resource.Key{Namespace: obj.GetNamespace(), Name: obj.GetName()}, func(*resource.Object) (resource.Mutation, error) {
		return resource.Mutation{Object: parsed}, nil
	})
	if err != nil {
		n.t.Fatal(err)
	}
}

// put creates or replaces an object for both.
func (n *nodeAuthorizers) put(name string, obj metav1.Object) {
	n.t.Helper()
	k := n.kinds[name]
	key := resource.Key{Namespace: obj.GetNamespace(), Name: obj.GetName()}
	obj.(runtime.Object).GetObjectKind().SetGroupVersionKind(k.info.GVK("v1"))
	n.store(k, obj)
	if old := k.stored[key]; old != nil {
		k.theirs.of.OnUpdate(old, obj)
	} else {
		k.theirs.of.OnAdd(obj, false)
	}
	k.stored[key] = obj
}

// remove deletes an object for both.
func (n *nodeAuthorizers) remove(name string, key resource.Key) {
	n.t.Helper()
	k := n.kinds[name]
	if _, err := k.ours.Delete(n.t.Context(), key, nil); err != nil {
		n.t.Fatal(err)
	}
	k.theirs.of.OnDelete(k.stored[key])
	delete(k.stored, key)
}

// settle waits until ours has seen all events: each kind gets a last one, of a node that theirs does not know.
func (n *nodeAuthorizers) settle() {
	n.t.Helper()
	n.rounds++
	name := fmt.Sprintf("settled-%d", n.rounds)
	meta := metav1.ObjectMeta{Namespace: "settled", Name: "o", UID: types.UID(name)}
	for of, obj := range map[string]metav1.Object{
		"pods": &corev1.Pod{ObjectMeta: meta, Spec: corev1.PodSpec{NodeName: name, Volumes: []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}}}}}},
		"persistentvolumes":      &corev1.PersistentVolume{ObjectMeta: meta, Spec: corev1.PersistentVolumeSpec{ClaimRef: &corev1.ObjectReference{Namespace: "settled", Name: name}}},
		"volumeattachments":      &storagev1.VolumeAttachment{ObjectMeta: meta, Spec: storagev1.VolumeAttachmentSpec{NodeName: name}},
		"resourceslices":         &resourcev1.ResourceSlice{ObjectMeta: meta, Spec: resourcev1.ResourceSliceSpec{NodeName: &name}},
		"podcertificaterequests": &certificatesv1.PodCertificateRequest{ObjectMeta: meta, Spec: certificatesv1.PodCertificateRequestSpec{NodeName: types.NodeName(name)}},
	} {
		k := n.kinds[of]
		if !k.info.Namespaced {
			obj.SetNamespace("")
		}
		obj.(runtime.Object).GetObjectKind().SetGroupVersionKind(k.info.GVK("v1"))
		n.store(k, obj)
		act := &resource.Action{User: &resource.User{Name: "system:node:" + name, Groups: []string{user.NodesGroup}}, Verb: "get", IsResource: true,
			Group: k.info.Group, Version: "v1", Resource: of, Namespace: obj.GetNamespace(), Name: "o"}
		await.Until(n.t, "the events of "+of, func() bool {
			decision, _, err := n.ours.Authorize(n.t.Context(), act)
			return err == nil && (decision == authz.Allow || of == "persistentvolumes")
		})
	}
	// The volume is of the node once its pod is known.
	await.Until(n.t, "the volume", func() bool {
		act := &resource.Action{User: &resource.User{Name: "system:node:" + name, Groups: []string{user.NodesGroup}}, Verb: "get", IsResource: true,
			Version: "v1", Resource: "persistentvolumes", Name: "o"}
		decision, _, err := n.ours.Authorize(n.t.Context(), act)
		return err == nil && decision == authz.Allow
	})
}

// nodeRequest is a request as both servers parse it.
type nodeRequest struct {
	line   string
	ours   *resource.Action
	theirs authorizer.AttributesRecord
}

// Names of the objects of random graphs: pods are p0 to p2, all else is x0 to x3.
var (
	nodeNames     = []string{"n1", "n2"}
	podNamespaces = []string{"a", "b"}
)

// nodeRequests returns requests of every kind that nodes have to do with, and of others.
func nodeRequests(t *testing.T) (out []nodeRequest) {
	t.Helper()
	parse := request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}
	add := func(method, target string) {
		r := httptest.NewRequest(method, target, nil)
		info, err := parse.NewRequestInfo(r)
		if err != nil {
			t.Fatal(err)
		}
		attributes, err := filters.GetAuthorizerAttributes(request.WithRequestInfo(t.Context(), info))
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, nodeRequest{method + " " + target, resource.ParseAction(r), *attributes.(*authorizer.AttributesRecord)})
	}
	methods := []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete}
	queries := []string{"", "watch=1"}
	for _, selector := range []string{"spec.nodeName=n1", "spec.nodeName==n1", "spec.nodeName!=n1", "spec.nodeName=n2", "spec.nodeName=", "spec.nodeName", "metadata.name=x0",
		"metadata.name=p0", "metadata.name=n1", "metadata.name=x0,spec.nodeName=n1", "spec.nodeName=n1,spec.nodeName=n2", "nodeName=n1", "=,=", ","} {
		queries = append(queries, "fieldSelector="+url.QueryEscape(selector), "watch=true&fieldSelector="+url.QueryEscape(selector))
	}
	queries = append(queries, "fieldSelector=&fieldSelector=spec.nodeName%3Dn1", "labelSelector=a%3Db", "labelSelector=((&fieldSelector=spec.nodeName%3Dn1")
	for _, of := range strings.Fields(`/api/v1/secrets /api/v1/configmaps /api/v1/persistentvolumeclaims /api/v1/persistentvolumes /api/v1/serviceaccounts /api/v1/nodes /api/v1/pods
		/api/v1/services /api/v1/endpoints /api/v1/events /apis/events.k8s.io/v1/events /api/v1/namespaces /apis/apps/v1/deployments
		/apis/coordination.k8s.io/v1/leases /apis/storage.k8s.io/v1/csinodes /apis/storage.k8s.io/v1/csidrivers /apis/storage.k8s.io/v1/volumeattachments
		/apis/resource.k8s.io/v1/resourceclaims /apis/resource.k8s.io/v1/resourceslices /apis/certificates.k8s.io/v1/certificatesigningrequests
		/apis/certificates.k8s.io/v1/podcertificaterequests /apis/certificates.k8s.io/v1/clustertrustbundles /apis/node.k8s.io/v1/runtimeclasses
		/apis/authentication.k8s.io/v1/tokenreviews /apis/authorization.k8s.io/v1/subjectaccessreviews /apis/authorization.k8s.io/v1/localsubjectaccessreviews
		/apis/example.com/v1/pods /apis/example.com/v1/secrets`) {
		base, name := of[:strings.LastIndexByte(of, '/')], of[strings.LastIndexByte(of, '/'):]
		for _, scope := range []string{"", "/namespaces/a", "/namespaces/b", "/namespaces/kube-node-lease"} {
			collection := base + scope + name
			add(http.MethodGet, strings.Replace(base, "/v1", "/v1/watch", 1)+scope+name+"?fieldSelector=spec.nodeName%3Dn1")
			for _, method := range methods {
				for _, query := range queries {
					if query == "" || method == http.MethodGet || method == http.MethodDelete {
						add(method, collection+"?"+query)
					}
				}
				for _, one := range []string{"x0", "x1", "x2", "x3", "p0", "p1", "p0-v0", "p1-v1", "n1", "n2"} {
					for _, sub := range []string{"", "/status", "/token", "/eviction", "/exec", "/log", "/proxy", "/approval", "/other"} {
						add(method, collection+"/"+one+sub)
					}
				}
			}
			add(http.MethodGet, collection+"/n1?watch=1&fieldSelector=spec.nodeName%3Dn1")
		}
	}
	for _, path := range []string{"/", "/healthz", "/metrics", "/version", "/api", "/apis", "/openapi/v3"} {
		add(http.MethodGet, path)
	}
	return out
}

// nodeUsers are nodes and users that look like one.
var nodeUsers = []user.DefaultInfo{
	{Name: "system:node:n1", Groups: []string{user.AllAuthenticated, user.NodesGroup}}, {Name: "system:node:n2", Groups: []string{user.NodesGroup}},
	{Name: "system:node:none", Groups: []string{user.NodesGroup}}, {Name: "system:node:", Groups: []string{user.NodesGroup}},
	{Name: "system:node:n1", Groups: []string{user.AllAuthenticated}}, {Name: "n1", Groups: []string{user.NodesGroup}},
}

// compareAll compares the decisions about requests, and their reasons.
func (n *nodeAuthorizers) compareAll(requests []nodeRequest, state string) {
	n.t.Helper()
	decisions := map[authz.Decision]authorizer.Decision{authz.Allow: authorizer.DecisionAllow, authz.Deny: authorizer.DecisionDeny, authz.NoOpinion: authorizer.DecisionNoOpinion}
	differing := 0
	for _, u := range nodeUsers {
		for _, r := range requests {
			act, attributes := *r.ours, r.theirs
			act.User, attributes.User = &resource.User{Name: u.Name, Groups: u.Groups}, &u
			ours, reason, err := n.ours.Authorize(n.t.Context(), &act)
			theirs, theirReason, theirErr := n.theirs.Authorize(n.t.Context(), &attributes)
			n.compared++
			if decisions[ours] == theirs && reason == theirReason && (err == nil) == (theirErr == nil) {
				continue
			}
			if differing++; differing <= 5 {
				n.t.Errorf("%s: %s as %s of %q: ours %v %q %v, theirs %v %q %v", state, r.line, u.Name, u.Groups, ours, reason, err, theirs, theirReason, theirErr)
			}
		}
	}
	if differing > 5 {
		n.t.Errorf("%s: %d more decisions differ", state, differing-5)
	}
}

// The node authorizers of both servers decide alike, with the same reasons, about requests of nodes and others, before and
// after each of many random changes of pods, volumes, attachments, slices and certificate requests.
func TestNodesAreAuthorizedAsByKubeAPIServer(t *testing.T) {
	requests := nodeRequests(t)
	// Others do not depend on objects.
	single := slices.DeleteFunc(slices.Clone(requests), func(r nodeRequest) bool {
		return r.ours.Name == "" || !slices.Contains([]string{"", "status", "token"}, r.ours.Subresource)
	})
	for _, seed := range []uint64{1, 2, uint64(time.Now().UnixNano())} {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			n := newNodeAuthorizers(t)
			n.settle()
			n.compareAll(requests, "without objects")
			g := &randomGraph{nodeAuthorizers: n, Rand: rand.New(rand.NewPCG(seed, 0))}
			for step := range 12 {
				for range 25 {
					g.change()
				}
				n.settle()
				n.compareAll(single, fmt.Sprintf("step %d", step))
				if t.Failed() {
					break
				}
			}
			n.compareAll(requests, "at the end")
			t.Logf("%d requests, %d decisions", len(requests), n.compared)
		})
	}
}

// What the role of nodes allows is the same.
func TestRoleOfNodes(t *testing.T) {
	rules := bootstrappolicy.NodeRules()
	for _, r := range nodeRequests(t) {
		r.ours.User = &resource.User{Name: "system:node:n1"}
		r.theirs.User = &user.DefaultInfo{Name: "system:node:n1"}
		if ours, theirs := access.AllowsNode(r.ours), rbac.RulesAllow(&r.theirs, rules...); ours != theirs {
			t.Errorf("%s: ours %v, theirs %v", r.line, ours, theirs)
		}
	}
}

// randomGraph changes the objects of authorizers at random.
type randomGraph struct {
	*nodeAuthorizers
	*rand.Rand
	uids int
}

func (g *randomGraph) name() string         { return fmt.Sprintf("x%d", g.IntN(4)) }
func (g *randomGraph) one(of int) bool      { return g.IntN(of) == 0 }
func (g *randomGraph) of(l []string) string { return l[g.IntN(len(l))] }

// local names a Secret, or is nil, or names none.
func (g *randomGraph) local() *corev1.LocalObjectReference {
	switch g.IntN(6) {
	case 0:
		return nil
	case 1:
		return &corev1.LocalObjectReference{}
	}
	return &corev1.LocalObjectReference{Name: g.name()}
}

// distant is local with a namespace.
func (g *randomGraph) distant() *corev1.SecretReference {
	l := g.local()
	if l == nil {
		return nil
	}
	return &corev1.SecretReference{Name: l.Name, Namespace: g.of([]string{"", "a", "b"})}
}

func (g *randomGraph) meta(namespace, name string) metav1.ObjectMeta {
	g.uids++
	return metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(fmt.Sprint(g.uids))}
}

// change creates, changes or deletes one object.
func (g *randomGraph) change() {
	g.t.Helper()
	var made metav1.Object
	kind := g.of([]string{"pods", "pods", "pods", "pods", "persistentvolumes", "persistentvolumes", "volumeattachments", "resourceslices", "podcertificaterequests"})
	namespace := g.of(podNamespaces)
	var nodeName *string
	if !g.one(4) {
		name := g.of(nodeNames)
		nodeName = &name
	}
	switch kind {
	case "pods":
		made = g.pod(g.meta(namespace, fmt.Sprintf("p%d", g.IntN(3))))
	case "persistentvolumes":
		made = g.volume(g.meta("", g.name()))
	case "volumeattachments":
		made = &storagev1.VolumeAttachment{ObjectMeta: g.meta("", g.name()), Spec: storagev1.VolumeAttachmentSpec{NodeName: g.of(nodeNames)}}
	case "resourceslices":
		made = &resourcev1.ResourceSlice{ObjectMeta: g.meta("", g.name()), Spec: resourcev1.ResourceSliceSpec{NodeName: nodeName}}
	case "podcertificaterequests":
		made = &certificatesv1.PodCertificateRequest{ObjectMeta: g.meta(namespace, g.name()), Spec: certificatesv1.PodCertificateRequestSpec{NodeName: types.NodeName(g.of(nodeNames))}}
	}
	key := resource.Key{Namespace: made.GetNamespace(), Name: made.GetName()}
	switch old := g.kinds[kind].stored[key]; {
	case old == nil:
		g.put(kind, made)
	case g.one(3):
		g.remove(kind, key)
	case kind == "pods":
		g.put(kind, g.update(old.(*corev1.Pod)))
	case kind == "persistentvolumes":
		g.put(kind, made) // what is bound may change, and theirs reads all of it again
	default: // what nodes have to do with is immutable
		g.remove(kind, key)
		g.put(kind, made)
	}
}

// update returns a pod with what may change of it.
func (g *randomGraph) update(old *corev1.Pod) *corev1.Pod {
	p := old.DeepCopy()
	p.Labels = map[string]string{"step": fmt.Sprint(g.uids)}
	if p.Spec.NodeName == "" && g.one(2) {
		p.Spec.NodeName = g.of(nodeNames)
	}
	if g.one(2) {
		p.Spec.EphemeralContainers = append(p.Spec.EphemeralContainers, corev1.EphemeralContainer{EphemeralContainerCommon: corev1.EphemeralContainerCommon(g.container())})
	}
	g.claims(p)
	return p
}

// claims sets the names of the ResourceClaims that were made for a pod.
func (g *randomGraph) claims(p *corev1.Pod) {
	p.Status = corev1.PodStatus{}
	for _, c := range p.Spec.ResourceClaims {
		status := corev1.PodResourceClaimStatus{Name: c.Name}
		if !g.one(4) {
			name := g.name()
			status.ResourceClaimName = &name
		}
		if !g.one(3) {
			p.Status.ResourceClaimStatuses = append(p.Status.ResourceClaimStatuses, status)
		}
	}
	if g.one(5) {
		name := g.name()
		p.Status.ResourceClaimStatuses = append(p.Status.ResourceClaimStatuses, corev1.PodResourceClaimStatus{Name: "none", ResourceClaimName: &name})
	}
	if g.one(3) {
		p.Status.ExtendedResourceClaimStatus = &corev1.PodExtendedResourceClaimStatus{ResourceClaimName: g.of([]string{"", g.name()})}
	}
}

func (g *randomGraph) container() corev1.Container {
	c := corev1.Container{Name: "c"}
	ref := func() corev1.LocalObjectReference {
		if l := g.local(); l != nil {
			return *l
		}
		return corev1.LocalObjectReference{}
	}
	switch g.IntN(6) {
	case 0:
		c.EnvFrom = []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: ref()}}}
	case 1:
		c.EnvFrom = []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: ref()}}, {}}
	case 2:
		c.Env = []corev1.EnvVar{{Name: "A", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: ref(), Key: "k"}}}}
	case 3:
		c.Env = []corev1.EnvVar{{Name: "A", Value: "v"}, {Name: "B", ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: ref(), Key: "k"}}}}
	}
	return c
}

func (g *randomGraph) pod(m metav1.ObjectMeta) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: m, Spec: corev1.PodSpec{NodeName: g.of([]string{"", "n1", "n1", "n2"}), ServiceAccountName: g.of([]string{"", "x0", "x1"}), Containers: []corev1.Container{g.container()}}}
	if g.one(8) {
		p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: ""}
	}
	if g.one(3) {
		p.Spec.InitContainers = []corev1.Container{g.container()}
	}
	if l := g.local(); l != nil && g.one(3) {
		p.Spec.ImagePullSecrets = []corev1.LocalObjectReference{*l, {}}
	}
	for i := range g.IntN(4) {
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: fmt.Sprintf("v%d", i), VolumeSource: g.source()})
	}
	for i := range g.IntN(3) {
		c, name := corev1.PodResourceClaim{Name: fmt.Sprintf("r%d", i)}, g.name()
		switch g.IntN(3) {
		case 0:
			c.ResourceClaimName = &name
		case 1:
			c.ResourceClaimTemplateName = &name
		}
		p.Spec.ResourceClaims = append(p.Spec.ResourceClaims, c)
	}
	g.claims(p)
	return p
}

// source returns a volume of a pod.
func (g *randomGraph) source() (v corev1.VolumeSource) {
	name := corev1.LocalObjectReference{Name: g.of([]string{"", "x0", "x1", "x2", "x3"})}
	switch g.IntN(19) {
	case 0, 1:
		v.Secret = &corev1.SecretVolumeSource{SecretName: name.Name}
	case 2, 3:
		v.ConfigMap = &corev1.ConfigMapVolumeSource{LocalObjectReference: name}
	case 4:
		v.Projected = &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{{Secret: &corev1.SecretProjection{LocalObjectReference: name}}, {}}}
	case 5:
		v.Projected = &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{}}, {ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: name}}}}
	case 6, 7, 8:
		v.PersistentVolumeClaim = &corev1.PersistentVolumeClaimVolumeSource{ClaimName: g.name()}
	case 9:
		v.Ephemeral = &corev1.EphemeralVolumeSource{VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{}}
	case 10:
		v.CSI = &corev1.CSIVolumeSource{Driver: "d", NodePublishSecretRef: g.local()}
	case 11:
		v.AzureFile = &corev1.AzureFileVolumeSource{SecretName: name.Name}
	case 12:
		v.CephFS = &corev1.CephFSVolumeSource{SecretRef: g.local()}
	case 13:
		v.Cinder = &corev1.CinderVolumeSource{SecretRef: g.local()}
	case 14:
		v.FlexVolume = &corev1.FlexVolumeSource{SecretRef: g.local()}
	case 15:
		v.RBD = &corev1.RBDVolumeSource{SecretRef: g.local()}
	case 16:
		v.ScaleIO = &corev1.ScaleIOVolumeSource{SecretRef: g.local()}
	case 17:
		v.ISCSI = &corev1.ISCSIVolumeSource{SecretRef: g.local()}
	default:
		v.StorageOS = &corev1.StorageOSVolumeSource{SecretRef: g.local()}
	}
	return v
}

// volume returns a PersistentVolume, bound or not.
func (g *randomGraph) volume(m metav1.ObjectMeta) *corev1.PersistentVolume {
	pv := &corev1.PersistentVolume{ObjectMeta: m}
	if !g.one(5) {
		pv.Spec.ClaimRef = &corev1.ObjectReference{Namespace: g.of(podNamespaces), Name: g.of([]string{"x0", "x1", "x2", "p0-v0"})}
	}
	s := &pv.Spec.PersistentVolumeSource
	switch g.IntN(10) {
	case 0, 1:
		s.CSI = &corev1.CSIPersistentVolumeSource{Driver: "d", NodePublishSecretRef: g.distant(), NodeStageSecretRef: g.distant(), NodeExpandSecretRef: g.distant(),
			ControllerPublishSecretRef: g.distant(), ControllerExpandSecretRef: g.distant()}
	case 2:
		s.AzureFile = &corev1.AzureFilePersistentVolumeSource{SecretName: g.of([]string{"", "x0", "x1"})}
		if namespace := g.of([]string{"", "a", "b"}); !g.one(3) {
			s.AzureFile.SecretNamespace = &namespace
		}
	case 3:
		s.CephFS = &corev1.CephFSPersistentVolumeSource{SecretRef: g.distant()}
	case 4:
		s.Cinder = &corev1.CinderPersistentVolumeSource{SecretRef: g.distant()}
	case 5:
		s.FlexVolume = &corev1.FlexPersistentVolumeSource{SecretRef: g.distant()}
	case 6:
		s.RBD = &corev1.RBDPersistentVolumeSource{SecretRef: g.distant()}
	case 7:
		s.ScaleIO = &corev1.ScaleIOPersistentVolumeSource{SecretRef: g.distant()}
	case 8:
		s.ISCSI = &corev1.ISCSIPersistentVolumeSource{SecretRef: g.distant()}
	default:
		s.StorageOS = &corev1.StorageOSPersistentVolumeSource{}
		if d := g.distant(); d != nil {
			s.StorageOS.SecretRef = &corev1.ObjectReference{Namespace: d.Namespace, Name: d.Name}
		}
	}
	return pv
}
