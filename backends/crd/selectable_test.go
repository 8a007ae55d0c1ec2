package crd

import (
	"fmt"
	"strings"
	"testing"

	"portico/internal/testing/memstore"
)

// tiles is a definition of two versions. %s are the fields that they select and what v2 has besides color and size.
const tiles = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: tiles.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: tiles, kind: Tile}
  versions:
  - name: v1
    served: true
    storage: true
    selectableFields: [%[1]s]
    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {color: {type: string}, size: {type: string}}}}}}
  - name: v2
    served: true
    storage: false
    selectableFields: [%[2]s]
    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {color: {type: string}, size: {type: string}%[3]s}}}}}
`

// Each version has its own schema and selectable fields: either may be equal in all versions while the other differs.
func TestSelectableFieldsOfVersions(t *testing.T) {
	t.Parallel()
	const color, size, more = "{jsonPath: .spec.color}", "{jsonPath: .spec.size}", ", depth: {type: integer}"
	for name, tc := range map[string]struct{ definition, v1, v2 string }{
		"schemas differ": {fmt.Sprintf(tiles, color, color, more), "spec.color", "spec.color"},
		"fields differ":  {fmt.Sprintf(tiles, color, size, ""), "spec.color", "spec.size"},
		"both differ":    {fmt.Sprintf(tiles, color, size, more), "spec.color", "spec.size"},
		"only in v2":     {fmt.Sprintf(tiles, "", size, ""), "", "spec.size"},
		"nothing":        {fmt.Sprintf(tiles, size, size, ""), "spec.size", "spec.size"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := over(t, memstore.New())
			s.install(t, tc.definition)
			path := func(version string) string { return "/apis/example.com/" + version + "/namespaces/default/tiles" }
			for i, spec := range []string{"{color: red, size: small}", "{color: red, size: large}", "{color: blue, size: large}"} {
				s.must(t, "POST", path("v1"), "", fmt.Sprintf("{apiVersion: example.com/v1, kind: Tile, metadata: {name: t-%d}, spec: %s}", i, spec))
			}
			for version, field := range map[string]string{"v1": tc.v1, "v2": tc.v2} {
				for _, label := range []string{"spec.color", "spec.size"} {
					value, found := "red", 2
					if label == "spec.size" {
						value = "large"
					}
					a := s.send(t, "GET", path(version)+"?fieldSelector="+label+"%3D"+value, "", "")
					switch {
					case label != field && a.code != 400:
						t.Errorf("%s by %s, which it does not select: %d %s", version, label, a.code, a.body)
					case label == field && (a.code != 200 || len(at(a.object(t), "items").([]any)) != found):
						t.Errorf("%s by %s: %d %s", version, label, a.code, a.body)
					}
				}
			}
			const crd = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/tiles.example.com"
			s.must(t, "PATCH", crd, "application/merge-patch+json", `{"metadata":{"labels":{"l":"v"}}}`)
			s.must(t, "PATCH", crd+"/status", "application/merge-patch+json", `{"status":{"storedVersions":["v1"]}}`)
			got := s.must(t, "PATCH", crd, "application/json-patch+json", `[{"op":"replace","path":"/spec/names/shortNames","value":["ti"]}]`)
			for i, field := range []string{tc.v1, tc.v2} {
				v := at(got, "spec", "versions").([]any)[i].(map[string]any)
				if at(v, "schema", "openAPIV3Schema", "type") != "object" || field != "" && at(v["selectableFields"].([]any)[0].(map[string]any), "jsonPath") != "."+field {
					t.Errorf("version %d after updates: %v", i+1, v)
				}
			}
		})
	}
}

// Selectable fields that the schema of their version lacks are refused, at the version, on create and update.
func TestBadSelectableFieldsOfVersions(t *testing.T) {
	t.Parallel()
	const color, depth, more = "{jsonPath: .spec.color}", "{jsonPath: .spec.depth}", ", depth: {type: integer}"
	s := over(t, memstore.New())
	const crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	refused := func(a answer, paths ...string) {
		t.Helper()
		var got []string
		for _, cause := range a.status(t).Details.Causes {
			got = append(got, cause.Field)
		}
		if a.code != 422 || strings.Join(got, " ") != strings.Join(paths, " ") {
			t.Errorf("%d %s, want causes at %v", a.code, a.body, paths)
		}
	}
	refused(s.send(t, "POST", crds, "", fmt.Sprintf(tiles, depth, depth, more)), "spec.versions[0].selectableFields[0].jsonPath")
	refused(s.send(t, "POST", crds, "", fmt.Sprintf(tiles, color, depth, "")), "spec.versions[1].selectableFields[0].jsonPath")
	s.install(t, fmt.Sprintf(tiles, color, depth, more))
	bad := fmt.Sprintf(`[{"op":"replace","path":"/spec/versions/%d/selectableFields/0/jsonPath","value":".spec.none"}]`, 1)
	refused(s.send(t, "PATCH", crds+"/tiles.example.com", "application/json-patch+json", bad), "spec.versions[1].selectableFields[0].jsonPath")
	both := `[{"op":"replace","path":"/spec/versions/0/selectableFields","value":[{"jsonPath":".spec.depth"}]}]`
	refused(s.send(t, "PATCH", crds+"/tiles.example.com", "application/json-patch+json", both), "spec.versions[0].selectableFields[0].jsonPath")
}
