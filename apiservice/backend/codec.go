package backend

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"portico/resource/rest"
)

// namingCodec names the fields of a body with an invalid duration or base64; the errors of the
// decoder do not.
//
// +k8s:openapi-gen=false
type namingCodec struct{ rest.Versioned }

// Decode implements rest.Codec.
func (c namingCodec) Decode(data []byte, mediaType string, gvk schema.GroupVersionKind, strict bool) (runtime.Object, []error, error) {
	obj, warnings, err := c.Versioned.Decode(data, mediaType, gvk, strict)
	if err != nil {
		if invalid := invalidTexts(data); invalid != nil {
			return nil, nil, invalid
		}
	}
	return obj, warnings, err
}

// ConvertTo implements rest.Versioned.
func (c namingCodec) ConvertTo(obj runtime.Object, gv schema.GroupVersion) (runtime.Object, error) {
	out, err := c.Versioned.ConvertTo(obj, gv)
	if u, ok := obj.(runtime.Unstructured); ok && err != nil {
		if invalid := invalidTextsOf(u.UnstructuredContent()); invalid != nil {
			return nil, invalid
		}
	}
	return out, err
}

// invalidTexts returns the 422 that names the invalid durations and base64 of a body, JSON or
// YAML; nil: there are none.
func invalidTexts(data []byte) error {
	var object map[string]any
	if json.Unmarshal(data, &object) != nil && yaml.Unmarshal(data, &object) != nil {
		return nil
	}
	return invalidTextsOf(object)
}

func invalidTextsOf(object map[string]any) error {
	spec, _ := object["spec"].(map[string]any)
	errs := textErrors(field.NewPath("spec"), reflect.TypeFor[Spec](), spec)
	if len(errs) == 0 {
		return nil
	}
	metadata, _ := object["metadata"].(map[string]any)
	name, _ := metadata["name"].(string)
	slices.SortFunc(errs, func(a, b *field.Error) int { return strings.Compare(a.Field, b.Field) })
	return apierrors.NewInvalid(schema.GroupKind{Group: Group, Kind: "Backend"}, name, errs)
}

// textErrors returns the invalid texts among the values of a struct and of the structs in it.
// No list of the kind contains any.
func textErrors(at *field.Path, as reflect.Type, values map[string]any) (errs field.ErrorList) {
	for i := range as.NumField() {
		f := as.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		value, ok := values[name]
		if !ok || value == nil {
			continue
		}
		kind := f.Type
		if kind.Kind() == reflect.Pointer {
			kind = kind.Elem()
		}
		switch {
		case kind == reflect.TypeFor[metav1.Duration]():
			errs = append(errs, durationErrors(at.Child(name), value)...)
		case kind == reflect.TypeFor[[]byte]():
			errs = append(errs, base64Errors(at.Child(name), value)...)
		case kind.Kind() == reflect.Struct:
			nested, _ := value.(map[string]any)
			errs = append(errs, textErrors(at.Child(name), kind, nested)...)
		}
	}
	return errs
}

func durationErrors(at *field.Path, value any) field.ErrorList {
	const want = "must be a duration with its unit, such as 500ms, 30s or 1m30s"
	text, ok := value.(string)
	if !ok {
		return field.ErrorList{field.Invalid(at, shortened(fmt.Sprint(value)), want+", in quotes")}
	}
	if _, err := time.ParseDuration(text); err != nil {
		return field.ErrorList{field.Invalid(at, shortened(text), want)}
	}
	return nil
}

// base64Errors accepts what encoding/json accepts for bytes.
func base64Errors(at *field.Path, value any) field.ErrorList {
	const want = "must be base64 of PEM, as in: base64 -w0 ca.crt"
	text, ok := value.(string)
	if !ok {
		return field.ErrorList{field.Invalid(at, shortened(fmt.Sprint(value)), want)}
	}
	if _, err := base64.StdEncoding.DecodeString(text); err != nil {
		return field.ErrorList{field.Invalid(at, fmt.Sprintf("%d characters", len(text)), want)}
	}
	return nil
}
