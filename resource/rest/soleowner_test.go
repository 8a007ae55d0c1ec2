package rest

import (
	"encoding/json"
	"reflect"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/kube-openapi/pkg/validation/spec"
	kjson "sigs.k8s.io/json"

	"portico/resource"
)

// ownedSchema is a type with every way in which parts can be owned.
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

func ownedConverter(t testing.TB) managedfields.TypeConverter {
	t.Helper()
	s := &spec.Schema{}
	if err := json.Unmarshal([]byte(ownedSchema), s); err != nil {
		t.Fatal(err)
	}
	c, err := managedfields.NewTypeConverter(map[string]*spec.Schema{"widget": s}, false)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// ownedBoth has an object's creator recorded by the walk and by upstream's
// tracker, and checks that they agree. It reports whether the walk could tell.
func ownedBoth(t *testing.T, converter managedfields.TypeConverter, data []byte, resets []string) bool {
	t.Helper()
	k := widgetKind("v1")
	k.Ownership = func() (managedfields.TypeConverter, error) { return converter, nil }
	u := &unstructured.Unstructured{}
	if kjson.UnmarshalCaseSensitivePreserveInts(data, &u.Object) != nil || u.Object == nil {
		return false
	}
	if meta, found := u.Object["metadata"]; found {
		if _, ok := meta.(map[string]any); !ok {
			return false // no codec lets it through
		}
	}
	u.SetGroupVersionKind(k.GVK("v1"))
	slow, untouched := u.DeepCopy(), u.DeepCopy()
	act := &resource.Action{IsResource: true, Group: "example.com", Version: "v1", Resource: "widgets", Namespace: "default"}
	w := newWrite(New(Config{}), act, &Resource{Kind: k}, nil, writeOptions{owner: "m", object: &metav1.CreateOptions{}})
	w.resets = resets
	told, err := w.recordNew(u)
	if err != nil {
		t.Fatal(err)
	}
	if !told {
		if !reflect.DeepEqual(u, untouched) {
			t.Fatalf("nothing was recorded, but %s became %v", data, u.Object)
		}
		return false
	}
	m, _, err := w.fieldManager(nil)
	if err != nil {
		t.Fatal(err)
	}
	live, err := w.live(nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Update(live, slow, w.owner); err != nil {
		t.Fatalf("told, but refused: %v: %s", err, data)
	}
	times := func(u *unstructured.Unstructured) {
		for _, entry := range rawOwners(u) {
			entry.(map[string]any)["time"] = ""
		}
	}
	for _, entry := range slow.GetManagedFields() {
		if d := time.Since(entry.Time.Time); d < 0 || d > time.Hour {
			t.Fatalf("time %v", entry.Time)
		}
	}
	times(u)
	times(slow)
	if !reflect.DeepEqual(u, slow) {
		t.Fatalf("of %s\ntold %v\nwant %v", data, u.Object["metadata"], slow.Object["metadata"])
	}
	return true
}

func rawOwners(u *unstructured.Unstructured) []any {
	meta, _ := u.Object["metadata"].(map[string]any)
	entries, _ := meta["managedFields"].([]any)
	return entries
}

// soleOwnerSeeds are objects, and whether the walk has to tell who owns them.
var soleOwnerSeeds = map[string]bool{
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
	`{"metadata":{"name":"a"},"spec":{"byName":[{"name":"é\"<"}]}}`:                                                                          false,
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

func TestSoleOwner(t *testing.T) {
	converter := ownedConverter(t)
	for data, want := range soleOwnerSeeds {
		for _, resets := range [][]string{nil, {"status"}, {"spec", "metadata"}} {
			if told := ownedBoth(t, converter, []byte(data), resets); told != want {
				t.Errorf("%s: told %t", data, told)
			}
		}
	}
	// Without a schema, types are made of the values.
	if !ownedBoth(t, managedfields.NewDeducedTypeConverter(), []byte(`{"metadata":{"name":{"x":1},"uid":"u"},"spec":{"a":[1],"b":{"c":null,"d":{}}}}`), nil) {
		t.Error("types that are deduced are not known")
	}
}

// Whatever the walk tells is what upstream's tracker would record.
func FuzzSoleOwner(f *testing.F) {
	for data := range soleOwnerSeeds {
		f.Add([]byte(data), true)
		f.Add([]byte(data), false)
	}
	declared, deduced := ownedConverter(f), managedfields.NewDeducedTypeConverter()
	f.Fuzz(func(t *testing.T, data []byte, known bool) {
		converter := deduced
		if known {
			converter = declared
		}
		ownedBoth(t, converter, data, []string{"status"})
	})
}

// Who owns a draft is found out along its text, and that is the same.
func FuzzOwnedText(f *testing.F) {
	converter := ownedConverter(f)
	for data := range soleOwnerSeeds {
		f.Add([]byte(data), "status")
	}
	f.Add([]byte(`{"a":1,"metadata":{"name":"x"},"spec":{"free":{"a":"\\\"","b":"}"},"set":[]},"zzz":null}`), "spec")
	f.Fuzz(func(t *testing.T, data []byte, reset string) {
		u := &unstructured.Unstructured{}
		if kjson.UnmarshalCaseSensitivePreserveInts(data, &u.Object) != nil || u.Object == nil {
			return
		}
		u.SetAPIVersion("example.com/v1")
		u.SetKind("Widget")
		// A whole number that was sent as a fraction is none in a draft.
		if whole, err := json.Marshal(u.Object); err != nil || kjson.UnmarshalCaseSensitivePreserveInts(whole, &u.Object) != nil {
			t.Fatal(err)
		}
		root, ok := typeOf(converter, u.GroupVersionKind())
		if !ok {
			t.Fatal("no type")
		}
		head, content := map[string]any{}, map[string]any{}
		for name, value := range u.Object {
			switch name {
			case "apiVersion", "kind", "metadata":
				head[name] = value
			default:
				content[name] = value
			}
		}
		if hasOddKeys(content) {
			return // see Draft.Content
		}
		text, err := json.Marshal(content)
		if err != nil {
			t.Fatal(err)
		}
		got, told := ownedText(root, head, text, []string{reset})
		fields, ok := ownedByOne(root, u.Object, []string{reset})
		if told != ok {
			t.Fatalf("of %s told %v, want %v", data, told, ok)
		}
		if want, err := json.Marshal(fields); err != nil || told && string(got) != string(want) {
			t.Fatalf("of %s\ntold %s\nwant %s %v", data, got, want, err)
		}
	})
}

// hasOddKeys reports whether a key is written with escapes.
func hasOddKeys(value any) bool {
	switch v := value.(type) {
	case map[string]any:
		for key, in := range v {
			if text, err := json.Marshal(key); err != nil || len(text) != len(key)+2 || hasOddKeys(in) {
				return true
			}
		}
	case []any:
		return slices.ContainsFunc(v, hasOddKeys)
	}
	return false
}
