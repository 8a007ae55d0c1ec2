package plugins

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"portico/resource"
	"portico/resource/rest"
)

// configure writes the configuration of one plugin.
func (w *world) configure(plugin string, config any) {
	w.t.Helper()
	data, err := json.Marshal(map[string]any{
		"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AdmissionConfiguration", "plugins": []any{map[string]any{"name": plugin, "configuration": config}},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.options.ConfigFile = filepath.Join(w.t.TempDir(), "admission.json")
	if err := os.WriteFile(w.options.ConfigFile, data, 0o600); err != nil {
		w.t.Fatal(err)
	}
}

func namespaceOf(annotations map[string]string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ns", Annotations: annotations}}
}

// Writes in a missing namespace are a 404, or create it.
func TestNamespaceExistsAndAutoProvision(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	exists, provision := w.only("NamespaceExists"), w.only("NamespaceAutoProvision")
	for _, a := range []*rest.Attributes{w.write(aPod(), nil), w.write(aPod(), aPod()), w.write(nil, aPod())} {
		if err := admit(t, exists, a); !apierrors.IsNotFound(err) || !strings.Contains(err.Error(), `namespaces "ns" not found`) {
			t.Errorf("%s: %v", a.Operation, err)
		}
	}
	expect(t, "namespace", admit(t, exists, w.write(namespaceOf(nil), nil)), "")
	expect(t, "dry run", admit(t, provision, w.write(aPod(), nil, func(a *rest.Attributes) { a.DryRun = true })), "")
	expect(t, "update", admit(t, provision, w.write(aPod(), aPod())), "")
	if err := admit(t, exists, w.write(aPod(), nil)); !apierrors.IsNotFound(err) {
		t.Errorf("created without need: %v", err)
	}
	for range 2 {
		expect(t, "create", admit(t, provision, w.write(aPod(), nil)), "")
		expect(t, "exists", admit(t, exists, w.write(aPod(), nil)), "")
	}
	ns, err := rest.GetObject[*corev1.Namespace](t.Context(), w.resources["namespaces"], resource.Key{Name: "ns"}, cached)
	if err != nil || ns.Status.Phase != corev1.NamespaceActive || ns.Labels["kubernetes.io/metadata.name"] != "ns" || len(ns.Spec.Finalizers) != 1 {
		t.Errorf("%+v %v", ns, err)
	}
}

// A pod gets the node selector of its namespace, within the one that is configured for it.
func TestPodNodeSelector(t *testing.T) {
	t.Parallel()
	const conflict, outside = "pod node label selector conflicts with its namespace node label selector", "pod node label selector labels conflict with its namespace whitelist"
	for _, tc := range []struct {
		name, cluster, allowed string
		namespace              *string
		pod, want              map[string]string
		err                    string
	}{
		{name: "none"},
		{name: "default", cluster: "infra = false", want: map[string]string{"infra": "false"}},
		{name: "spaces", namespace: ptr.To(" infra = false "), want: map[string]string{"infra": "false"}},
		{name: "namespace", cluster: "infra = false", namespace: ptr.To("infra=true"), want: map[string]string{"infra": "true"}},
		{name: "empty", cluster: "infra = false", namespace: ptr.To("")},
		{name: "merged", namespace: ptr.To("infra=true"), pod: map[string]string{"env": "test"}, want: map[string]string{"infra": "true", "env": "test"}},
		{name: "conflict", cluster: "env = test", namespace: ptr.To("infra=true"), pod: map[string]string{"infra": "false"}, err: conflict},
		{name: "within", namespace: ptr.To("infra=false, env = dev"), allowed: "env=dev, infra=false, color=blue", pod: map[string]string{"env": "dev", "color": "blue"}, want: map[string]string{"infra": "false", "env": "dev", "color": "blue"}},
		{name: "outside", namespace: ptr.To("infra=false, env = dev"), allowed: "env=dev, infra=true, color=blue", pod: map[string]string{"env": "dev", "color": "blue"}, err: outside},
		{name: "default outside", cluster: "env=dev", allowed: "env=prd", err: outside},
	} {
		ns := namespaceOf(nil)
		if tc.namespace != nil {
			ns = namespaceOf(map[string]string{"scheduler.alpha.kubernetes.io/node-selector": *tc.namespace})
		}
		w := newWorld(t, ns)
		w.configure("PodNodeSelector", map[string]any{"podNodeSelectorPluginConfig": map[string]string{"clusterDefaultNodeSelector": tc.cluster, "ns": tc.allowed}})
		pod := aPod(func(p *corev1.Pod) { p.Spec.NodeSelector = tc.pod })
		expect(t, tc.name, admit(t, w.only("PodNodeSelector"), w.write(pod, nil)), tc.err)
		if tc.err == "" && !maps.Equal(pod.Spec.NodeSelector, tc.want) {
			t.Errorf("%s: %v", tc.name, pod.Spec.NodeSelector)
		}
	}
}

// A pod gets the default tolerations of its namespace, or of the configuration, and has no other
// than the allowed ones.
func TestPodTolerationRestriction(t *testing.T) {
	t.Parallel()
	one, two := corev1.Toleration{Key: "k", Operator: "Equal", Value: "1", Effect: "NoSchedule"}, corev1.Toleration{Key: "k", Operator: "Equal", Value: "2", Effect: "NoSchedule"}
	pressure := corev1.Toleration{Key: "node.kubernetes.io/memory-pressure", Operator: "Exists", Effect: "NoSchedule"}
	type lists = []corev1.Toleration
	for _, tc := range []struct {
		name                               string
		defaults, allowed                  lists // of the cluster
		namespaceDefaults, namespaceAllows lists // nil: no annotation
		cpu                                bool
		pod, want                          lists
		err                                string
	}{
		{name: "cluster", defaults: lists{one}, want: lists{one}},
		{name: "cluster and pod", defaults: lists{one}, pod: lists{one}, want: lists{one}},
		{name: "namespace", namespaceDefaults: lists{one}, want: lists{one}},
		{name: "namespace and pod", namespaceDefaults: lists{one}, pod: lists{two}, want: lists{two, one}},
		{name: "empty namespace", defaults: lists{two}, namespaceDefaults: lists{}, pod: lists{one}, want: lists{one}},
		{name: "allowed", namespaceDefaults: lists{one}, namespaceAllows: lists{one}, want: lists{one}},
		{name: "not allowed", namespaceDefaults: lists{one}, namespaceAllows: lists{two}, err: "pod tolerations (possibly merged with namespace default tolerations) conflict with its namespace whitelist"},
		{name: "not allowed in the cluster", allowed: lists{two}, pod: lists{one}, err: "conflict with its cluster whitelist"},
		{name: "overridden", allowed: lists{two}, namespaceAllows: lists{}, pod: lists{one}, want: lists{one}},
		{name: "burstable", namespaceDefaults: lists{one}, cpu: true, want: lists{one, pressure}},
		{name: "wider", pod: lists{{Operator: "Exists"}}, namespaceDefaults: lists{one}, want: lists{{Operator: "Exists"}}},
	} {
		annotations := map[string]string{}
		for key, list := range map[string]lists{defaultTolerations: tc.namespaceDefaults, allowedTolerations: tc.namespaceAllows} {
			if list != nil {
				text, _ := json.Marshal(list)
				annotations[key] = string(text)
			}
		}
		w := newWorld(t, namespaceOf(annotations))
		w.configure("PodTolerationRestriction", map[string]any{
			"apiVersion": "podtolerationrestriction.admission.k8s.io/v1alpha1", "kind": "Configuration", "default": tc.defaults, "whitelist": tc.allowed,
		})
		pod := aPod(func(p *corev1.Pod) {
			p.Spec.Tolerations = tc.pod
			if tc.cpu {
				p.Spec.Containers[0].Resources.Requests = resources("cpu", "1")
			}
		})
		expect(t, tc.name, admit(t, w.only("PodTolerationRestriction"), w.write(pod, nil)), tc.err)
		if tc.err == "" && !equality.Semantic.DeepEqual(pod.Spec.Tolerations, tc.want) {
			t.Errorf("%s: %v", tc.name, pod.Spec.Tolerations)
		}
	}
}

// Events beyond a limit are a 429, with each limit that is reached.
func TestEventRateLimit(t *testing.T) {
	t.Parallel()
	event := func(namespace, host string) *corev1.Event {
		return &corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "e"}, Source: corev1.EventSource{Host: host}}
	}
	for _, tc := range []struct {
		name, kind string
		events     []*corev1.Event
		err        string // of the last one
	}{
		{"server", "Server", []*corev1.Event{event("a", "h"), event("b", "i"), event("c", "j")}, "limit reached on type Server for key "},
		{"namespace", "Namespace", []*corev1.Event{event("a", "h"), event("a", "h"), event("a", "i")}, "limit reached on type Namespace for key a"},
		{"other namespace", "Namespace", []*corev1.Event{event("a", "h"), event("a", "h"), event("b", "h")}, ""},
		{"user", "User", []*corev1.Event{event("a", "h"), event("b", "h"), event("c", "h")}, "limit reached on type User for key alice"},
		{"source", "SourceAndObject", []*corev1.Event{event("a", "h"), event("b", "h"), event("c", "h")}, "limit reached on type SourceAndObject for key h"},
	} {
		w := newWorld(t)
		w.configure("EventRateLimit", map[string]any{"apiVersion": "eventratelimit.admission.k8s.io/v1alpha1", "kind": "Configuration", "limits": []any{map[string]any{"type": tc.kind, "qps": 1, "burst": 2}}})
		plugin := w.only("EventRateLimit")
		for range 5 {
			if err := admit(t, plugin, w.write(tc.events[0], nil, func(a *rest.Attributes) { a.DryRun = true })); err != nil {
				t.Errorf("%s: dry run: %v", tc.name, err)
			}
		}
		var err error
		for _, e := range tc.events {
			if err != nil {
				t.Errorf("%s: early: %v", tc.name, err)
			}
			err = admit(t, plugin, w.write(e, nil))
		}
		if (err == nil) != (tc.err == "") || err != nil && (!apierrors.IsTooManyRequests(err) || !strings.Contains(err.Error(), tc.err)) {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
	for text, config := range map[string]any{
		"limits: Invalid value: null: must not be empty": nil,
		"limits[0].type: Unsupported value":              map[string]any{"apiVersion": "eventratelimit.admission.k8s.io/v1alpha1", "kind": "Configuration", "limits": []any{map[string]any{"type": "x", "qps": 1, "burst": 1}}},
		`unknown field "limit"`:                          map[string]any{"limit": 1},
		"expected kind Configuration of eventratelimit":  map[string]any{"limits": []any{}},
	} {
		w := newWorld(t)
		w.options.Enable = []string{"EventRateLimit"}
		if config != nil {
			w.configure("EventRateLimit", config)
		}
		if err := w.options.Check(); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// Owner references are for those that may delete the object, blocking ones for those that may set
// finalizers of the owner.
func TestOwnerReferencesPermissionEnforcement(t *testing.T) {
	t.Parallel()
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{{Version: "v1"}})
	mapper.Add(schema.GroupVersionKind{Version: "v1", Kind: "ReplicationController"}, meta.RESTScopeNamespace)
	mapper.Add(schema.GroupVersionKind{Version: "v1", Kind: "Node"}, meta.RESTScopeRoot)
	ref := func(kind, name string, block *bool) metav1.OwnerReference {
		return metav1.OwnerReference{APIVersion: "v1", Kind: kind, Name: name, BlockOwnerDeletion: block}
	}
	rc, blocking, node := ref("ReplicationController", "rc", nil), ref("ReplicationController", "rc", ptr.To(true)), ref("Node", "n", ptr.To(true))
	pod := func(refs ...metav1.OwnerReference) *corev1.Pod {
		return aPod(func(p *corev1.Pod) { p.OwnerReferences = refs })
	}
	const noDelete, noBlock = "cannot set an ownerRef on a resource you can't delete: ", "cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on: "
	may := func(verb, res, sub, namespace string) func(*resource.Action) bool {
		return func(a *resource.Action) bool {
			return a.Verb == verb && a.Resource == res && a.Subresource == sub && a.Namespace == namespace && a.User.Name == "alice"
		}
	}
	nothing := func(*resource.Action) bool { return false }
	for _, tc := range []struct {
		name     string
		allowed  func(*resource.Action) bool
		old, now *corev1.Pod
		sub, err string
	}{
		{name: "create", allowed: nothing, now: pod(rc)},
		{name: "no change", allowed: nothing, old: pod(rc), now: pod(rc)},
		{name: "added", allowed: nothing, old: pod(), now: pod(rc), err: noDelete},
		{name: "removed", allowed: nothing, old: pod(rc), now: pod(), err: noDelete},
		{name: "status", allowed: nothing, old: pod(), now: pod(rc), sub: "status"},
		{name: "deleter", allowed: may("delete", "pods", "", "ns"), old: pod(), now: pod(rc)},
		{name: "blocks", allowed: nothing, now: pod(blocking), err: noBlock},
		{name: "blocks a node", allowed: nothing, now: pod(node), err: noBlock},
		{name: "finalizers of nodes", allowed: may("update", "nodes", "finalizers", ""), now: pod(node)},
		{name: "finalizers of controllers", allowed: may("update", "replicationcontrollers", "finalizers", "ns"), now: pod(blocking)},
		{name: "all finalizers", allowed: may("update", "*", "finalizers", ""), now: pod(blocking, node, ref("Unknown", "x", ptr.To(true)))},
		{name: "unknown kind", allowed: nothing, now: pod(ref("Unknown", "x", ptr.To(true))), err: "cannot find RESTMapping for APIVersion v1 Kind Unknown: no matches for kind"},
		{name: "blocked before", allowed: may("delete", "pods", "", "ns"), old: pod(blocking), now: pod(blocking, rc)},
	} {
		w := newWorld(t)
		w.allowed, w.mapper = tc.allowed, mapper
		a := w.write(tc.now, nil, subresource(tc.sub))
		if tc.old != nil {
			a = w.write(tc.now, tc.old, subresource(tc.sub))
		}
		expect(t, tc.name, admit(t, w.only("OwnerReferencesPermissionEnforcement"), a), tc.err)
	}
}
