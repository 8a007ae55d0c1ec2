package rest

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/managedfields"

	"portico/resource"
)

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
	many := c.of(4) == 1
	for i := range 12 {
		for range 1 + c.of(3) {
			c.change(next.Object)
		}
		manager := []string{"m", "n", "o", ""}[c.of(4)]
		if many {
			manager = fmt.Sprint("x", i)
		}
		switch c.of(8) {
		case 1:
			next.SetManagedFields(nil)
		case 2:
			if h.stored != nil {
				patch := map[string]any{"apiVersion": "example.com/v1", "kind": "Widget", "metadata": map[string]any{"name": "a"}}
				c.change(patch)
				h.applyBy(manager+"a", patch)
			}
		case 3:
			tamper(h.stored, c)
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

// tamper does something to the record of a stored object, as if its type had
// been another one or another server had written it.
func tamper(stored Object, c *choices) {
	u, ok := stored.(*unstructured.Unstructured)
	if !ok || len(rawOwners(u)) == 0 {
		return
	}
	entries := rawOwners(u)
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
	t.Parallel()
	declared, deduced := ownedConverter(t), managedfields.NewDeducedTypeConverter()
	told := map[string]int{}
	for seed := range uint64(40) {
		told["declared"] += widgetHistory(t, declared, &choices{randomChoices(seed)})
		told["deduced"] += widgetHistory(t, deduced, &choices{randomChoices(seed)})
		told["typed"] += typedHistory(t, &choices{randomChoices(seed)})
	}
	for name, n := range told {
		t.Log(name, n)
		if n < 60 {
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
