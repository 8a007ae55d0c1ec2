package crd

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"portico/internal/testing/await"
	"portico/internal/testing/memstore"
	"portico/resource"
)

// Definitions that are applied eight at a time, with names that two in a group want, are written with their conditions, and
// once more when they are established; applied again they are not written.
func TestManyDefinitionsAreWrittenTwice(t *testing.T) {
	const count, workers = 300, 8
	kept := memstore.New()
	s := over(t, kept)
	revision := func() int64 {
		list, err := kept.Store(&s.definitions.Info).List(t.Context(), resource.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return list.Revision
	}
	text := func(i int) (name, text string) {
		group, plural := fmt.Sprintf("g%d.example.com", i/5), fmt.Sprintf("widgets%d", i%5)
		name = plural + "." + group
		return name, strings.NewReplacer("widgets.example.com", name, "group: example.com", "group: "+group, "plural: widgets", "plural: "+plural,
			"kind: Widget,", fmt.Sprintf("kind: Widget%d,", i%5), "shortNames: [wd]", fmt.Sprintf("shortNames: [wd%d]", i%5/2)).Replace(widgets)
	}
	apply := func() (accepted int) {
		var wg sync.WaitGroup
		var mu sync.Mutex
		for w := range workers {
			wg.Go(func() {
				for i := w; i < count; i += workers {
					name, body := text(i)
					a := s.send(t, "PATCH", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/"+name+"?fieldManager=m&force=true", applyPatch, body)
					if a.code >= 300 {
						t.Errorf("%s: %d %s", name, a.code, a.body)
						return
					}
					if status := conditionsOf(a.object(t)); strings.Contains(status, "NamesAccepted=True") {
						mu.Lock()
						accepted++
						mu.Unlock()
					}
				}
			})
		}
		wg.Wait()
		return accepted
	}
	before := revision()
	// Of five in a group two and two want the same short name; one of each gets it.
	if accepted := apply(); accepted != count/5*3 {
		t.Errorf("the names of %d of %d were accepted, want %d", accepted, count, count/5*3)
	}
	await.Until(t, "all are served", func() bool { return len(s.served.Load().byGR) == count/5*3 })
	await.Until(t, "all are established", func() bool {
		established := 0
		for _, d := range s.served.Load().byGR {
			if isEstablished(d.CustomResourceDefinition) {
				established++
			}
		}
		return established == count/5*3
	})
	if n := revision() - before; n != count+count/5*3 {
		t.Errorf("%d writes of %d definitions, of which %d are established", n, count, count/5*3)
	}
	before = revision()
	apply()
	if n := revision() - before; n != 0 {
		t.Errorf("%d writes of definitions that were applied again", n)
	}
}

// conditionsOf returns the conditions of a definition as text.
func conditionsOf(definition map[string]any) string {
	var all []string
	conditions, _ := at(definition, "status", "conditions").([]any)
	for _, c := range conditions {
		all = append(all, fmt.Sprint(at(c, "type"), "=", at(c, "status")))
	}
	return strings.Join(all, " ")
}
