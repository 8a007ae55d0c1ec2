package openapi

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"portico/resource/rest"
)

// counted is a custom resource, of its own group, that counts how often its schema is made.
type counted struct {
	kind *rest.Kind
	made *atomic.Int32
}

func newCounted(i int, inputs string) counted {
	c := counted{made: &atomic.Int32{}}
	c.kind = custom(fmt.Sprintf("g%d.example.com", i), "v1", "widgets", "Widget", inputs, func() (*spec.Schema, error) {
		c.made.Add(1)
		return new(spec.Schema).Typed("object", "").WithDescription(strings.Repeat("d", 2000)), nil
	})
	return c
}

func key(i int) string { return fmt.Sprintf("apis/g%d.example.com/v1", i) }

func rows(list ...counted) []*rest.Kind {
	var out []*rest.Kind
	for _, c := range list {
		out = append(out, c.kind)
	}
	return out
}

func ask(t *testing.T, d *Documents, key string) {
	t.Helper()
	if w := get(d, "/openapi/v3/"+key); w.Code != 200 {
		t.Fatalf("%s: %d %s", key, w.Code, w.Body)
	}
}

// Update replaces documents if their inputs change, and keeps the others.
func TestUpdate(t *testing.T) {
	one, two := newCounted(1, "a"), newCounted(2, "a")
	d := New(Config{})
	if w := get(d, "/openapi/v3"); w.Code != 200 || strings.TrimSpace(w.Body.String()) != `{"paths":{}}` {
		t.Fatalf("the index of nothing: %d %s", w.Code, w.Body)
	}
	d.Update(rows(one, two))
	tag, urls := d.ETag(), []string{d.URL(key(1)), d.URL(key(2))}
	get(d, "/openapi/v3")
	if one.made.Load()+two.made.Load() != 0 {
		t.Error("the index built a document")
	}
	ask(t, d, key(1))
	ask(t, d, key(2))

	again, changed := newCounted(1, "a"), newCounted(2, "b")
	d.Update(rows(changed, again)) // another order, too
	ask(t, d, key(1))
	ask(t, d, key(2))
	if one.made.Load() != 1 || again.made.Load() != 0 || d.URL(key(1)) != urls[0] {
		t.Errorf("a document with the same inputs was built anew: %d %d", one.made.Load(), again.made.Load())
	}
	if changed.made.Load() != 1 || d.URL(key(2)) == urls[1] || d.ETag() == tag {
		t.Error("a changed schema went unnoticed")
	}
	if w := get(d, urls[1]); w.Code != http.StatusMovedPermanently || w.Header().Get("Location") != d.URL(key(2)) {
		t.Errorf("the URL of before: %d %v", w.Code, w.Header())
	}
	tag = d.ETag()
	d.Update(rows(again, changed))
	if d.ETag() != tag {
		t.Error("the index changed with nothing")
	}
	d.Update(rows(again))
	if w := get(d, "/openapi/v3/"+key(2)); w.Code != 404 || d.URL(key(2)) != "" || d.ETag() == tag {
		t.Errorf("a kind that is gone: %d", w.Code)
	}
	if n, _ := d.cache.built.Size(); n != 1 {
		t.Errorf("%d documents are kept, want 1", n)
	}
}

// The hash changes with every input of a document: clients cache documents by it.
func TestHashInputs(t *testing.T) {
	base := func() *rest.Kind { return newCounted(1, "a").kind }
	seen := map[string]string{}
	for name, change := range map[string]func(k *rest.Kind){
		"as it is":     func(*rest.Kind) {},
		"verbs":        func(k *rest.Kind) { k.Verbs = []string{"get"} },
		"scope":        func(k *rest.Kind) { k.Namespaced = false },
		"kind":         func(k *rest.Kind) { k.Kind = "Gadget" },
		"list kind":    func(k *rest.Kind) { k.ListKind = "Widgets" },
		"plural":       func(k *rest.Kind) { k.Resource = "widgetses" },
		"ownership":    func(k *rest.Kind) { k.Ownership = nil },
		"fields":       func(k *rest.Kind) { k.FieldLabels = []string{"spec.a"} },
		"other fields": func(k *rest.Kind) { k.FieldLabels = []string{"spec.a", "spec.b"} },
		"status":       func(k *rest.Kind) { k.Subresources = []rest.Subresource{{Name: "status", Strategy: &rest.Strategy{}}} },
		"definitions":  func(k *rest.Kind) { k.Definitions = described("a") },
		"others":       func(k *rest.Kind) { k.Definitions = described("b") },
		"schema":       func(k *rest.Kind) { k.SchemaInputs = func(string) string { return "b" } },
	} {
		k := base()
		change(k)
		url := FromKinds(Config{}, []*rest.Kind{k}).URL(key(1))
		if other, taken := seen[url]; taken {
			t.Errorf("%q and %q have one hash", name, other)
		}
		seen[url] = name
	}
}

// described returns definitions of one model.
func described(text string) common.GetOpenAPIDefinitions {
	return func(common.ReferenceCallback) map[string]common.OpenAPIDefinition {
		return map[string]common.OpenAPIDefinition{"com.example.Widget": {Schema: *spec.StringProperty().WithDescription(text)}}
	}
}

// The cache keeps the documents that were used last within its budget. A larger document is served and
// not kept.
func TestBudget(t *testing.T) {
	list := []counted{newCounted(0, ""), newCounted(1, ""), newCounted(2, "")}
	size := get(FromKinds(Config{}, rows(newCounted(0, ""))), "/openapi/v3/"+key(0)).Body.Len()
	d, small := New(Config{Budget: 2*size + size/2}), New(Config{Budget: size / 2})
	d.Update(rows(list...))
	for _, i := range []int{0, 1, 0, 2, 0, 1} { // 2 evicts 1, then 1 evicts 2
		ask(t, d, key(i))
	}
	for i, want := range []int32{1, 2, 1} {
		if got := list[i].made.Load(); got != want {
			t.Errorf("document %d was built %d times, want %d", i, got, want)
		}
	}
	small.Update(rows(list[0]))
	ask(t, small, key(0))
	ask(t, small, key(0))
	if n, _ := small.cache.built.Size(); list[0].made.Load() != 3 || n != 0 {
		t.Errorf("a document above the budget: built %d times, %d kept", list[0].made.Load(), n)
	}
}

// Concurrent requests get one build. A request without its client does not wait, and a group that is
// removed during the build is not kept.
func TestConcurrentRequests(t *testing.T) {
	var made atomic.Int32
	begun, release := make(chan struct{}), make(chan struct{})
	k := custom("g1.example.com", "v1", "widgets", "Widget", "", func() (*spec.Schema, error) {
		made.Add(1)
		close(begun)
		<-release
		return new(spec.Schema).Typed("object", ""), nil
	})
	d := FromKinds(Config{}, []*rest.Kind{k})
	codes := make(chan int, 5)
	request := func() { codes <- get(d, "/openapi/v3/"+key(1)).Code }
	go request()
	<-begun
	for range 4 {
		go request()
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	w := httptest.NewRecorder()
	d.Handler().ServeHTTP(w, httptest.NewRequestWithContext(gone, http.MethodGet, "/openapi/v3/"+key(1), nil))
	if w.Code == 200 {
		t.Error("a request of a client that is gone got a document that is not built")
	}
	d.Update(rows(newCounted(2, "")))
	close(release)
	answers := map[int]int{}
	for range 5 {
		answers[<-codes]++
	}
	if n, _ := d.cache.built.Size(); made.Load() != 1 || n != 0 || answers[200] == 0 || answers[200]+answers[404] != 5 {
		t.Errorf("built %d times, %d documents are kept, answers %v", made.Load(), n, answers)
	}
}

// A build that panics is an error, and neither blocks later requests nor keeps a slot.
func TestPanickingBuild(t *testing.T) {
	fail := true
	d := FromKinds(Config{}, []*rest.Kind{custom("g1.example.com", "v1", "widgets", "Widget", "", func() (*spec.Schema, error) {
		if fail {
			panic("no")
		}
		return nil, nil
	})})
	for range cap(d.cache.slots) + 1 {
		if w := get(d, "/openapi/v3/"+key(1)); w.Code != http.StatusInternalServerError {
			t.Errorf("%d %s", w.Code, w.Body)
		}
	}
	fail = false
	ask(t, d, key(1))
}

// BenchmarkUpdate changes one of 2,000 custom resources.
func BenchmarkUpdate(b *testing.B) {
	list := make([]*rest.Kind, 2000)
	for i := range list {
		list[i] = newCounted(i, strings.Repeat("0", 64)).kind
	}
	d := FromKinds(Config{}, list)
	for i := 0; b.Loop(); i++ {
		list[i%2000] = newCounted(i%2000, fmt.Sprint(i)).kind
		d.Update(list)
	}
}
