package backend

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"portico/resource/rest"
)

// durations returns the paths of the durations of a struct.
func durations(ty reflect.Type, at string) (paths []string) {
	for i := range ty.NumField() {
		f := ty.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		kind := f.Type
		if kind.Kind() == reflect.Pointer {
			kind = kind.Elem()
		}
		switch {
		case kind == reflect.TypeFor[metav1.Duration]():
			paths = append(paths, at+"."+name)
		case kind.Kind() == reflect.Struct:
			paths = append(paths, durations(kind, at+"."+name)...)
		}
	}
	return paths
}

// with returns a Backend with a value at a path.
func with(path string, value any) map[string]any {
	object := map[string]any{"apiVersion": GroupVersion().String(), "kind": "Backend", "metadata": map[string]any{"name": "x"}}
	parent, names := object, strings.Split(path, ".")
	for _, name := range names[:len(names)-1] {
		child := map[string]any{}
		parent[name], parent = child, child
	}
	parent[names[len(names)-1]] = value
	return object
}

// An invalid duration or base64 is refused with 422 and the name of its field, in JSON, YAML and
// server-side apply.
func TestTextsAreNamed(t *testing.T) {
	kind, err := Kind()
	if err != nil {
		t.Fatal(err)
	}
	gvk := GroupVersion().WithKind("Backend")
	paths := durations(reflect.TypeFor[Spec](), "spec")
	if len(paths) != 9 {
		t.Fatalf("durations: %q", paths)
	}
	const unit, base64 = "must be a duration with its unit", "must be base64 of PEM"
	cases := map[string][]any{"spec.tls.caBundle": {"xx", base64}}
	for _, path := range paths {
		cases[path] = []any{"2", unit}
	}
	for path, c := range cases {
		for _, value := range []any{c[0], 5} {
			want := []string{path + ": Invalid value: ", c[1].(string)}
			object := with(path, value)
			text, err := json.Marshal(object)
			if err != nil {
				t.Fatal(err)
			}
			_, _, got := kind.Codec.Decode(text, "application/json", gvk, true)
			named(t, path, got, want)
			_, _, got = kind.Codec.Decode([]byte(fmt.Sprintf("# YAML\n%s", text)), "application/yaml", gvk, true)
			named(t, path, got, want)
			if value == 5 {
				continue // the schema is checked before
			}
			_, got = kind.Codec.(rest.Versioned).ConvertTo(&unstructured.Unstructured{Object: object}, GroupVersion())
			named(t, path, got, want)
		}
	}
}

func named(t *testing.T, path string, err error, want []string) {
	t.Helper()
	if !apierrors.IsInvalid(err) {
		t.Errorf("%s: %v", path, err)
		return
	}
	for _, part := range want {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%s: %v, want %q", path, err, part)
		}
	}
}

// Other errors of the decoder remain, and valid texts are no errors.
func TestOtherErrorsStay(t *testing.T) {
	kind, err := Kind()
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		`{"spec":{"timeouts":{"connect":"1s","idle":null},"tls":{"caBundle":"eA=="}}}`: "",
		`{"spec":{"healthCheck":5}}`:         "cannot unmarshal number into Go struct field",
		`{"spec":"s"}`:                       "cannot unmarshal string",
		`{"spec":{"timeouts":{"connect":`:    "unexpected end",
		`{"kind":"Other","apiVersion":"v1"}`: "cannot be handled as a Backend",
		`[]`:                                 "cannot unmarshal array",
	} {
		_, _, err := kind.Codec.Decode([]byte(text), "application/json", GroupVersion().WithKind("Backend"), true)
		if (err == nil) != (want == "") || err != nil && (!strings.Contains(err.Error(), want) || apierrors.IsInvalid(err)) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}
