package adopt

import (
	"bytes"
	"cmp"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"

	"portico/backends/core/kinds"
	"portico/cmd/e2e"
)

// object is an object and its resource.
type object struct {
	schema.GroupVersionResource
	*unstructured.Unstructured
}

// order is the place of resources among others: their objects are needed by others, or limit them.
var order = map[string]int{"namespaces": -2, "serviceaccounts": -1, "limitranges": 1, "resourcequotas": 2}

// kindObjects returns the valid objects by which the rules of kinds are tested, one or more of each
// built-in kind, in the order in which they can be created: namespaces and service accounts first.
func kindObjects(t *testing.T) []object {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(e2e.Repository(), "backends/core/kinds/testdata/objects/*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no objects: %v", err)
	}
	namespaced := map[schema.GroupResource]bool{}
	for _, k := range kinds.All(kinds.Config{}) {
		namespaced[k.GroupResource()] = k.Namespaced
	}
	byResource := map[schema.GroupVersionResource][]object{}
	for _, file := range files {
		parts := strings.Split(strings.TrimSuffix(filepath.Base(file), ".yaml"), ".")
		n := len(parts)
		gvr := schema.GroupVersionResource{Group: strings.Join(parts[:n-2], "."), Version: parts[n-2], Resource: parts[n-1]}
		if gvr.Resource != "componentstatuses" && gvr != (schema.GroupVersionResource{Group: "autoscaling", Version: "v1", Resource: "horizontalpodautoscalers"}) {
			byResource[gvr] = readObjects(t, file, gvr)
			for _, o := range byResource[gvr] {
				if namespaced[gvr.GroupResource()] && o.GetNamespace() == "" {
					o.SetNamespace("default")
				}
				disarm(o)
			}
		}
	}
	var all []object
	for _, gvr := range slices.SortedFunc(maps.Keys(byResource), func(a, b schema.GroupVersionResource) int {
		return cmp.Or(order[a.Resource]-order[b.Resource], strings.Compare(a.String(), b.String()))
	}) {
		all = append(all, byResource[gvr]...)
	}
	return all
}

// disarm makes admission rules match no request, and lets the server choose addresses and ports.
func disarm(o object) {
	nothing := []any{"nothing.example.com"}
	webhooks, _, _ := unstructured.NestedSlice(o.Object, "webhooks")
	for _, w := range webhooks {
		rules, _, _ := unstructured.NestedSlice(w.(map[string]any), "rules")
		for _, r := range rules {
			r.(map[string]any)["apiGroups"] = nothing
		}
		w.(map[string]any)["rules"] = rules
	}
	if webhooks != nil {
		o.Object["webhooks"] = webhooks
	}
	at := []string{"spec", "matchConstraints", "resourceRules"}
	if rules, found, _ := unstructured.NestedSlice(o.Object, at...); found {
		for _, r := range rules {
			r.(map[string]any)["apiGroups"] = nothing
		}
		_ = unstructured.SetNestedSlice(o.Object, rules, at...)
	}
	if o.Resource != "services" {
		return
	}
	for _, field := range []string{"clusterIP", "clusterIPs", "healthCheckNodePort"} {
		unstructured.RemoveNestedField(o.Object, "spec", field)
	}
	ports, _, _ := unstructured.NestedSlice(o.Object, "spec", "ports")
	for _, p := range ports {
		delete(p.(map[string]any), "nodePort")
	}
	if ports != nil {
		_ = unstructured.SetNestedSlice(o.Object, ports, "spec", "ports")
	}
}

func readObjects(t *testing.T, file string, gvr schema.GroupVersionResource) (all []object) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), 4096); ; {
		u := &unstructured.Unstructured{}
		if err := decoder.Decode(u); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if u.Object != nil {
			all = append(all, object{gvr, u})
		}
	}
}
