package managedfields

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	upstream "k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/kube-openapi/pkg/validation/spec"
	kjson "sigs.k8s.io/json"
)

// ownedSchema is the schema of Widget, with every form of ownership.
const ownedSchema = `{"type":"object","properties":{
 "apiVersion":{"type":"string"},"kind":{"type":"string"},
 "metadata":{"type":"object","properties":{
  "name":{"type":"string"},"namespace":{"type":"string"},"uid":{"type":"string"},"generation":{"type":"integer"},
  "labels":{"type":"object","additionalProperties":{"type":"string"}},"annotations":{"type":"object","additionalProperties":{"type":"string"}},
  "finalizers":{"type":"array","x-kubernetes-list-type":"set","items":{"type":"string"}},
  "managedFields":{"type":"array","x-kubernetes-list-type":"atomic","items":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}},
 "spec":{"type":"object","properties":{
  "text":{"type":"string"},"number":{"type":"integer"},"ratio":{"type":"number"},"yes":{"type":"boolean"},
  "either":{"x-kubernetes-int-or-string":true},
  "free":{"type":"object","x-kubernetes-preserve-unknown-fields":true},
  "whole":{"type":"object","x-kubernetes-map-type":"atomic","additionalProperties":{"type":"string"}},
  "env":{"type":"object","additionalProperties":{"type":"object","properties":{"a":{"type":"string"}}}},
  "plain":{"type":"array","items":{"type":"object","properties":{"a":{"type":"string"}}}},
  "set":{"type":"array","x-kubernetes-list-type":"set","items":{"type":"integer"}},
  "byName":{"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["name"],
   "items":{"type":"object","properties":{"name":{"type":"string"},"a":{"type":"string"}}}},
  "byTwo":{"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["port","protocol"],
   "items":{"type":"object","properties":{"port":{"type":"integer"},"protocol":{"type":"string","default":"TCP"},"on":{"type":"boolean"}}}}}},
 "status":{"type":"object","properties":{"phase":{"type":"string"}}}},
 "x-kubernetes-group-version-kind":[{"group":"example.com","version":"v1","kind":"Widget"}]}`

func ownedConverter(t testing.TB) upstream.TypeConverter {
	t.Helper()
	s := &spec.Schema{}
	if err := json.Unmarshal([]byte(ownedSchema), s); err != nil {
		t.Fatal(err)
	}
	c, err := upstream.NewTypeConverter(map[string]*spec.Schema{"widget": s}, false)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// recordNew records a new object with recordCreate and with upstream's manager, and compares
// the results. It returns the result of recordCreate.
func recordNew(t *testing.T, k testKind, obj Object, resets []string) bool {
	t.Helper()
	slow := obj.DeepCopyObject().(Object)
	untouched := shown(obj)
	w := k.tracker("m")
	w.Resets = resets
	done, err := w.recordCreate(obj)
	if err != nil {
		t.Fatal(err)
	}
	if !done {
		if now := shown(obj); now != untouched {
			t.Fatalf("nothing was recorded, but %s became %s", untouched, now)
		}
		return false
	}
	if err := upstreamUpdate(w, slow); err != nil {
		t.Fatalf("recorded, but upstream fails: %v: %s", err, untouched)
	}
	for _, o := range []Object{obj, slow} {
		entries := o.GetManagedFields()
		for i := range entries {
			if d := time.Since(entries[i].Time.Time); d < 0 || d > time.Hour {
				t.Fatalf("time %v", entries[i].Time)
			}
			entries[i].Time = nil
		}
		o.SetManagedFields(entries)
	}
	if shown(obj) != shown(slow) {
		t.Fatalf("of %s\nrecorded %s\nwant     %s", untouched, shown(obj), shown(slow))
	}
	return true
}

// upstreamUpdate records a new object with upstream's manager.
func upstreamUpdate(w *Tracker, obj Object) error {
	m, _, err := w.manager(nil)
	if err != nil {
		return err
	}
	live, err := w.live(nil)
	if err == nil {
		_, err = m.Update(live, obj, w.Manager)
	}
	return err
}

// newWidget returns the Widget of a JSON text; nil: codecs reject it.
func newWidget(data string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	if kjson.UnmarshalCaseSensitivePreserveInts([]byte(data), &u.Object) != nil || u.Object == nil {
		return nil
	}
	if meta, found := u.Object["metadata"]; found {
		if _, ok := meta.(map[string]any); !ok {
			return nil
		}
	}
	u.SetAPIVersion("example.com/v1")
	u.SetKind("Widget")
	return u
}

// newObjects are new objects, and whether recordCreate must record them.
var newObjects = map[string]bool{
	`{"metadata":{"name":"a"}}`: true,
	`{"metadata":{}}`:           true,
	`{}`:                        false,
	`{"metadata":{"name":"a","namespace":"b","uid":"c","generation":1,"labels":{"l":"1","":"x"},"annotations":{},"finalizers":["a/b","c"]}}`: true,
	`{"metadata":{"name":null,"labels":null},"spec":null,"status":{"phase":"x"}}`:                                                            true,
	`{"metadata":{"name":"a"},"spec":{"text":"t","number":1,"ratio":1.5,"yes":true,"either":"x"}}`:                                           true,
	`{"metadata":{"name":"a"},"spec":{"either":5,"free":{"a":[1,{"b":null}],"b":{},"c":{"d":1.5}},"whole":{"a":"b"}}}`:                       true,
	`{"metadata":{"name":"a"},"spec":{"env":{"x":{"a":"1"},"y":{},"z":null,".":{"a":"1"}},"plain":[{"a":"1"},{},null],"whole":{}}}`:          true,
	`{"metadata":{"name":"a"},"spec":{"set":[1,2,-3],"byName":[{"name":"x","a":"1"},{"name":"y"}],"plain":[]}}`:                              true,
	`{"metadata":{"name":"a"},"spec":{"byTwo":[{"port":1,"protocol":"UDP","on":true},{"protocol":"TCP","port":1}],"byName":[]}}`:             true,
	`{"metadata":{"name":"a"},"spec":{"byTwo":[{"port":1}]}}`:                                                                                false,
	`{"metadata":{"name":"a"},"spec":{"set":[1,1]}}`:                                                                                         false,
	`{"metadata":{"name":"a"},"spec":{"byName":[{"name":"x"},{"name":"x"}]}}`:                                                                false,
	`{"metadata":{"name":"a"},"spec":{"byName":[{"name":"é\"<\u2028\u007f"}]}}`:                                                              true,
	`{"metadata":{"name":"a"},"spec":{"byName":[{"name":"&"},{"name":"\u0026"}]}}`:                                                           false,
	`{"metadata":{"name":"a"},"spec":{"byName":[null]}}`:                                                                                     false,
	`{"metadata":{"name":"a"},"spec":{"set":[1.0]}}`:                                                                                         false,
	`{"metadata":{"name":"a"},"spec":{"nope":1}}`:                                                                                            false,
	`{"metadata":{"name":"a"},"spec":{"text":1}}`:                                                                                            false,
	`{"metadata":{"name":"a"},"spec":{"plain":{"a":"1"}}}`:                                                                                   false,
	`{"metadata":{"name":"a"},"spec":{"plain":[{"b":"1"}]}}`:                                                                                 false,
	`{"metadata":{"name":"a","managedFields":[]}}`:                                                                                           false,
	`{"metadata":{"name":{"x":1}}}`:                                                                                                          false,
	`{"metadata":{"name":"a"},"spec":{"free":{"\u0000":1,"f:x":{"k:{}":2},"é":"<>&"}}}`:                                                      true,
}

func TestRecordCreateAgreesWithUpstream(t *testing.T) {
	converter := ownedConverter(t)
	for data, want := range newObjects {
		for _, resets := range [][]string{nil, {"status"}, {"spec", "metadata"}} {
			if done := recordNew(t, widgets(converter), newWidget(data), resets); done != want {
				t.Errorf("%s: recorded %t", data, done)
			}
		}
	}
	// Without a schema, types are deduced from the values.
	if !recordNew(t, widgets(upstream.NewDeducedTypeConverter()), newWidget(`{"metadata":{"name":{"x":1},"uid":"u"},"spec":{"a":[1],"b":{"c":null,"d":{}}}}`), nil) {
		t.Error("an object of deduced types was not recorded")
	}
}

// recordCreate records what upstream's manager records.
func FuzzRecordCreate(f *testing.F) {
	for data := range newObjects {
		f.Add([]byte(data), true)
		f.Add([]byte(data), false)
	}
	declared, deduced := ownedConverter(f), upstream.NewDeducedTypeConverter()
	f.Fuzz(func(t *testing.T, data []byte, known bool) {
		converter := deduced
		if known {
			converter = declared
		}
		if u := newWidget(string(data)); u != nil {
			recordNew(t, widgets(converter), u, []string{"status"})
		}
	})
}

// recordCreate records Go types as upstream's manager does.
func TestRecordCreateOfGoTypes(t *testing.T) {
	pod := core("Pod")
	for i, spec := range []string{
		`{}`, `{"containers":[]}`,
		`{"containers":[{"name":"c","image":"i","ports":[{"containerPort":80,"protocol":"TCP"},{"containerPort":80,"protocol":"UDP","name":"x"}]}]}`,
		`{"containers":[{"name":"c","env":[{"name":"A","value":"1"},{"name":"B","valueFrom":{"fieldRef":{"fieldPath":"p"}}}],"command":["a","b"]},{"name":"d"}]}`,
		`{"containers":[{"name":"d","resources":{"limits":{"cpu":"500m","memory":"1Gi"},"requests":{}}}],"nodeSelector":{"a":"b"}}`,
		`{"containers":[{"name":"e","livenessProbe":{"httpGet":{"path":"/","port":"http"}},"volumeMounts":[{"name":"v","mountPath":"/x"}]}]}`,
		`{"volumes":[{"name":"v","emptyDir":{}},{"name":"w","configMap":{"name":"x","items":[{"key":"k","path":"p"}]}}],"terminationGracePeriodSeconds":5}`,
		`{"securityContext":{"runAsUser":1},"tolerations":[{"key":"k"}],"imagePullSecrets":[{"name":"s"}],"hostAliases":[{"ip":"1.2.3.4","hostnames":["a"]}]}`,
		`{"securityContext":{},"nodeSelector":{},"affinity":{"nodeAffinity":{}},"topologySpreadConstraints":[{"topologyKey":"k","whenUnsatisfiable":"x"}]}`,
	} {
		obj := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Name: "a", Labels: map[string]string{"a": "1"}, Finalizers: []string{"a/b", "c/d"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "X", Name: "n", UID: "1", Controller: new(true)}},
		}}
		if err := json.Unmarshal([]byte(spec), &obj.Spec); err != nil {
			t.Fatal(err)
		}
		obj.Status.Phase = corev1.PodPending
		obj.SetGroupVersionKind(pod.gvk)
		var resets []string
		if i%2 == 0 {
			resets = []string{"status"}
		}
		if !recordNew(t, pod, obj, resets) {
			t.Errorf("%s was not recorded", spec)
		}
	}
}

// BenchmarkCreate records a new custom resource of 3.5 KB and a config map.
func BenchmarkCreate(b *testing.B) {
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Data: map[string]string{"k": "v"}}
	cm.SetGroupVersionKind(core("ConfigMap").gvk)
	bench := func(name string, k testKind, u Object, upstream bool) {
		b.Run(fmt.Sprintf("%s/upstream=%t", name, upstream), func(b *testing.B) {
			w := k.tracker("m")
			b.ReportAllocs()
			for b.Loop() {
				u.SetManagedFields(nil)
				if !upstream {
					if done, err := w.recordCreate(u); !done || err != nil {
						b.Fatal(done, err)
					}
					continue
				}
				if err := upstreamUpdate(w, u); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	for _, upstream := range []bool{false, true} {
		bench("widget", widgets(ownedConverter(b)), wideWidget(100, 20), upstream)
		bench("configmap", core("ConfigMap"), cm, upstream)
	}
}
