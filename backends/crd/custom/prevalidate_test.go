package custom

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel/model"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/cel/common"
	"sigs.k8s.io/yaml"

	"portico/backends/crd/prevalidate"
)

// realSchemas are the files of test data with definitions of Bakery.
var realSchemas = []string{"bakeries.yaml", "bakeries-strict.yaml"}

// FuzzPrevalidate compares the verdicts of package prevalidate with the results of
// upstream's packages for the same bytes, as a body and as they would be stored: there a
// number with a fraction of 0 is an integer. The schema is a real one, or combined from the
// samples of that package; the object is raw, or combined to mostly fit the schema.
func FuzzPrevalidate(f *testing.F) {
	sample := asJSON(f, read(f, "bakery.yaml"))
	for which := range uint8(len(realSchemas)) {
		f.Add(which, uint64(0), sample)
	}
	for seed := range uint64(1000) {
		f.Add(uint8(len(realSchemas)), seed, []byte(nil))
	}
	real, all := schemasIn(f, realSchemas...), samples(f)
	bodies := newBodies()
	f.Fuzz(func(t *testing.T, which uint8, seed uint64, raw []byte) {
		r := rand.New(rand.NewPCG(seed, uint64(which)))
		schema, data := combined(r, all)
		m := subjectOf(t, &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: schema})
		if len(raw) > 0 {
			data = raw
		}
		if int(which) < len(real) {
			m = real[which]
		}
		a := m.compiled()
		m.checkStored(t, bodies, data)
		verdict := a.Check(data, prevalidate.Body)
		if verdict == prevalidate.Unknown {
			return
		}
		want := m.normalized(t, bodies, data, normalization{unknown: true})
		got := m.decodePrevalidated(data)
		if got == nil || !reflect.DeepEqual(got.Object, want.after) {
			t.Fatalf("%s is %v, and not %v", data, got, want.after)
		}
		if verdict >= prevalidate.Canonical && !want.same {
			t.Fatalf("accepted %s, which becomes %v", data, want.after)
		}
		if verdict == prevalidate.Valid {
			if errs := m.faults(t, want.after); len(errs) > 0 {
				t.Fatalf("accepted %s: %v", data, errs)
			}
			if old := olderState(r, want.after); len(m.changeFaults(t, want.after, old)) > 0 {
				t.Fatalf("accepted %s as a change of %v", data, old)
			}
		}
		if a.CheckForm(data, prevalidate.Stored) >= prevalidate.Canonical && !m.normalized(t, bodies, data, normalization{stored: true}).same {
			t.Fatalf("accepted %s, which reading changes", data)
		}
	})
}

// checkStored compares the verdict on the bytes that an object would be stored as with the
// errors that upstream's packages find in the object.
func (m *subject) checkStored(t *testing.T, bodies *bodies, data []byte) {
	t.Helper()
	state := m.tryToNormalize(bodies, data, normalization{})
	if state.err != nil {
		return
	}
	u := &unstructured.Unstructured{Object: runtime.DeepCopyJSON(state.after)}
	u.SetGeneration(1)
	written, err := json.Marshal(u.Object)
	if err != nil {
		t.Fatal(err)
	}
	if m.compiled().Check(written, prevalidate.Stored) != prevalidate.Valid {
		return
	}
	if errs := m.faults(t, u.Object); len(errs) > 0 {
		t.Fatalf("accepted %s, written as %s: %v", data, written, errs)
	}
}

// subject is a schema in its built and its original form.
type subject struct {
	*versionSchema
	props *apiextensions.JSONSchemaProps
}

// schemasIn builds the schemas of the first version of each definition.
func schemasIn(t testing.TB, files ...string) (out []*subject) {
	t.Helper()
	for _, file := range files {
		def := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.Unmarshal([]byte(read(t, file)), def); err != nil {
			t.Fatal(err)
		}
		out = append(out, subjectOf(t, def.Spec.Versions[0].Schema))
	}
	return out
}

func subjectOf(t testing.TB, in *apiextensionsv1.CustomResourceValidation) *subject {
	t.Helper()
	s, err := newSchema(in)
	if err != nil {
		t.Fatal(err)
	}
	internal := &apiextensions.CustomResourceValidation{}
	if err := apiextensionsv1.Convert_v1_CustomResourceValidation_To_apiextensions_CustomResourceValidation(in, internal, nil); err != nil {
		t.Fatal(err)
	}
	return &subject{s, internal.OpenAPIV3Schema}
}

// normalized is the result of upstream's packages for a body.
type normalized struct {
	after map[string]any
	// same means that nothing changed, also after encoding and decoding.
	same bool
	err  error
}

// normalized normalizes a body. An error fails the test.
func (m *subject) normalized(t *testing.T, bodies *bodies, data []byte, how normalization) normalized {
	t.Helper()
	state := m.tryToNormalize(bodies, data, how)
	if state.err != nil {
		t.Fatalf("accepted %s, but normalizing it fails: %v", data, state.err)
	}
	return state
}

func (m *subject) tryToNormalize(bodies *bodies, data []byte, how normalization) (state normalized) {
	var says metav1.TypeMeta
	if state.err = json.Unmarshal(data, &says); state.err != nil {
		return state
	}
	kind := says.GroupVersionKind()
	obj, said, err := bodies.strictJSON.Decode(data, &kind, nil)
	if state.err = err; err != nil {
		return state
	}
	u := obj.(*unstructured.Unstructured)
	if u.GroupVersionKind() != *said {
		state.err = fmt.Errorf("it is a %v and a %v", u.GroupVersionKind(), said)
		return state
	}
	before := runtime.DeepCopyJSON(u.Object)
	if meta, ok := before["metadata"].(map[string]any); ok && !how.stored && meta["creationTimestamp"] == nil {
		delete(meta, "creationTimestamp")
	}
	unknown, err := m.normalize(u, how)
	if len(unknown) > 0 {
		err = fmt.Errorf("unknown %v", unknown)
	}
	written, encoding := json.Marshal(u.Object)
	again := &unstructured.Unstructured{}
	state.err = errors.Join(err, encoding, again.UnmarshalJSON(written))
	state.after, state.same = u.Object, reflect.DeepEqual(before, u.Object) && reflect.DeepEqual(again.Object, u.Object)
	return state
}

// faults returns the errors of upstream's packages, without those of CEL rules.
func (m *subject) faults(t testing.TB, object map[string]any) field.ErrorList {
	t.Helper()
	c, err := m.validators()
	if err != nil {
		t.Fatal(err)
	}
	errs := m.found(t.Context(), object, c)
	if status, ok := object["status"]; ok && c.status != nil {
		of, _ := c.status.create(t.Context(), field.NewPath("status"), status)
		errs = append(errs, of...)
	}
	return errs
}

func (m *subject) found(ctx context.Context, object map[string]any, c *validators) field.ErrorList {
	errs, _ := c.object.create(ctx, nil, object)
	errs = append(errs, objectmeta.Validate(ctx, nil, object, m.structural, false)...)
	return append(errs, listtype.ValidateListSetsAndMaps(nil, m.structural, object)...)
}

// changeFaults returns the errors of an update by upstream's schema validator.
func (m *subject) changeFaults(t *testing.T, object, old map[string]any) field.ErrorList {
	t.Helper()
	c, err := m.validators()
	if err != nil {
		t.Fatal(err)
	}
	unchanged := common.NewCorrelatedObject(object, old, &model.Structural{Structural: m.structural})
	errs, _ := c.object.update(t.Context(), nil, object, old, unchanged)
	return errs
}

// olderState returns a copy with some values changed or removed.
func olderState(r *rand.Rand, object map[string]any) map[string]any {
	old := runtime.DeepCopyJSON(object)
	var change func(v any)
	change = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			for k := range v {
				switch r.IntN(12) {
				case 0:
					delete(v, k)
				case 1:
					v[k] = "another"
				default:
					change(v[k])
				}
			}
		case []any:
			for i := range v {
				change(v[i])
			}
		}
	}
	change(old)
	return old
}

// read returns a file of test data.
func read(t testing.TB, name string) string {
	t.Helper()
	data, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func asJSON(t testing.TB, text string) []byte {
	t.Helper()
	data, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return data
}
