package crd

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// fieldRow is a field of schemas, a schema with it, and values that are stored under the schema.
type fieldRow struct {
	Field                string
	Before, Root, Schema json.RawMessage
	Steps                []fieldStep
}

// fieldStep is a create, or with Old an update, of an object with the value New, and its outcome.
type fieldStep struct {
	Name             string
	Old, New, Stored json.RawMessage
	Code             int // 0: the value Stored is stored
	Reasons          []metav1.CauseType
	Message          string
}

// Each field of a schema means what it means to kube-apiserver, which gave the outcomes in
// testdata/fields.yaml (docs/wire.md 9.2).
func TestFieldsOfSchemas(t *testing.T) {
	t.Parallel()
	var rows []fieldRow
	data, err := os.ReadFile("testdata/fields.yaml")
	if err == nil {
		err = yaml.UnmarshalStrict(data, &rows)
	}
	documented, docs := os.ReadFile("../../docs/wire.md")
	if err != nil || docs != nil {
		t.Fatal(err, docs)
	}
	s := running(t)
	for i, row := range rows {
		t.Run(row.Field, func(t *testing.T) {
			if !strings.Contains(string(documented), "\n| `"+row.Field+"` |") {
				t.Error("docs/wire.md does not list it")
			}
			row.check(t, s, fmt.Sprint("rows", i), fmt.Sprint("Row", i))
		})
	}
}

// check installs the definition of a row and does its steps.
func (row *fieldRow) check(t *testing.T, s *Server, plural, kind string) {
	schema := func(x json.RawMessage) string {
		return fmt.Sprintf(`{"type":"object","properties":{"x":%s},"x-kubernetes-validations":%s}`, x, cmp.Or(string(row.Root), "[]"))
	}
	first := row.Schema
	if row.Before != nil {
		first = row.Before
	}
	s.install(t, fmt.Sprintf(`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"%s.r.example.com"},
		"spec":{"group":"r.example.com","scope":"Namespaced","names":{"plural":%q,"kind":%q},
		"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":%s}}]}}`, plural, plural, kind, schema(first)))
	path := "/apis/r.example.com/v1/namespaces/default/" + plural
	object := func(name, revision string, x json.RawMessage) string {
		member := ""
		if x != nil {
			member = `,"x":` + string(x)
		}
		return fmt.Sprintf(`{"apiVersion":"r.example.com/v1","kind":%q,"metadata":{"name":%q,"resourceVersion":%q}%s}`, kind, name, revision, member)
	}
	revisions := make([]string, len(row.Steps))
	for i, step := range row.Steps {
		if step.Old != nil {
			made := s.must(t, "POST", path, "application/json", object(fmt.Sprint("row-", i), "", step.Old))
			revisions[i], _ = at(made, "metadata", "resourceVersion").(string)
		}
	}
	if row.Before != nil {
		s.must(t, "PATCH", definitionPath+"/"+plural+".r.example.com", jsonPatch,
			`[{"op":"replace","path":"/spec/versions/0/schema/openAPIV3Schema","value":`+schema(row.Schema)+`}]`)
		eventually(t, "the new schema is used", func() bool { return s.definitionOf("r.example.com", plural).Generation == 2 })
	}
	for i, step := range row.Steps {
		name := cmp.Or(step.Name, fmt.Sprint("row-", i))
		method, target := "POST", path
		if step.Old != nil {
			method, target = "PUT", path+"/"+name
		}
		step.compare(t, s.send(t, method, target, "application/json", object(name, revisions[i], step.New)))
	}
}

// compare compares an answer with the outcome of the step.
func (step *fieldStep) compare(t *testing.T, a answer) {
	t.Helper()
	if step.Code == 0 {
		var want any
		if err := json.Unmarshal(step.Stored, &want); err != nil {
			t.Fatal(err)
		}
		got, found := a.object(t)["x"]
		if !found {
			got = "none"
		}
		if a.code >= 300 || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %d %s, want %s to be stored", step.New, a.code, a.body, step.Stored)
		}
		return
	}
	status := a.status(t)
	message := status.Message
	if _, errs, invalid := strings.Cut(message, " is invalid: "); invalid {
		message = errs
	}
	var reasons []metav1.CauseType
	if status.Details != nil {
		for _, cause := range status.Details.Causes {
			reasons = append(reasons, cause.Type)
		}
	}
	if a.code != step.Code || message != step.Message || step.Reasons != nil && !slices.Equal(reasons, step.Reasons) {
		t.Errorf("%s: got %d %v %s, want %d %v %s", step.New, a.code, reasons, message, step.Code, step.Reasons, step.Message)
	}
}
