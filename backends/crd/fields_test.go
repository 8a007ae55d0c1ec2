package crd

import (
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"portico/discovery"
	"portico/internal/testing/await"
	"portico/internal/testing/fieldtest"
	"portico/resource"
	"portico/resource/authn"
	"portico/resource/serve"
	"portico/resource/serve/filter"
)

// Each field of a definition means what it means to kube-apiserver, which gave the outcomes in
// testdata (docs/wire.md 9.1, 9.2).
func TestFields(t *testing.T) {
	t.Parallel()
	documented, err := os.ReadFile("../../docs/wire.md")
	if err != nil {
		t.Fatal(err)
	}
	server := fieldServer(t)
	for _, file := range []string{"fields", "definitions"} {
		for _, row := range fieldtest.Load(t, "testdata/"+file+".yaml") {
			t.Run(row.Field, func(t *testing.T) {
				t.Parallel()
				line := "| `" + row.Field + "` | " + row.Does + " |"
				if !strings.Contains(string(documented), "\n"+line+"\n") {
					t.Errorf("docs/wire.md does not have the line\n%s", line)
				}
				row.Run(t, server, true)
			})
		}
	}
}

// administrator is the user of all requests.
type administrator struct{}

// Authenticate implements authn.Authenticator.
func (administrator) Authenticate(*http.Request) (*resource.User, bool, error) {
	return &resource.User{Name: "admin", Groups: []string{resource.GroupMasters}}, true, nil
}

var _ authn.Authenticator = administrator{}

// fieldServer returns a CRD server with the filters of a process.
func fieldServer(t *testing.T) *fieldtest.Server {
	t.Helper()
	s := running(t)
	chain, err := filter.New(filter.Config{
		Authenticator: administrator{}, Logger: s.log, MaxInFlight: -1, MaxMutatingInFlight: -1,
		Handler: serve.NewRouter(serve.Routes{Resources: s.resources(), Discovery: discovery.NewHandler(s.documents), OpenAPI: s.openAPI.Handler()}),
	})
	if err != nil {
		t.Fatal(err)
	}
	web := httptest.NewServer(chain)
	t.Cleanup(web.Close)
	return &fieldtest.Server{URL: web.URL, Client: web.Client(), Settle: func(t testing.TB, name string) {
		await.Until(t, name+" is served as it is stored", func() bool {
			stored, err := s.early.Get(t.Context(), resource.Key{Name: name}, resource.At{})
			known := s.served.Load().outlines[name]
			return err != nil && known == nil || err == nil && known != nil && known.Stored.Revision == stored.Revision &&
				!isInstalling(known.CustomResourceDefinition)
		})
	}}
}

// Every field of the Go types of a definition has a row, and every row has its own group.
func TestEveryFieldHasARow(t *testing.T) {
	t.Parallel()
	groups := map[string]string{}
	rows := map[string][]string{}
	for _, file := range []string{"fields", "definitions"} {
		for _, row := range fieldtest.Load(t, "testdata/"+file+".yaml") {
			if other := groups[row.Group()]; other != "" {
				t.Errorf("%s and %s have the same group", row.Field, other)
			}
			groups[row.Group()] = row.Field
			rows[file] = append(rows[file], row.Names()...)
		}
	}
	definition := reflect.TypeFor[apiextensionsv1.CustomResourceDefinition]()
	for _, part := range []string{"Spec", "Status"} {
		f, _ := definition.FieldByName(part)
		for _, name := range fieldNames(f.Type, strings.ToLower(part)) {
			if !slices.Contains(rows["definitions"], name) {
				t.Errorf("testdata/definitions.yaml has no row of %s", name)
			}
		}
	}
	for f := range reflect.TypeFor[apiextensionsv1.JSONSchemaProps]().Fields() {
		if name := jsonName(f); !slices.Contains(rows["fields"], name) && name != "x-kubernetes-validations" {
			t.Errorf("testdata/fields.yaml has no row of %s", name)
		}
	}
	for f := range reflect.TypeFor[apiextensionsv1.ValidationRule]().Fields() {
		if name := jsonName(f); !slices.Contains(rows["fields"], name) && !slices.Contains(rows["fields"], "x-kubernetes-validations."+name) {
			t.Errorf("testdata/fields.yaml has no row of %s of a rule", name)
		}
	}
}

func jsonName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return name
}

// fieldNames returns the paths of the fields of a type that have no fields themselves. Schemas
// have a table of their own.
func fieldNames(typ reflect.Type, path string) (names []string) {
	for typ.Kind() == reflect.Pointer || typ.Kind() == reflect.Slice {
		typ = typ.Elem()
	}
	if typ.Kind() != reflect.Struct || typ.NumField() == 0 || typ == reflect.TypeFor[apiextensionsv1.JSONSchemaProps]() || typ.PkgPath() != definitionTypes {
		return []string{path}
	}
	for f := range typ.Fields() {
		names = append(names, fieldNames(f.Type, path+"."+jsonName(f))...)
	}
	return names
}

var definitionTypes = reflect.TypeFor[apiextensionsv1.CustomResourceDefinition]().PkgPath()
