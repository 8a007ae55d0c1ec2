package managedfields

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
	upstream "k8s.io/apimachinery/pkg/util/managedfields"
)

// history is an object that changes step by step. Each step is recorded by the walk and
// by upstream's manager, which must agree.
type history struct {
	t      *testing.T
	kind   testKind
	stored Object
	// recorded counts the steps that the walk has recorded.
	recorded int
}

func (h *history) tracker(manager, subresource string) *Tracker {
	t := h.kind.tracker(manager)
	t.Resets, t.Subresource = []string{"status"}, subresource
	if subresource != "" {
		t.Resets = []string{"spec", "metadata"}
	}
	return t
}

// step records a change in both ways. The next step starts from it, with other times.
func (h *history) step(next Object, manager, subresource string, when int) {
	h.t.Helper()
	var u, slow Object
	var done bool
	var failed error
	for start := int64(0); start != time.Now().Unix(); {
		start = time.Now().Unix()
		u, slow = next.DeepCopyObject().(Object), next.DeepCopyObject().(Object)
		w := h.tracker(manager, subresource)
		var err error
		if done, err = w.recordUpdate(u, h.stored); err != nil {
			h.t.Fatal(err)
		}
		if !done && !reflect.DeepEqual(u, next) {
			h.t.Fatalf("nothing was recorded, but it became %s", shown(u))
		}
		m, _, err := w.manager(h.stored)
		if err != nil {
			h.t.Fatal(err)
		}
		live, err := w.live(h.stored)
		if err != nil {
			h.t.Fatal(err)
		}
		_, failed = m.Update(live, slow, w.Manager)
	}
	if done {
		h.recorded++
		if failed != nil {
			h.t.Fatalf("recorded, but refused: %v: %s", failed, shown(next))
		}
		if shown(u) != shown(slow) {
			h.t.Fatalf("%s by %q %q\nfrom %s\nto   %s\nrecorded %s\nwant %s", h.kind.gvk.Kind, manager, subresource, shown(h.stored), shown(next), shown(u), shown(slow))
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

// applyBy applies a patch by upstream's manager alone.
func (h *history) applyBy(manager string, patch map[string]any) {
	m, _, err := h.tracker(manager, "").manager(h.stored)
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
func widgetHistory(t *testing.T, converter upstream.TypeConverter, c *choices) int {
	k := widgets(converter)
	h := &history{t: t, kind: k}
	next := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": "a"}}}
	next.SetGroupVersionKind(k.gvk)
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
			return h.recorded
		}
		next = h.stored.DeepCopyObject().(*unstructured.Unstructured)
		if len(c.data) == 0 {
			break
		}
	}
	return h.recorded
}

// tamper changes the record of a stored object as if its type had been another one or
// another server had written it.
func tamper(stored Object, c *choices) {
	u, ok := stored.(*unstructured.Unstructured)
	if !ok || len(rawRecord(u)) == 0 {
		return
	}
	entries := rawRecord(u)
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
	pods := core("Pod")
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
		next.SetGroupVersionKind(pods.gvk)
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
	return h.recorded
}

func randomChoices(seed uint64) []byte {
	r := rand.New(rand.NewPCG(seed, 1))
	data := make([]byte, 40+r.IntN(200))
	for i := range data {
		data[i] = byte(r.Uint32())
	}
	return data
}

// The walk records what upstream's manager records, and does so in most cases.
func TestRecordUpdateIsUpstreams(t *testing.T) {
	t.Parallel()
	declared, deduced := ownedConverter(t), upstream.NewDeducedTypeConverter()
	recorded := map[string]int{}
	for seed := range uint64(40) {
		recorded["declared"] += widgetHistory(t, declared, &choices{randomChoices(seed)})
		recorded["deduced"] += widgetHistory(t, deduced, &choices{randomChoices(seed)})
		recorded["typed"] += typedHistory(t, &choices{randomChoices(seed)})
	}
	for name, n := range recorded {
		t.Log(name, n)
		if n < 60 {
			t.Errorf("%s: recorded %d times", name, n)
		}
	}
}

// What the walk records is what upstream's manager records.
func FuzzRecordUpdate(f *testing.F) {
	for seed := range uint64(20) {
		f.Add(randomChoices(seed), byte(seed))
	}
	declared, deduced := ownedConverter(f), upstream.NewDeducedTypeConverter()
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
