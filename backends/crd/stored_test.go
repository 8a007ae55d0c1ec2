package crd

import (
	"encoding/json"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/install"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1beta1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"sigs.k8s.io/yaml"

	"portico/internal/testing/await"
	"portico/internal/testing/memstore"
	"portico/resource"
)

// upstreamStorage is the codec of kube-apiserver's definitions in etcd: it writes v1beta1.
func upstreamStorage() runtime.Codec {
	scheme := runtime.NewScheme()
	install.Install(scheme)
	return serializer.NewCodecFactory(scheme).LegacyCodec(v1beta1.SchemeGroupVersion, apiextensionsv1.SchemeGroupVersion)
}

// asUpstreamStores returns the bytes that kube-apiserver stores of a definition of v1.
func asUpstreamStores(t *testing.T, v1 map[string]any) string {
	t.Helper()
	text, err := json.Marshal(v1)
	if err != nil {
		t.Fatal(err)
	}
	obj, err := runtime.Decode(upstreamStorage(), text)
	if err == nil {
		obj.(*apiextensions.CustomResourceDefinition).ResourceVersion = ""
		text, err = runtime.Encode(upstreamStorage(), obj)
	}
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

const definitionsPath = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

// A definition that kube-apiserver stored, in v1beta1, is served as v1 with everything in it, and
// a write stores it in a form that kube-apiserver reads.
func TestDefinitionsThatUpstreamStored(t *testing.T) {
	t.Parallel()
	first := running(t)
	var stored []string
	var want []map[string]any
	for _, text := range []string{widgets, definitionWith(`{"type":"object","properties":{"spec":{"type":"object","required":["size"],"properties":{"size":{"type":"string"}}}}}`)} {
		made := first.install(t, text)
		entries := at(made, "metadata", "managedFields").([]any)
		for _, e := range entries { // a manager that applied v1beta1, as kube-apiserver had it once
			e.(map[string]any)["apiVersion"] = "apiextensions.k8s.io/v1beta1"
		}
		stored, want = append(stored, asUpstreamStores(t, made)), append(want, made)
	}
	kept := memstore.New()
	for _, text := range stored {
		put(t, kept.Store(&first.definitions.Info), text)
	}
	s := over(t, kept)
	for i, made := range want {
		name := at(made, "metadata", "name").(string)
		got := s.must(t, http.MethodGet, definitionsPath+"/"+name, "", "")
		for _, part := range []string{"apiVersion", "kind", "spec", "status"} {
			if !reflect.DeepEqual(got[part], made[part]) {
				t.Errorf("%s: %s is\n%v\nwant\n%v", name, part, got[part], made[part])
			}
		}
		changed := s.must(t, http.MethodPatch, definitionsPath+"/"+name, "application/merge-patch+json", `{"metadata":{"labels":{"a":"b"}}}`)
		o, err := kept.Store(&s.definitions.Info).Get(t.Context(), resource.Key{Name: name}, resource.At{})
		if err != nil {
			t.Fatal(err)
		}
		obj, err := runtime.Decode(upstreamStorage(), o.Data)
		if err != nil {
			t.Fatalf("upstream cannot read what was written: %v", err)
		}
		obj.(*apiextensions.CustomResourceDefinition).Labels = nil
		back, err := runtime.Encode(upstreamStorage(), obj)
		if err != nil {
			t.Fatal(err)
		}
		var was, is v1beta1.CustomResourceDefinition
		if err := json.Unmarshal([]byte(stored[i]), &was); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(back, &is); err != nil {
			t.Fatal(err)
		}
		if at(changed, "metadata", "labels", "a") != "b" || !reflect.DeepEqual(was.Spec, is.Spec) || !reflect.DeepEqual(was.Status, is.Status) {
			t.Errorf("%s: upstream reads\n%s\nwant\n%s", name, back, stored[i])
		}
	}
	list := s.must(t, http.MethodGet, definitionsPath, "", "")
	if items := list["items"].([]any); len(items) != len(want) {
		t.Errorf("listed are %d definitions, want %d", len(items), len(want))
	}
	s.validatesWidgets(t)
	s.must(t, http.MethodPatch, definitionsPath+"/widgets.example.com?fieldManager=other", "application/apply-patch+yaml",
		`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"widgets.example.com","annotations":{"x":"y"}}}`)
}

// validatesWidgets checks that widgets are pruned, defaulted and validated by the definition.
func (s *Server) validatesWidgets(t *testing.T) {
	t.Helper()
	if got := s.must(t, http.MethodPost, widgetPath, "", widget("a", "{size: small, unknown: 1}")); at(got, "spec", "replicas") != 1.0 || at(got, "spec", "unknown") != nil {
		t.Errorf("created is %v", got)
	}
	if got := s.send(t, http.MethodPost, widgetPath, "", widget("b", "{size: none}")); got.code != http.StatusUnprocessableEntity {
		t.Errorf("a widget of an unknown size: %d %s", got.code, got.body)
	}
	if got := s.must(t, http.MethodGet, widgetPath+"/a/status", "", ""); at(got, "metadata", "name") != "a" {
		t.Errorf("status: %v", got)
	}
}

// The oldest form of v1beta1, without versions and with fields that are not in v1, gets its
// defaults: unknown fields are preserved.
func TestDefinitionsOfTheOldestForm(t *testing.T) {
	t.Parallel()
	kept := memstore.New()
	var text []byte
	text, err := yaml.YAMLToJSON([]byte(`
apiVersion: apiextensions.k8s.io/v1beta1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com, uid: u}
spec:
  group: example.com
  version: v1
  names: {plural: widgets, singular: widget, kind: Widget, listKind: WidgetList}
  validation: {openAPIV3Schema: {properties: {spec: {properties: {size: {type: string}}}}}}
  additionalPrinterColumns: [{name: Size, type: string, JSONPath: .spec.size}]
status:
  acceptedNames: {plural: widgets, singular: widget, kind: Widget, listKind: WidgetList}
  storedVersions: [v1]
  conditions:
  - {type: NamesAccepted, status: "True"}
  - {type: Established, status: "True"}
`))
	if err != nil {
		t.Fatal(err)
	}
	put(t, kept.Store(&running(t).definitions.Info), string(text))
	s := over(t, kept)
	got := s.must(t, http.MethodGet, definitionsPath+"/widgets.example.com", "", "")
	if v := at(got, "spec", "versions").([]any); len(v) != 1 || at(v[0], "name") != "v1" || at(v[0], "storage") != true ||
		at(v[0], "schema", "openAPIV3Schema", "properties") == nil || len(at(v[0], "additionalPrinterColumns").([]any)) != 1 {
		t.Errorf("versions are %v", v)
	}
	if at(got, "spec", "scope") != "Namespaced" || at(got, "spec", "preserveUnknownFields") != true {
		t.Errorf("spec is %v", got["spec"])
	}
	if got := s.must(t, http.MethodPost, widgetPath, "", widget("a", "{size: small, unknown: 1}")); at(got, "spec", "unknown") != 1.0 {
		t.Errorf("created is %v", got)
	}
	if got := s.send(t, http.MethodPost, widgetPath, "", widget("b", "{size: 1}")); got.code != http.StatusUnprocessableEntity {
		t.Errorf("a number for a string: %d %s", got.code, got.body)
	}
	s.saysWhatIsNotStructural(t)
}

// saysWhatIsNotStructural checks that the stored definition gets the condition NonStructuralSchema,
// which goes when its schema becomes structural, and cannot come back.
func (s *Server) saysWhatIsNotStructural(t *testing.T) {
	t.Helper()
	var message string
	await.Until(t, "the condition NonStructuralSchema is set", func() bool {
		c := condition(s.must(t, http.MethodGet, widgetsByName, "", ""), "NonStructuralSchema")
		message, _ = c["message"].(string)
		return c["status"] == "True" && c["reason"] == "Violations"
	})
	for _, violation := range []string{
		"spec.preserveUnknownFields: Invalid value: true: must be false",
		"spec.versions[0].schema.openAPIV3Schema.properties[spec].type: Required value: must not be empty for specified object fields",
		"spec.versions[0].schema.openAPIV3Schema.type: Required value: must not be empty at the root",
	} {
		if !strings.Contains(message, violation) {
			t.Errorf("%q is missing in %s", violation, message)
		}
	}
	fixed := `{"spec":{"preserveUnknownFields":false,"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}}]}}`
	if got := s.must(t, http.MethodPatch, widgetsByName, mergePatch, fixed); condition(got, "NonStructuralSchema") != nil {
		t.Errorf("of a structural schema: %v", got["status"])
	}
	if got := s.send(t, http.MethodPatch, widgetsByName, mergePatch, `{"spec":{"preserveUnknownFields":true}}`); got.code != http.StatusUnprocessableEntity {
		t.Errorf("preserveUnknownFields again: %d %s", got.code, got.body)
	}
}

// The condition on schemas that are not structural is kept up to date by writes, where another
// server has set it.
func TestNonStructuralDefinition(t *testing.T) {
	t.Parallel()
	kept := memstore.New()
	put(t, kept.Store(&running(t).definitions.Info), `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition",
		"metadata":{"name":"xs.example.com","uid":"u","generation":1,"creationTimestamp":"2026-01-01T00:00:00Z"},
		"spec":{"group":"example.com","scope":"Namespaced","names":{"plural":"xs","singular":"x","kind":"X","listKind":"XList"},"preserveUnknownFields":true,
			"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","properties":{"a":{}}}}}]},
		"status":{"storedVersions":["v1"],"acceptedNames":{"plural":"xs","singular":"x","kind":"X","listKind":"XList"},"conditions":[
			{"type":"NamesAccepted","status":"True","reason":"NoConflicts","message":"no conflicts found"},
			{"type":"Established","status":"True","reason":"InitialNamesAccepted","message":"the initial names have been accepted"},
			{"type":"NonStructuralSchema","status":"True","reason":"Violations","message":"of old"}]}}`)
	s := over(t, kept)
	condition := func(patch string) any {
		written := s.must(t, http.MethodPatch, definitionsPath+"/xs.example.com", "application/merge-patch+json", patch)
		for _, c := range at(written, "status", "conditions").([]any) {
			if at(c, "type") == "NonStructuralSchema" {
				return at(c, "message")
			}
		}
		return nil
	}
	if got := s.send(t, http.MethodPatch, "/apis/example.com/v1/namespaces/default/xs/a?fieldManager=m", "application/apply-patch+yaml",
		`{"apiVersion":"example.com/v1","kind":"X","metadata":{"name":"a"},"a":{"b":1},"c":[1]}`); got.code != http.StatusCreated {
		t.Errorf("apply: %d %s", got.code, got.body)
	}
	const violations = "[spec.preserveUnknownFields: Invalid value: true: must be false, " +
		"spec.versions[0].schema.openAPIV3Schema.properties[a].type: Required value: must not be empty for specified object fields]"
	if got := condition(`{"metadata":{"labels":{"a":"b"}}}`); got != violations {
		t.Errorf("the message is %v", got)
	}
	if got := condition(`{"spec":{"preserveUnknownFields":false,"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}}]}}`); got != nil {
		t.Errorf("with a structural schema the message is %v", got)
	}
}
