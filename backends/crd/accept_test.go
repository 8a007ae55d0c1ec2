package crd

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel/model"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/cel/common"
	"sigs.k8s.io/yaml"

	"portico/backends/crd/accept"
)

var bakeryKind = schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Bakery"}

// realSchemas are the files of test data with definitions of Bakery.
var realSchemas = []string{"bakeries.yaml", "bakeries-strict.yaml"}

// schemaIn builds the schema of the first version of a definition.
func schemaIn(t testing.TB, file string) (*versionSchema, *apiextensions.JSONSchemaProps) {
	t.Helper()
	def := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.Unmarshal([]byte(read(t, file)), def); err != nil {
		t.Fatal(err)
	}
	return schemaOf(t, def.Spec.Versions[0].Schema)
}

func schemaOf(t testing.TB, in *apiextensionsv1.CustomResourceValidation) (*versionSchema, *apiextensions.JSONSchemaProps) {
	t.Helper()
	s, err := newSchema(in)
	if err != nil {
		t.Fatal(err)
	}
	internal := &apiextensions.CustomResourceValidation{}
	if err := apiextensionsv1.Convert_v1_CustomResourceValidation_To_apiextensions_CustomResourceValidation(in, internal, nil); err != nil {
		t.Fatal(err)
	}
	return s, internal.OpenAPIV3Schema
}

// FuzzAccept compares the acceptor with what upstream's packages make of the
// same bytes. The schema is a real one or made from seed; the object is raw, or
// made from seed to mostly fit the schema.
func FuzzAccept(f *testing.F) {
	sample := asJSON(f, read(f, "bakery.yaml"))
	for which := range uint8(len(realSchemas)) {
		f.Add(which, uint64(0), sample)
	}
	for _, raw := range refused {
		f.Add(uint8(0), uint64(0), []byte(raw))
	}
	for seed := range uint64(400) {
		f.Add(uint8(seed%8), seed, []byte(nil))
	}
	bodies := newBodies()
	f.Fuzz(func(t *testing.T, which uint8, seed uint64, raw []byte) {
		r := rand.New(rand.NewPCG(seed, uint64(which)))
		var s *versionSchema
		var props *apiextensions.JSONSchemaProps
		if int(which) < len(realSchemas) {
			s, props = schemaIn(t, realSchemas[which])
		} else {
			s, props = schemaOf(t, &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: madeSchema(r)})
		}
		data := raw
		if len(raw) == 0 {
			data = madeObject(r, props)
		}
		a := s.acceptor()
		if verdict := a.Accept(data, accept.Body); verdict != accept.Unsure {
			u := checkSettled(t, bodies, s, data, settling{unknown: true})
			if verdict == accept.Valid {
				checkValid(t, s, u)
				if !a.Ratchets() {
					checkUpdate(t, s, u, olderState(r, u))
				}
			}
		}
		if a.Settled(data, accept.Stored) {
			checkSettled(t, bodies, s, data, settling{stored: true})
		}
	})
}

// checkSettled fails unless the object is in line with the schema as it is.
func checkSettled(t *testing.T, bodies *bodies, s *versionSchema, data []byte, how settling) map[string]any {
	t.Helper()
	u, strict, err := bodies.decode(data, mediaJSON, bakeryKind, true)
	if u == nil && err != nil {
		// It says that it is another kind.
		var other map[string]any
		if json.Unmarshal(data, &other) != nil {
			t.Fatalf("accepted %s, which is refused: %v", data, err)
		}
		kind := schema.FromAPIVersionAndKind(other["apiVersion"].(string), other["kind"].(string))
		u, strict, err = bodies.decode(data, mediaJSON, kind, true)
	}
	if err != nil || len(strict) > 0 {
		t.Fatalf("accepted %s, of which is said %v %v", data, err, strict)
	}
	before := runtime.DeepCopyJSON(u.Object)
	if meta, ok := before["metadata"].(map[string]any); ok && !how.stored && meta["creationTimestamp"] == nil {
		delete(meta, "creationTimestamp")
	}
	unknown, err := s.settle(u, how)
	if err != nil || len(unknown) > 0 {
		t.Fatalf("accepted %s, of which is said %v %v", data, err, unknown)
	}
	if !reflect.DeepEqual(before, u.Object) {
		t.Fatalf("accepted %s, which becomes %v", data, u.Object)
	}
	written, err := encode(u.Object)
	if err != nil {
		t.Fatal(err)
	}
	again := &unstructured.Unstructured{}
	if err := runtime.DecodeInto(unstructured.UnstructuredJSONScheme, written, again); err != nil || !reflect.DeepEqual(again.Object, u.Object) {
		t.Fatalf("accepted %s, which is another when written: %s, %v", data, written, err)
	}
	return u.Object
}

func checkValid(t *testing.T, s *versionSchema, object map[string]any) {
	t.Helper()
	c, err := s.checks()
	if err != nil {
		t.Fatal(err)
	}
	errs := validation.ValidateCustomResource(nil, object, c.whole)
	errs = append(errs, objectmeta.Validate(context.Background(), nil, object, s.structural, false)...)
	errs = append(errs, listtype.ValidateListSetsAndMaps(nil, s.structural, object)...)
	if status, ok := object["status"]; ok && c.status != nil {
		errs = append(errs, validation.ValidateCustomResource(field.NewPath("status"), status, c.status)...)
	}
	if len(errs) > 0 {
		t.Fatalf("accepted %v: %v", object, errs)
	}
}

func checkUpdate(t *testing.T, s *versionSchema, object, old map[string]any) {
	t.Helper()
	c, err := s.checks()
	if err != nil {
		t.Fatal(err)
	}
	unchanged := common.NewCorrelatedObject(object, old, &model.Structural{Structural: s.structural})
	if errs := validation.ValidateCustomResourceUpdate(nil, object, old, c.whole, validation.WithRatcheting(unchanged)); len(errs) > 0 {
		t.Fatalf("accepted %v as an update of %v: %v", object, old, errs)
	}
}

// olderState changes a copy here and there.
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
