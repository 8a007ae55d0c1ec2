package node

import (
	"sync"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"portico/resource"
	"portico/resource/podrefs"
)

// kind is a kind of objects of the graph.
type kind uint8

const (
	pods kind = iota
	volumes
	attachments
	resourceSlices
	certificates
	// The kinds below are those that pods refer to.
	claims
	secrets
	configMaps
	serviceAccounts
	resourceClaims
)

// object names an object of the graph.
type object struct {
	kind            kind
	namespace, name string
}

// uses counts the pods of each node that refer to one object.
type uses struct {
	object
	nodes map[string]int
}

// graph knows which nodes an object concerns. Objects that pods refer to have counters of pods
// by node, so a lookup costs no walk over pods, however many there are. Safe for concurrent use.
type graph struct {
	mu sync.RWMutex
	// uses are the objects that pods refer to.
	uses map[object]*uses
	// pods are bound to nodes and have what they refer to.
	pods map[resource.Key]boundPod
	// volumes are bound PersistentVolumes, and bySecret are their names by the secrets that they need.
	volumes  map[string]boundVolume
	bySecret map[object]map[string]bool
	// nodes are those of attachments, slices and certificates.
	nodes map[object]string
}

type boundPod struct {
	node string
	refs []*uses
}

type boundVolume struct {
	claim   object
	secrets []object
}

func newGraph() *graph {
	return &graph{
		uses: map[object]*uses{}, pods: map[resource.Key]boundPod{}, volumes: map[string]boundVolume{},
		bySecret: map[object]map[string]bool{}, nodes: map[object]string{},
	}
}

// concerns reports whether an object concerns a node.
func (g *graph) concerns(node string, o object) bool {
	g.mu.RLock()
	defer g.mu.RUnlock()
	switch o.kind {
	case pods:
		return g.pods[resource.Key{Namespace: o.namespace, Name: o.name}].node == node
	case attachments, resourceSlices, certificates:
		return g.nodes[o] == node
	case volumes:
		v, ok := g.volumes[o.name]
		return ok && o.namespace == "" && g.used(node, v.claim)
	case secrets:
		for name := range g.bySecret[o] {
			if g.used(node, g.volumes[name].claim) {
				return true
			}
		}
	}
	return g.used(node, o)
}

func (g *graph) used(node string, o object) bool {
	u := g.uses[o]
	return u != nil && u.nodes[node] > 0
}

// set replaces an object.
func (g *graph) set(k kind, key resource.Key, obj runtime.Object) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.drop(k, key)
	node := ""
	switch obj := obj.(type) {
	case *corev1.Pod:
		g.addPod(key, obj)
	case *corev1.PersistentVolume:
		g.addVolume(obj)
	case *storagev1.VolumeAttachment:
		node = obj.Spec.NodeName
	case *resourcev1.ResourceSlice:
		if obj.Spec.NodeName != nil {
			node = *obj.Spec.NodeName
		}
	case *certificatesv1.PodCertificateRequest:
		node = string(obj.Spec.NodeName)
	}
	if node != "" {
		g.nodes[object{k, key.Namespace, key.Name}] = node
	}
}

// remove removes an object.
func (g *graph) remove(k kind, key resource.Key) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.drop(k, key)
}

// keys returns the objects of a kind.
func (g *graph) keys(k kind) map[resource.Key]bool {
	g.mu.RLock()
	defer g.mu.RUnlock()
	out := map[resource.Key]bool{}
	switch k {
	case pods:
		for key := range g.pods {
			out[key] = true
		}
	case volumes:
		for name := range g.volumes {
			out[resource.Key{Name: name}] = true
		}
	default:
		for o := range g.nodes {
			if o.kind == k {
				out[resource.Key{Namespace: o.namespace, Name: o.name}] = true
			}
		}
	}
	return out
}

func (g *graph) addPod(key resource.Key, pod *corev1.Pod) {
	if pod.Spec.NodeName == "" {
		return
	}
	bound := boundPod{node: pod.Spec.NodeName}
	add := func(k kind, names ...string) {
		for _, name := range names {
			bound.refs = append(bound.refs, g.use(object{k, key.Namespace, name}, bound.node))
		}
	}
	// A node creates mirror pods, which must give it nothing.
	if _, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]; !mirror {
		if pod.Spec.ServiceAccountName != "" {
			add(serviceAccounts, pod.Spec.ServiceAccountName)
		}
		add(secrets, podrefs.Secrets(&pod.Spec)...)
		add(configMaps, podrefs.ConfigMaps(&pod.Spec)...)
		add(claims, podrefs.Claims(pod)...)
		add(resourceClaims, podrefs.ResourceClaims(pod)...)
	}
	g.pods[key] = bound
}

// use counts a reference of a pod of a node.
func (g *graph) use(o object, node string) *uses {
	u := g.uses[o]
	if u == nil {
		u = &uses{object: o, nodes: map[string]int{}}
		g.uses[o] = u
	}
	u.nodes[node]++
	return u
}

func (g *graph) addVolume(pv *corev1.PersistentVolume) {
	if pv.Spec.ClaimRef == nil {
		return
	}
	v := boundVolume{claim: object{claims, pv.Spec.ClaimRef.Namespace, pv.Spec.ClaimRef.Name}}
	for _, s := range podrefs.VolumeSecrets(pv) {
		o := object{secrets, s.Namespace, s.Name}
		if g.bySecret[o] == nil {
			g.bySecret[o] = map[string]bool{}
		}
		g.bySecret[o][pv.Name] = true
		v.secrets = append(v.secrets, o)
	}
	g.volumes[pv.Name] = v
}

func (g *graph) drop(k kind, key resource.Key) {
	switch k {
	case pods:
		pod := g.pods[key]
		for _, u := range pod.refs {
			if u.nodes[pod.node]--; u.nodes[pod.node] == 0 {
				delete(u.nodes, pod.node)
			}
			if len(u.nodes) == 0 {
				delete(g.uses, u.object)
			}
		}
		delete(g.pods, key)
	case volumes:
		for _, o := range g.volumes[key.Name].secrets {
			if delete(g.bySecret[o], key.Name); len(g.bySecret[o]) == 0 {
				delete(g.bySecret, o)
			}
		}
		delete(g.volumes, key.Name)
	default:
		delete(g.nodes, object{k, key.Namespace, key.Name})
	}
}
