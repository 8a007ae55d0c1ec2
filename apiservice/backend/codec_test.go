package backend

import (
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"portico/resource/rest"
)

// An invalid duration or base64 is refused with 422 and the name of its field, in JSON, YAML and
// server-side apply.
func TestInvalidTextsAreNamed(t *testing.T) {
	kind, err := Kind()
	if err != nil {
		t.Fatal(err)
	}
	gvk := GroupVersion().WithKind("Backend")
	const unit, base64 = "must be a duration with its unit", "must be base64 of PEM"
	for path, c := range map[string]struct {
		value any
		want  string
	}{
		"spec.timeouts.connect": {"2", unit}, "spec.outlierDetection.baseEjectionTime": {5, unit},
		"spec.tls.caBundle": {"xx", base64}, "spec.tls.caBundle ": {5, base64},
	} {
		names := strings.Split(strings.TrimSpace(path), ".")
		object := map[string]any{"apiVersion": GroupVersion().String(), "kind": "Backend", "metadata": map[string]any{"name": "x"}}
		if err := unstructured.SetNestedField(object, fmt.Sprint(c.value), names...); err != nil {
			t.Fatal(err)
		}
		if number, ok := c.value.(int); ok {
			_ = unstructured.SetNestedField(object, int64(number), names...)
		}
		named := func(err error) {
			t.Helper()
			if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), strings.TrimSpace(path)+": Invalid value: ") || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v, want %q", path, err, c.want)
			}
		}
		text := encoded(t, object)
		_, _, err := kind.Codec.Decode([]byte(text), "application/json", gvk, true)
		named(err)
		_, _, err = kind.Codec.Decode([]byte("# YAML\n"+text), "application/yaml", gvk, true)
		named(err)
		if _, isText := c.value.(string); isText { // apply checks other types by the schema
			_, err = kind.Codec.(rest.Versioned).ConvertTo(&unstructured.Unstructured{Object: object}, GroupVersion())
			named(err)
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
