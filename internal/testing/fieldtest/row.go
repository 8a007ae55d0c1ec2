// Package fieldtest sends the cases of tables of fields to an API server: the fields of a
// CustomResourceDefinition, what is done with each, and what kube-apiserver answered. The cases are in
// YAML; kube-apiserver's outcomes are written between them (.ci/long fields) and compared with
// those of the CRD server (package crd).
//
// Runs in: tests.
package fieldtest

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	sigsyaml "sigs.k8s.io/yaml"
)

// Row is a field, or several, with cases. Its definition is things.GROUP in a group of its own. The
// row either has values of a schema or requests.
type Row struct {
	// Field has the names of the fields, with ", " between them; PREFIX.{A, B} is PREFIX.A, PREFIX.B.
	Field string
	// Does is what the table of docs/wire.md says of the cases.
	Does string
	// Schema is that of the field x of the objects, and Root are the rules of the whole object.
	// Before is the schema while the steps' old values are stored.
	Before, Root, Schema json.RawMessage
	Steps                []Step
}

// Step is a value or a request, and its outcome.
type Step struct {
	// New is the value of x in a create, or with Old in an update, of an object named Name, or
	// else by the index of the step.
	Name     string
	Old, New json.RawMessage

	// Define is a merge patch of the basic definition, which is then created; Change is one of the
	// definition that is served, or of that named Of. Version is a merge patch of its first version,
	// and Schema is the schema of that.
	Define, Change, Version, Schema json.RawMessage
	Of                              string
	// Send is the method and path of a request. The path is below that of v1 of the group in the
	// namespace default, unless it begins with a slash.
	Send string
	// Body is that of Send; apiVersion and kind are added to a POST. As is its patch type (merge),
	// and Accept that of the response.
	Body       json.RawMessage
	As, Accept string
	// Keep are variables, $NAME in the paths and bodies of later steps, by the path of their value in
	// the response.
	Keep map[string]string
	// Late is a read of what kube-apiserver's controllers do after a while.
	Late bool

	Outcome
	// Ours is the outcome of the CRD server where it differs, and Differs says why.
	Ours    *Outcome
	Differs string
}

// Outcome is the response to a step.
type Outcome struct {
	// Code is 0 for 200 and 201.
	Code int
	// Reasons are those of the causes, if one is not FieldValueInvalid.
	Reasons []metav1.CauseType
	// Message is that of a Status after "is invalid", or the text of a response that is none.
	Message string
	// Warnings are those of the response.
	Warnings []string
	// Stored is the value of x in the response, "none" without one.
	Stored json.RawMessage
	// Show are values in the response by path; after Define and Change of the definition that is
	// read then.
	Show map[string]json.RawMessage
}

var unsafe = regexp.MustCompile(`[^a-z0-9]+`)

// Group returns the group of the row's definition.
func (r *Row) Group() string {
	name := unsafe.ReplaceAllString(strings.ToLower(r.Field), "-")
	return strings.Trim(name[:min(len(name), 60)], "-") + ".example.com"
}

// Names returns the names in Field.
func (r *Row) Names() []string {
	prefix, rest, _ := strings.Cut(r.Field, "{")
	if rest == "" {
		return strings.Split(r.Field, ", ")
	}
	names := strings.Split(strings.TrimSuffix(rest, "}"), ", ")
	for i := range names {
		names[i] = prefix + names[i]
	}
	return names
}

// Load reads the rows of a file.
func Load(t testing.TB, file string) []Row {
	t.Helper()
	var rows []Row
	data, err := os.ReadFile(file)
	if err == nil {
		err = sigsyaml.UnmarshalStrict(data, &rows)
	}
	if err != nil {
		t.Fatal(err)
	}
	return rows
}
