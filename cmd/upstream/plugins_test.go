package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	nodev1 "k8s.io/api/node/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/plugin/pkg/admission/alwayspullimages"
	"k8s.io/kubernetes/plugin/pkg/admission/antiaffinity"
	"k8s.io/kubernetes/plugin/pkg/admission/defaulttolerationseconds"
	"k8s.io/kubernetes/plugin/pkg/admission/extendedresourcetoleration"
	"k8s.io/kubernetes/plugin/pkg/admission/network/defaultingressclass"
	"k8s.io/kubernetes/plugin/pkg/admission/network/denyserviceexternalips"
	"k8s.io/kubernetes/plugin/pkg/admission/nodedeclaredfeatures"
	"k8s.io/kubernetes/plugin/pkg/admission/nodetaint"
	"k8s.io/kubernetes/plugin/pkg/admission/podnodeselector"
	"k8s.io/kubernetes/plugin/pkg/admission/podresize"
	"k8s.io/kubernetes/plugin/pkg/admission/podtolerationrestriction"
	"k8s.io/kubernetes/plugin/pkg/admission/podtopologylabels"
	"k8s.io/kubernetes/plugin/pkg/admission/priority"
	"k8s.io/kubernetes/plugin/pkg/admission/runtimeclass"
	"k8s.io/kubernetes/plugin/pkg/admission/serviceaccount"
	"k8s.io/kubernetes/plugin/pkg/admission/storage/persistentvolume/resize"
	"k8s.io/utils/ptr"

	"portico/internal/testing/kindtest"
	"portico/resource"
	porticorest "portico/resource/rest"
)

// compared are the plugins of both servers, with the resources and subresources of the writes.
var compared = []struct {
	name     string
	register func(*admission.Plugins)
	writes   []string
	config   string
}{
	{"ServiceAccount", serviceaccount.Register, []string{"pods", "pods/ephemeralcontainers"}, ""},
	{"Priority", priority.Register, []string{"pods", "scheduling.k8s.io priorityclasses"}, ""},
	{"RuntimeClass", runtimeclass.Register, []string{"pods"}, ""},
	{"DefaultTolerationSeconds", defaulttolerationseconds.Register, []string{"pods"}, ""},
	{"TaintNodesByCondition", nodetaint.Register, []string{"nodes"}, ""},
	{"AlwaysPullImages", alwayspullimages.Register, []string{"pods"}, ""},
	{"LimitPodHardAntiAffinityTopology", antiaffinity.Register, []string{"pods"}, ""},
	{"ExtendedResourceToleration", extendedresourcetoleration.Register, []string{"pods"}, ""},
	{"PodNodeSelector", podnodeselector.Register, []string{"pods"}, `{"podNodeSelectorPluginConfig":{"default":"a=b,disk=ssd,zone=a"}}`},
	{"PodTolerationRestriction", podtolerationrestriction.Register, []string{"pods"},
		`{"apiVersion":"podtolerationrestriction.admission.k8s.io/v1alpha1","kind":"Configuration","default":[{"key":"d","operator":"Exists"}]}`},
	{"PodTopologyLabels", podtopologylabels.Register, []string{"pods"}, ""},
	{"NodeDeclaredFeatureValidator", nodedeclaredfeatures.Register, []string{"pods", "pods/resize"}, ""},
	{"PodResizeValidator", podresize.Register, []string{"pods", "pods/resize"}, ""},
	{"PersistentVolumeClaimResize", resize.Register, []string{"persistentvolumeclaims"}, ""},
	{"DefaultIngressClass", defaultingressclass.Register, []string{"networking.k8s.io ingresses"}, ""},
	{"DenyServiceExternalIPs", denyserviceexternalips.Register, []string{"services"}, ""},
}

// stored are the objects that plugins find.
func stored() []porticorest.Object {
	named := func(name string, annotations ...string) metav1.ObjectMeta {
		m := metav1.ObjectMeta{Name: name, Annotations: map[string]string{}}
		for i := 0; i < len(annotations); i += 2 {
			m.Annotations[annotations[i]] = annotations[i+1]
		}
		return m
	}
	account := func(name string, annotations ...string) *corev1.ServiceAccount {
		sa := &corev1.ServiceAccount{ObjectMeta: named(name, annotations...), Secrets: []corev1.ObjectReference{{Name: "own"}}, ImagePullSecrets: []corev1.LocalObjectReference{{Name: "pull"}}}
		sa.Namespace = "default"
		return sa
	}
	namespace := named("default", "scheduler.alpha.kubernetes.io/node-selector", "disk=ssd", "scheduler.alpha.kubernetes.io/tolerationsWhitelist", `[{"operator":"Exists","effect":"NoSchedule"},{"key":"d","operator":"Exists"}]`)
	namespace.Labels = map[string]string{"pod-security.kubernetes.io/enforce": "baseline", "pod-security.kubernetes.io/warn": "restricted"}
	node := named("node-1")
	node.Labels = map[string]string{"topology.kubernetes.io/zone": "z", "topology.kubernetes.io/region": "r", "kubernetes.io/os": "linux"}
	quantities := func(cpu, memory string) corev1.ResourceList {
		return corev1.ResourceList{"cpu": apiresource.MustParse(cpu), "memory": apiresource.MustParse(memory)}
	}
	return []porticorest.Object{
		&corev1.Namespace{ObjectMeta: namespace}, account("default", "kubernetes.io/enforce-mountable-secrets", "true"), account("robot"), account("web"),
		&schedulingv1.PriorityClass{ObjectMeta: named("high"), Value: 1000, PreemptionPolicy: ptr.To(corev1.PreemptNever)},
		&schedulingv1.PriorityClass{ObjectMeta: named("usual"), Value: 7, GlobalDefault: true, PreemptionPolicy: ptr.To(corev1.PreemptLowerPriority)},
		&nodev1.RuntimeClass{ObjectMeta: named("heavy"), Handler: "h", Overhead: &nodev1.Overhead{PodFixed: quantities("100m", "1Mi")},
			Scheduling: &nodev1.Scheduling{NodeSelector: map[string]string{"disk": "ssd"}, Tolerations: []corev1.Toleration{{Key: "heavy", Operator: "Exists"}}}},
		&corev1.Node{ObjectMeta: node, Status: corev1.NodeStatus{Allocatable: quantities("2", "2Gi")}},
		&storagev1.StorageClass{ObjectMeta: named("fast", "storageclass.kubernetes.io/is-default-class", "true"), Provisioner: "p", AllowVolumeExpansion: ptr.To(true)},
		&storagev1.StorageClass{ObjectMeta: named("a"), Provisioner: "p"},
		&networkingv1.IngressClass{ObjectMeta: named("web", "ingressclass.kubernetes.io/is-default-class", "true")},
	}
}

// TestPluginsDoAsThoseOfKubeAPIServer calls admission plugins of both servers with writes of valid
// objects and of those with one field changed. Both return the same error or object, and the same
// warnings.
func TestPluginsDoAsThoseOfKubeAPIServer(t *testing.T) {
	klog.SetLogger(logr.Discard())
	byWrite := map[string][]*pluginComparison{}
	var all []*pluginComparison
	for _, p := range compared {
		c := &pluginComparison{name: p.name, ours: newOurs(t, p.name, p.config, stored(), allow), theirs: newTheirs(t, p.name, p.config, p.register, stored(), nil)}
		all = append(all, c)
		for _, w := range p.writes {
			byWrite[w] = append(byWrite[w], c)
		}
	}
	for name, list := range byWrite {
		compareWrites(t, name, list)
	}
	for _, c := range all {
		t.Logf("%s: %d writes, %d refused, %d changed", c.name, c.cases, c.refused, c.changed)
	}
}

// pluginOutcome is what a plugin does with a write; an object that it does not change is "".
type pluginOutcome struct {
	Error, Object string
	Warnings      []string
}

type pluginComparison struct {
	name                               string
	ours                               *ourPlugin
	theirs                             *theirPlugin
	cases, refused, changed, differing int
}

// compareWrites compares the writes of a resource in the form "GROUP RESOURCE/SUBRESOURCE".
func compareWrites(t *testing.T, name string, list []*pluginComparison) {
	group, name, ok := strings.Cut(name, " ")
	if !ok {
		group, name = "", group
	}
	name, sub, _ := strings.Cut(name, "/")
	row := list[0].ours.resources[schema.GroupResource{Group: group, Resource: name}]
	gvk := row.GVK(row.Versions[0])
	sample, err := scheme.Scheme.New(gvk)
	if err != nil {
		t.Fatal(err)
	}
	objects := kindtest.Objects(t, filepath.Join(testdata, "objects"), row.GVR(row.Versions[0]))
	n := 0
	kindtest.Cases(t, objects, reflect.TypeOf(sample).Elem(), sub != "", func(k kindtest.Case) {
		if n++; n%stride != 0 && !relevant.MatchString(k.Name) {
			return
		}
		w := write{kind: row.Kind, gvk: gvk, sub: sub}
		if !w.decode(k.Body(), k.Old) {
			return // it is refused before admission
		}
		for _, c := range list {
			theirs, ok := c.theirs.do(w)
			if !ok {
				continue
			}
			ours := c.ours.do(w)
			c.cases++
			if theirs.Error != "" {
				c.refused++
			}
			if theirs.Object != "" {
				c.changed++
			}
			if !same(ours, theirs) && c.differing < 5 {
				c.differing++
				t.Errorf("%s: %s %s:\nours   %+v\ntheirs %+v", c.name, name, k.Name, ours, theirs)
			}
		}
	})
}

// same reports whether outcomes are the same. Where kube-apiserver answers 500 to a refusal,
// Portico's answer is a 403 with the same text.
func same(ours, theirs pluginOutcome) bool {
	text, internal := strings.CutPrefix(theirs.Error, "500 Internal error occurred: ")
	if internal && strings.HasPrefix(ours.Error, "403 ") && strings.HasSuffix(ours.Error, " is forbidden: "+text) {
		return true
	}
	return reflect.DeepEqual(ours, theirs)
}

// relevant matches the cases that change a field that a plugin looks at. Of the others every
// stride-th is compared: a pod has tens of thousands.
var relevant = regexp.MustCompile(`: (spec\.)?(serviceAccount|automount|priority|preemption|runtimeClass|overhead|tolerations|nodeSelector|nodeName|ingressClass|storageClass|externalIPs|taints|imagePullSecrets|globalDefault|resources|metadata\.annotations|unchanged)`)

const stride = 100

// write is a write of a resource or a subresource, decoded by both servers; the old objects are
// nil for a creation.
type write struct {
	kind             *porticorest.Kind
	gvk              schema.GroupVersionKind
	sub              string
	ours, ourOld     porticorest.Object
	theirs, theirOld runtime.Object
}

// decode decodes a write; not ok: a server refuses the body.
func (w *write) decode(body, old []byte) (ok bool) {
	if w.ours, w.theirs, ok = w.decodeOne(body); !ok || old == nil {
		return ok
	}
	if w.ourOld, w.theirOld, ok = w.decodeOne(old); ok {
		before, _ := meta.Accessor(w.theirOld)
		now, _ := meta.Accessor(w.theirs)
		generations(w.ours, w.ourOld)
		generations(now, before)
	}
	return ok
}

func (w *write) decodeOne(data []byte) (porticorest.Object, runtime.Object, bool) {
	theirs, _, err := legacyscheme.Codecs.UniversalDecoder().Decode(data, &w.gvk, nil)
	if err != nil {
		return nil, nil, false
	}
	decoded, _, err := w.kind.Codec.Decode(data, runtime.ContentTypeJSON, w.gvk, false)
	if err != nil {
		return nil, nil, false
	}
	ours := decoded.(porticorest.Object)
	if w.kind.Strategy.Default != nil {
		w.kind.Strategy.Default(ours)
	}
	return ours, theirs, true
}

func namespaceFor(k *porticorest.Kind) string {
	if k.Namespaced {
		return "default"
	}
	return ""
}

// generations gives an update the generations of one that changes the spec.
func generations(obj, old metav1.Object) {
	obj.SetGeneration(2)
	old.SetGeneration(1)
}

var randomName = regexp.MustCompile(`kube-api-access-[a-z0-9]{5}`)

// normal is an object in JSON without random names and empty values.
func normal(data []byte) string {
	doc := kindtest.Document(randomName.ReplaceAll(data, []byte("kube-api-access")))
	out, _ := json.Marshal(withoutEmpty(doc))
	return string(out)
}

// withoutEmpty drops empty lists, objects and null.
func withoutEmpty(v any) any {
	switch v := v.(type) {
	case map[string]any:
		maps.DeleteFunc(v, func(k string, e any) bool { v[k] = withoutEmpty(e); return v[k] == nil })
		if len(v) == 0 {
			return nil
		}
	case []any:
		for i := range v {
			v[i] = withoutEmpty(v[i])
		}
		if len(v) == 0 {
			return nil
		}
	}
	return v
}

// message is the code and the message of an error.
func message(err error) string {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return "500 Internal error occurred: " + err.Error()
	}
	return fmt.Sprintf("%d %s", status.Status().Code, status.Status().Message)
}

// testdata has objects of every kind.
var testdata = filepath.Join("..", "..", "backends", "core", "kinds", "testdata")

// allow permits everything.
func allow(context.Context, *resource.Action) error { return nil }
