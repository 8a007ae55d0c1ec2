package kindtest

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"
)

// Objects reads the valid objects of a resource below dir: the documents of
// VERSION.RESOURCE.yaml, with GROUP. before it for other groups than the core group.
func Objects(t testing.TB, dir string, gvr schema.GroupVersionResource) []map[string]any {
	t.Helper()
	name := FileName(gvr) + ".yaml"
	data, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		return nil
	}
	var out []map[string]any
	for doc := range strings.SplitSeq("\n"+string(data), "\n---\n") {
		var o map[string]any
		if err := yaml.UnmarshalStrict([]byte(doc), &o); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if len(o) > 0 {
			out = append(out, o)
		}
	}
	return out
}

// FileName returns the name of the files of a resource, without their ending.
func FileName(gvr schema.GroupVersionResource) string {
	return strings.TrimPrefix(gvr.Group+"."+gvr.Version+"."+strings.ReplaceAll(gvr.Resource, "/", "_"), ".")
}

// Case is one write.
type Case struct {
	// Name says what is written: an object and the change to it.
	Name string
	// Body returns what is written, and Old is the stored object, nil for a creation.
	Body func() []byte
	Old  []byte
}

// Cases calls emit with writes of one resource or subresource: creations (of the main
// resource) and updates of the valid objects, unchanged, with one field changed, and replaced
// by each other. typ is the Go type of the objects.
func Cases(t testing.TB, objects []map[string]any, typ reflect.Type, subresource bool, emit func(Case)) {
	t.Helper()
	for _, base := range objects {
		name, old := NameOf(base), Encoded(base)
		if !subresource {
			Each(t, base, typ, func(m Mutation) { emit(Case{"create " + name + ": " + m.Change, m.Body, nil}) })
		}
		Each(t, base, typ, func(m Mutation) { emit(Case{"update " + name + ": " + m.Change, m.Body, old}) })
		for _, other := range objects {
			body := func() []byte { return Encoded(Put(Clone(other), []any{"metadata", "name"}, name)) }
			emit(Case{"update " + name + " to " + NameOf(other), body, old})
		}
	}
}

// NameOf returns the name of an object.
func NameOf(o map[string]any) string {
	name, _ := Dig(o, "metadata", "name").(string)
	return name
}

// Document decodes an object without what differs from write to write: parts of metadata, and
// times of now.
func Document(data []byte) map[string]any {
	var doc map[string]any
	if err := json.Unmarshal(data, &doc); err != nil {
		panic(err)
	}
	m, _ := doc["metadata"].(map[string]any)
	for _, name := range []string{"name", "uid", "creationTimestamp", "resourceVersion", "managedFields", "selfLink", "namespace", "deletionTimestamp", "deletionGracePeriodSeconds"} {
		delete(m, name)
	}
	return timeless(doc).(map[string]any)
}

// timeless replaces the times of the last minute.
func timeless(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k, e := range v {
			v[k] = timeless(e)
		}
	case []any:
		for i, e := range v {
			v[i] = timeless(e)
		}
	case string:
		if t, err := time.Parse(time.RFC3339, v); err == nil && time.Since(t).Abs() < time.Minute {
			return "now"
		}
	}
	return v
}
