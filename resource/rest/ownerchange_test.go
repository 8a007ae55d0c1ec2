package rest

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/managedfields"
	kjson "sigs.k8s.io/json"

	"portico/resource"
)

// choices are what a fuzzer decides; when they are used up, it is always 0.
type choices struct{ data []byte }

func (c *choices) of(n int) int {
	if len(c.data) == 0 {
		return 0
	}
	b := c.data[0]
	c.data = c.data[1:]
	return int(b) % n
}

// word is one of few, so that names meet.
func (c *choices) word() string {
	return []string{"a", "b", "c", "", "d.e", "é", "f:x", `"`}[c.of(8)%max(4, c.of(9))]
}

// value is a value for a field of Widget, mostly of the type that it has.
func (c *choices) value(field string) any {
	if c.of(16) == 15 {
		return []any{nil, "x", int64(1), []any{}, map[string]any{}}[c.of(5)]
	}
	n := c.of(4)
	object := func(make func() any) map[string]any {
		m := map[string]any{}
		for range n {
			m[c.word()] = make()
		}
		return m
	}
	array := func(make func() any) []any {
		l := []any{}
		for range n {
			l = append(l, make())
		}
		return l
	}
	text := func() any { return c.word() }
	switch field {
	case "number":
		return int64(c.of(3))
	case "ratio":
		return []any{int64(1), 1.0, 1.5}[c.of(3)]
	case "yes":
		return c.of(2) == 1
	case "either":
		return []any{int64(1), "1", "x"}[c.of(3)]
	case "free":
		return object(func() any {
			return []any{"x", nil, 1.0, int64(1), map[string]any{"a": int64(c.of(2))}, []any{int64(c.of(2))}}[c.of(6)]
		})
	case "whole", "labels", "annotations":
		return object(text)
	case "env":
		return object(func() any { return []any{nil, map[string]any{}, map[string]any{"a": c.word()}}[c.of(3)] })
	case "plain":
		return array(func() any { return map[string]any{"a": c.word()} })
	case "set":
		return array(func() any { return int64(c.of(12)) })
	case "finalizers":
		return array(text)
	case "byName":
		return array(func() any {
			return []any{map[string]any{"name": c.word()}, map[string]any{"name": c.word(), "a": c.word()}, map[string]any{"a": "x"}}[c.of(7)%3]
		})
	case "byTwo":
		return array(func() any {
			item := map[string]any{"port": int64(c.of(12))}
			if c.of(3) > 0 {
				item["protocol"] = []any{"TCP", "UDP"}[c.of(2)]
			}
			if c.of(2) > 0 {
				item["on"] = c.of(2) > 0
			}
			return item
		})
	}
	return c.word()
}

// change makes a change to a Widget, in place.
func (c *choices) change(u map[string]any) {
	part := []string{"spec", "spec", "spec", "metadata", "status"}[c.of(5)]
	fields := map[string][]string{
		"spec":     {"text", "number", "ratio", "yes", "either", "free", "whole", "env", "plain", "set", "byName", "byTwo"},
		"metadata": {"labels", "annotations", "finalizers", "generation"},
		"status":   {"phase"},
	}[part]
	field := fields[c.of(len(fields))]
	in, _ := u[part].(map[string]any)
	if in == nil {
		in = map[string]any{}
		u[part] = in
	}
	switch c.of(6) {
	case 0:
		delete(in, field)
	case 1:
		if part != "metadata" {
			delete(u, part)
		}
	case 2:
		if m, ok := in[field].(map[string]any); ok {
			m[c.word()] = "x"
			break
		}
		if l, ok := in[field].([]any); ok && len(l) > 1 {
			in[field] = slices.Clone(l[1:])
		}
	default:
		if field == "generation" {
			in[field] = int64(c.of(3))
		} else {
			in[field] = c.value(field)
		}
	}
}

// history is an object that changes, and whether somebody records it by the walk
// as upstream's tracker does.
type history struct {
	t      *testing.T
	kind   *Kind
	stored Object
	told   int
}

func (h *history) write(manager, subresource string) *write {
	act := &resource.Action{IsResource: true, Group: h.kind.Group, Version: "v1", Resource: h.kind.Resource, Namespace: "default"}
	w := newWrite(New(Config{}), act, &Resource{Kind: h.kind}, nil, writeOptions{owner: manager, object: &metav1.UpdateOptions{}})
	w.resets, w.subresource = []string{"status"}, subresource
	if subresource != "" {
		w.resets = []string{"spec", "metadata"}
	}
	return w
}

// step has a change recorded in both ways. The next step starts from it, with
// other times.
func (h *history) step(next Object, manager, subresource string, when int) {
	h.t.Helper()
	var u, slow Object
	var told bool
	var failed error
	for start := int64(0); start != time.Now().Unix(); {
		start = time.Now().Unix()
		u, slow = next.DeepCopyObject().(Object), next.DeepCopyObject().(Object)
		w := h.write(manager, subresource)
		var err error
		if told, err = w.recordChange(u, h.stored); err != nil {
			h.t.Fatal(err)
		}
		if !told && !reflect.DeepEqual(u, next) {
			h.t.Fatalf("nothing was recorded, but it became %s", shown(u))
		}
		m, _, err := w.fieldManager(h.stored)
		if err != nil {
			h.t.Fatal(err)
		}
		live, err := w.live(h.stored)
		if err != nil {
			h.t.Fatal(err)
		}
		_, failed = m.Update(live, slow, w.owner)
	}
	if told {
		h.told++
		if failed != nil {
			h.t.Fatalf("told, but refused: %v: %s", failed, shown(next))
		}
		if shown(u) != shown(slow) {
			h.t.Fatalf("%s by %q %q\nfrom %s\nto   %s\ntold %s\nwant %s", h.kind.Kind, manager, subresource, shown(h.stored), shown(next), shown(u), shown(slow))
		}
	}
	if failed != nil {
		return
	}
	slow.SetUID("u")
	h.stored = slow
	entries := slow.GetManagedFields()
	for i := range entries {
		if at := entries[i].Time; at != nil && time.Since(at.Time) < time.Hour {
			then := metav1.Unix(int64(1e9+when/2), 0)
			entries[i].Time = &then
		}
	}
	slow.SetManagedFields(entries)
}

func shown(obj any) string {
	if o, ok := obj.(Object); ok && (o == nil || reflect.ValueOf(o).IsNil()) {
		return "nothing"
	}
	data, err := json.Marshal(obj)
	if err != nil {
		return err.Error()
	}
	return string(data)
}

// applyBy lets somebody apply something, by upstream's tracker alone.
func (h *history) applyBy(manager string, patch map[string]any) {
	w := h.write(manager, "")
	m, _, err := w.fieldManager(h.stored)
	if err != nil {
		h.t.Fatal(err)
	}
	out, err := m.Apply(h.stored.DeepCopyObject(), &unstructured.Unstructured{Object: patch}, manager, true)
	if err != nil {
		return
	}
	if o, ok := out.(Object); ok && len(o.GetManagedFields()) > 0 {
		h.stored = o
	}
}

// widgetHistory is a history of an object without Go types.
func widgetHistory(t *testing.T, converter managedfields.TypeConverter, c *choices) int {
	k := widgetKind("v1")
	k.Ownership = func() (managedfields.TypeConverter, error) { return converter, nil }
	h := &history{t: t, kind: k}
	next := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": "a"}}}
	next.SetGroupVersionKind(k.GVK("v1"))
	for i := range 12 {
		for range 1 + c.of(3) {
			c.change(next.Object)
		}
		manager := []string{"m", "n", "o", ""}[c.of(4)]
		switch c.of(8) {
		case 0:
			manager = fmt.Sprint("x", i)
		case 1:
			next.SetManagedFields(nil)
		case 2:
			if h.stored != nil {
				patch := map[string]any{"apiVersion": "example.com/v1", "kind": "Widget", "metadata": map[string]any{"name": "a"}}
				c.change(patch)
				h.applyBy(manager+"a", patch)
			}
		case 3:
			record(next, c)
		}
		subresource := []string{"", "", "status"}[c.of(3)]
		if h.stored == nil {
			subresource = ""
		}
		h.step(next, manager, subresource, i)
		if h.stored == nil {
			return h.told
		}
		next = h.stored.DeepCopyObject().(*unstructured.Unstructured)
		if len(c.data) == 0 {
			break
		}
	}
	return h.told
}

// record does something to the record of an object that only some clients do.
func record(u *unstructured.Unstructured, c *choices) {
	entries := rawOwners(u)
	if len(entries) == 0 {
		return
	}
	entry := entries[c.of(len(entries))].(map[string]any)
	switch c.of(4) {
	case 0:
		entry["apiVersion"] = "example.com/v1beta1"
	case 1:
		entry["fieldsV1"] = map[string]any{"f:spec": map[string]any{"f:whole": map[string]any{"f:a": map[string]any{}}, "f:byName": map[string]any{`k:{"name": "a"}`: map[string]any{}}}}
	case 2:
		entry["fieldsV1"] = map[string]any{"f:metadata": map[string]any{"f:name": map[string]any{}, "f:labels": map[string]any{"f:a": map[string]any{}}}}
	default:
		entry["manager"] = "m"
	}
}

// typedHistory is a history of an object of a Go type.
func typedHistory(t *testing.T, c *choices) int {
	pods := &Kind{
		Info:      resource.Info{Versions: []string{"v1"}, Resource: "pods", Kind: "Pod", Namespaced: true},
		Codec:     Typed(coreScheme(), corev1.SchemeGroupVersion.WithKind("Pod")),
		Ownership: builtinOwners,
	}
	h := &history{t: t, kind: pods}
	next := &corev1.Pod{}
	for i := range 10 {
		for range 1 + c.of(4) {
			changePod(next, c)
		}
		manager := []string{"m", "n", "o", ""}[c.of(4)]
		if c.of(6) == 0 {
			manager = fmt.Sprint("x", i)
		}
		if c.of(3) == 0 {
			next.ManagedFields = nil
		}
		next.SetGroupVersionKind(pods.GVK("v1"))
		subresource := []string{"", "", "status"}[c.of(3)]
		if h.stored == nil {
			subresource = ""
		}
		h.step(next, manager, subresource, i)
		if h.stored == nil {
			break
		}
		next = h.stored.DeepCopyObject().(*corev1.Pod)
		if len(c.data) == 0 {
			break
		}
	}
	return h.told
}

// podParts are parts of pods with every way in which Go types are owned.
var podParts = []string{
	`{"metadata":{"labels":{"a":"1","b":"2"},"annotations":{"x":"y"},"finalizers":["a/b","c/d"]}}`,
	`{"metadata":{"labels":null,"finalizers":["c/d"],"generation":2,"creationTimestamp":"2020-01-01T00:00:00Z"}}`,
	`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"X","name":"n","uid":"1","controller":true},{"apiVersion":"v1","kind":"X","name":"n","uid":"2"}]}}`,
	`{"spec":{"containers":[{"name":"c","image":"i","ports":[{"containerPort":80,"protocol":"TCP"},{"containerPort":80,"protocol":"UDP","name":"x"}]}]}}`,
	`{"spec":{"containers":[{"name":"c","image":"j","env":[{"name":"A","value":"1"},{"name":"B","valueFrom":{"fieldRef":{"fieldPath":"p"}}}],"command":["a","b"]},{"name":"d"}]}}`,
	`{"spec":{"containers":[{"name":"d","resources":{"limits":{"cpu":"500m","memory":"1Gi"},"requests":{}},"ports":[{"containerPort":81}]}]}}`,
	`{"spec":{"containers":[{"name":"c","livenessProbe":{"httpGet":{"path":"/","port":8080}}},{"name":"c"}]}}`,
	`{"spec":{"containers":[{"name":"e","livenessProbe":{"httpGet":{"path":"/","port":"http"}},"volumeMounts":[{"name":"v","mountPath":"/x"}]}],"nodeSelector":{"a":"b"}}}`,
	`{"spec":{"volumes":[{"name":"v","emptyDir":{}},{"name":"w","configMap":{"name":"x","items":[{"key":"k","path":"p"}]}}],"terminationGracePeriodSeconds":5}}`,
	`{"spec":{"volumes":[{"name":"v","emptyDir":{"sizeLimit":"1Gi"}}],"securityContext":{"runAsUser":1},"tolerations":[{"key":"k"}],"imagePullSecrets":[{"name":"s"},{}]}}`,
	`{"spec":{"securityContext":{},"nodeSelector":{},"hostAliases":[{"ip":"1.2.3.4","hostnames":["a"]}],"affinity":{"nodeAffinity":{}},"topologySpreadConstraints":[{"topologyKey":"k","whenUnsatisfiable":"x"}]}}`,
	`{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True","lastTransitionTime":"2020-01-01T00:00:00Z"},{"type":"X","status":"False"}],"podIPs":[{"ip":"1.2.3.4"}]}}`,
	`{"status":{"phase":"Failed","conditions":[{"type":"Ready","status":"False"}],"containerStatuses":[{"name":"c","image":"i","state":{"running":{"startedAt":null}}}]}}`,
}

func changePod(p *corev1.Pod, c *choices) {
	part := podParts[c.of(len(podParts))]
	switch c.of(4) {
	case 0:
		p.Spec.Volumes, p.Labels, p.Spec.SecurityContext = nil, map[string]string{}, nil
	case 1:
		p.Spec.Containers = slices.Clone(p.Spec.Containers[:min(1, len(p.Spec.Containers))])
		p.Status.Conditions = nil
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts([]byte(part), p); err != nil {
		panic(err)
	}
}

func randomChoices(seed uint64) []byte {
	r := rand.New(rand.NewPCG(seed, 1))
	data := make([]byte, 40+r.IntN(200))
	for i := range data {
		data[i] = byte(r.Uint32())
	}
	return data
}

// The walk records what upstream's tracker does, and in most cases can tell.
func TestOwnerChange(t *testing.T) {
	declared, deduced := ownedConverter(t), managedfields.NewDeducedTypeConverter()
	told := map[string]int{}
	for seed := range uint64(100) {
		told["declared"] += widgetHistory(t, declared, &choices{randomChoices(seed)})
		told["deduced"] += widgetHistory(t, deduced, &choices{randomChoices(seed)})
		told["typed"] += typedHistory(t, &choices{randomChoices(seed)})
	}
	for name, n := range told {
		t.Log(name, n)
		if n < 150 {
			t.Errorf("%s: told %d times", name, n)
		}
	}
}

// Whatever the walk tells of a change is what upstream's tracker would record.
func FuzzOwnerChange(f *testing.F) {
	for seed := range uint64(20) {
		f.Add(randomChoices(seed), byte(seed))
	}
	declared, deduced := ownedConverter(f), managedfields.NewDeducedTypeConverter()
	f.Fuzz(func(t *testing.T, data []byte, kind byte) {
		switch c := (&choices{data}); kind % 3 {
		case 0:
			widgetHistory(t, declared, c)
		case 1:
			widgetHistory(t, deduced, c)
		default:
			typedHistory(t, c)
		}
	})
}
