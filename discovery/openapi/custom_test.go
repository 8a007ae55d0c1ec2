package openapi

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/kube-openapi/pkg/spec3"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"sigs.k8s.io/yaml"

	"portico/resource"
	"portico/resource/rest"
)

var rewrite = flag.Bool("rewrite", false, "rewrite the golden files")

// structural returns the schema of a definition in the form that the CRD server publishes.
func structural(t testing.TB, file string) *spec.Schema {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", file))
	if err != nil {
		t.Fatal(err)
	}
	v1, internal := &apiextensionsv1.JSONSchemaProps{}, &apiextensions.JSONSchemaProps{}
	if err := yaml.UnmarshalStrict(data, v1); err != nil {
		t.Fatal(err)
	}
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(v1, internal, nil); err != nil {
		t.Fatal(err)
	}
	s, err := structuralschema.NewStructural(internal)
	if err != nil {
		t.Fatal(err)
	}
	return s.Unfold().ToKubeOpenAPI()
}

// custom returns the row of a custom resource in one version.
func custom(group, version, plural, kind, inputs string, schema func() (*spec.Schema, error)) *rest.Kind {
	return &rest.Kind{
		Info:         resource.Info{Group: group, Versions: []string{version}, Resource: plural, Kind: kind, Namespaced: true},
		Codec:        plain{},
		Schema:       func(string) (*spec.Schema, error) { return schema() },
		SchemaInputs: func(string) string { return inputs },
		Ownership:    func() (managedfields.TypeConverter, error) { return nil, errors.New("not used") },
	}
}

// cronTab returns a custom resource with subresources and selectable fields.
func cronTab(t testing.TB, schema *spec.Schema) *rest.Kind {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := autoscalingv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	scale := autoscalingv1.SchemeGroupVersion.WithKind("Scale")
	k := custom("stable.example.com", "v1", "crontabs", "CronTab", "1", func() (*spec.Schema, error) { return schema, nil })
	k.FieldLabels = []string{"spec.policy", ".spec.schedule"}
	k.Subresources = []rest.Subresource{
		{Name: "scale", GVK: scale, Projection: &rest.Projection{
			Kind:  &rest.Kind{Info: resource.Info{Group: scale.Group, Versions: []string{"v1"}, Kind: "Scale"}, Codec: rest.Typed(scheme, scale), Ownership: k.Ownership},
			Paths: managedfields.ResourcePathMappings{},
		}},
		{Name: "status", Strategy: &rest.Strategy{}},
	}
	return k
}

// The operations of a custom resource are those of kube-apiserver for the same definition, which the
// golden file has.
func TestOperationsOfCustomResource(t *testing.T) {
	doc := parse(t, FromKinds(Config{}, []*rest.Kind{cronTab(t, structural(t, "crontab.schema.yaml"))}), "apis/stable.example.com/v1")
	var out []string
	for url, item := range doc.Paths.Paths {
		for method, op := range operationsOf(item) {
			out = append(out, url+" "+method+"\n"+summary(item, op))
		}
	}
	slices.Sort(out)
	golden(t, "crontab.operations.txt", strings.Join(out, ""))
}

// summary describes an operation, one fact a line.
func summary(item *spec3.Path, op *spec3.Operation) string {
	var params, answers []string
	for _, p := range slices.Concat(item.Parameters, op.Parameters) {
		params = append(params, p.Name+":"+p.Schema.Type[0])
	}
	for code, r := range op.Responses.StatusCodeResponses {
		answers = append(answers, fmt.Sprintf("%d %s", code, contents(r.Content)))
	}
	slices.Sort(answers)
	body := "-"
	if op.RequestBody != nil {
		body = contents(op.RequestBody.Content)
	}
	return fmt.Sprintf("  %s %v %v %v %q\n  ?%s\n  < %s\n  > %s\n", op.OperationId, op.Tags, op.Extensions["x-kubernetes-action"],
		op.Extensions[extensionGVK], op.Description, strings.Join(params, " "), body, strings.Join(answers, "\n  > "))
}

func contents(content map[string]*spec3.MediaType) string {
	var types []string
	model := ""
	for m, c := range content {
		types = append(types, strings.TrimPrefix(m, "application/"))
		model = c.Schema.Ref.String()
	}
	slices.Sort(types)
	return strings.Join(types, ",") + " " + strings.TrimPrefix(model, refPrefix)
}

func golden(t *testing.T, file, got string) {
	t.Helper()
	path := filepath.Join("testdata", file)
	if *rewrite {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	g, w := strings.Split(got, "\n"), strings.Split(string(want), "\n")
	for i := range max(len(g), len(w)) {
		if i >= len(g) || i >= len(w) || g[i] != w[i] {
			t.Fatalf("%s differs at line %d (-rewrite accepts it):\n%s", file, i+1, strings.Join(g[min(i, len(g)):], "\n"))
		}
	}
}

// The schema of a custom resource is completed with the fields of every object; that of the kind is not
// changed.
func TestSchemaOfCustomResource(t *testing.T) {
	shared := structural(t, "crontab.schema.yaml")
	before, err := json.Marshal(shared)
	if err != nil {
		t.Fatal(err)
	}
	d := FromKinds(Config{}, []*rest.Kind{cronTab(t, shared)})
	doc := parse(t, d, "apis/stable.example.com/v1")
	data, err := json.MarshalIndent(doc.Components.Schemas["com.example.stable.v1.CronTab"], "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "crontab.schema.json", string(data)+"\n")
	if data, err = json.MarshalIndent(doc.Components.Schemas["com.example.stable.v1.CronTabList"], "", "  "); err != nil {
		t.Fatal(err)
	}
	golden(t, "crontablist.schema.json", string(data)+"\n")

	if after, err := json.Marshal(shared); err != nil || string(after) != string(before) {
		t.Errorf("the kind's own schema was changed: %v\n%s", err, after)
	}
	// Server-side apply and its clients make types of the very same schemas.
	if _, err := managedfields.NewTypeConverter(doc.Components.Schemas, false); err != nil {
		t.Errorf("the schemas are no types: %v", err)
	}
	body := get(d, "/openapi/v3/apis/stable.example.com/v1", "Accept", mediaOpenAPIProtobuf).Body.Bytes()
	if text := fromProtobuf(t, body); !strings.Contains(text, "x-kubernetes-preserve-unknown-fields") || !strings.Contains(text, "application/apply-patch+yaml") {
		t.Error("the protobuf form lacks extensions or content types")
	}
}

// A kind without schema is an object without properties.
func TestKindWithoutSchema(t *testing.T) {
	d := FromKinds(Config{}, []*rest.Kind{custom("example.com", "v1", "widgets", "Widget", "", func() (*spec.Schema, error) { return nil, nil })})
	s := parse(t, d, "apis/example.com/v1").Components.Schemas["com.example.v1.Widget"]
	want := []any{map[string]any{"group": "example.com", "kind": "Widget", "version": "v1"}}
	// Readers would take some properties for all of them.
	if len(s.Properties) != 0 || !s.Type.Contains("object") || !reflect.DeepEqual(s.Extensions[extensionGVK], want) {
		t.Errorf("%+v", s)
	}
}

// A kind without schema does not affect the others of its group, and clients must not cache the
// document.
func TestBrokenSchema(t *testing.T) {
	broken := true
	d := FromKinds(Config{}, []*rest.Kind{
		cronTab(t, structural(t, "crontab.schema.yaml")),
		custom("stable.example.com", "v1", "widgets", "Widget", "1", func() (*spec.Schema, error) {
			if broken {
				return nil, errors.New("no schema today")
			}
			return spec.StringProperty(), nil
		}),
	})
	url := d.URL("apis/stable.example.com/v1")
	w := get(d, url)
	if w.Code != 200 || w.Header().Get("Cache-Control") != "" || w.Header().Get("ETag") != "" {
		t.Errorf("half a document: %d %v", w.Code, w.Header())
	}
	doc := parse(t, d, "apis/stable.example.com/v1")
	if s := doc.Components.Schemas["com.example.stable.v1.CronTab"]; s == nil || s.Properties["spec"].Properties["schedule"].Type[0] != "string" {
		t.Error("the other kind is gone")
	}
	if doc.Paths.Paths["/apis/stable.example.com/v1/namespaces/{namespace}/widgets"] == nil {
		t.Error("the broken kind is not there at all")
	}
	broken = false
	if w := get(d, url); w.Header().Get("Cache-Control") != "public, immutable" || w.Header().Get("ETag") == "" {
		t.Errorf("once it is whole: %v", w.Header())
	}
}
