package stored

import (
	"bytes"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"portico/gateway/lastgood"
	"portico/resource/etcd"
)

var update = flag.Bool("update", false, "write the table of kinds into docs/storage.md")

// contents are keys and values of etcd, some of which this version does not know or cannot read.
var contents = map[string]string{
	"/registry/configmaps/default/a":            `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"default"}}`,
	"/registry/configmaps/default/broken":       `k8s` + "\x00" + `nothing`,
	"/registry/configmaps/default/encrypted":    `k8s:enc:aescbc:v1:key:x`,
	"/registry/leases/default/newer":            `{"apiVersion":"coordination.k8s.io/v9","kind":"Lease","metadata":{"name":"newer","namespace":"default"}}`,
	"/registry/roles/default/other":             `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"Part","metadata":{"name":"other","namespace":"default"}}`,
	"/registry/novelties/default/a":             `{"apiVersion":"v1","kind":"Novelty","metadata":{"name":"a","namespace":"default"}}`,
	"/registry/masterleases/127.0.0.1":          `{"apiVersion":"v1","kind":"Endpoints","metadata":{"name":"127.0.0.1"}}`,
	"/registry/b.example.com/things/default/a":  `{"apiVersion":"b.example.com/v1","kind":"Thing","metadata":{"name":"a","namespace":"default"}}`,
	"/registry/b.example.com/orphans/default/a": `{"apiVersion":"b.example.com/v1","kind":"Orphan","metadata":{"name":"a","namespace":"default"}}`,
	"/registry/apiextensions.k8s.io/customresourcedefinitions/things.b.example.com": `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition",
		"metadata":{"name":"things.b.example.com"},"spec":{"group":"b.example.com","names":{"plural":"things","kind":"Thing"},"scope":"Namespaced",
		"conversion":{"strategy":"Webhook"},"versions":[{"name":"v1","served":false},{"name":"v2","served":true,"storage":true}]},"status":{"storedVersions":["v1","v2"]}}`,
	"/elsewhere/configmaps/default/a":            "not ours",
	"compact_rev_key":                            "17",
	"portico/elections/registry/crd/1":           "host_1",
	"portico/documents/registry/versions/core":   "0.2.0",
	"portico/documents/registry/bars/1":          "",
	"portico/documents/registry/gateway/foreign": "2 is another format",
}

// The keys of etcd that this version does not know, or cannot read, are told from the others.
func TestReader(t *testing.T) {
	t.Parallel()
	document, err := lastgood.Pack("known")
	if err != nil {
		t.Fatal(err)
	}
	r, err := NewReader("/registry")
	if err != nil {
		t.Fatal(err)
	}
	r.Add("portico/documents/registry/gateway/known", document)
	for key, value := range contents {
		r.Add(key, []byte(value))
	}
	c := r.Contents()
	var lines []string
	for _, res := range c.Resources {
		lines = append(lines, fmt.Sprintf("%s %s %d %v %s", res.Path, res.Process, res.Objects, slices.Sorted(maps.Keys(res.Forms)), res.Written))
	}
	want := []string{
		"apiextensions.k8s.io/customresourcedefinitions crd 1 [apiextensions.k8s.io/v1 JSON] apiextensions.k8s.io/v1 JSON",
		"b.example.com/orphans  1 [b.example.com/v1 JSON] ",
		"b.example.com/things crd 1 [b.example.com/v1 JSON] b.example.com/v2 JSON",
		"configmaps core 3 [v1 JSON] v1 protobuf",
		"leases core 1 [coordination.k8s.io/v9 JSON] ",
		"masterleases gateway 1 [v1 JSON] ",
		"novelties  1 [v1 JSON] ",
		"roles gateway 1 [rbac.authorization.k8s.io/v1 JSON] ",
	}
	if !slices.Equal(lines, want) {
		t.Errorf("resources are\n%s\nwant\n%s", strings.Join(lines, "\n"), strings.Join(want, "\n"))
	}
	var unreadable []string
	for _, text := range c.Unreadable {
		key, _, _ := strings.Cut(text, ": ")
		unreadable = append(unreadable, filepath.Base(key))
	}
	if slices.Sort(unreadable); !slices.Equal(unreadable, []string{"broken", "encrypted", "newer", "other"}) {
		t.Errorf("unreadable is %v", c.Unreadable)
	}
	if len(c.Foreign) != 1 || !strings.HasPrefix(c.Foreign[0], "portico/documents/registry/gateway/foreign: ") {
		t.Errorf("foreign is %v", c.Foreign)
	}
	keys := map[etcd.Family]int{etcd.Objects: 10, etcd.DocumentKeys: 4, etcd.ElectionKeys: 1, etcd.CompactionKey: 1}
	if !maps.Equal(c.Keys, keys) || c.Versions["core"] != "0.2.0" {
		t.Errorf("keys are %v, versions %v", c.Keys, c.Versions)
	}
	d := r.Definitions()
	if len(d) != 1 || !d[0].Webhook || d[0].Storage != "v2" || !maps.Equal(d[0].Versions, map[string]bool{"v1": false, "v2": true}) || len(d[0].Stored) != 2 {
		t.Errorf("definitions are %+v", d)
	}
}

// written returns the form in which a kind is stored.
func written(t *testing.T, k Kind) string {
	t.Helper()
	if k.Codec == nil {
		return k.Versions[0] + " protobuf"
	}
	gvk := k.GVK(k.Storage())
	empty := k.Codec.StrategicMerge(gvk)
	empty.GetObjectKind().SetGroupVersionKind(gvk)
	o, err := k.Codec.EncodeStored(empty)
	if err != nil {
		t.Fatalf("%s: %v", k.Path, err)
	}
	return formOf(o)
}

// The table of docs/storage.md has every kind that is stored, with its path and form. -update writes it.
func TestDocument(t *testing.T) {
	t.Parallel()
	all, err := Kinds()
	if err != nil {
		t.Fatal(err)
	}
	table := "| below the prefix | kind | form | process |\n|---|---|---|---|\n"
	for _, path := range slices.Sorted(maps.Keys(all)) {
		k := all[path]
		table += fmt.Sprintf("| `%s` | %s | %s | %s |\n", path, k.Info.Kind, written(t, k), k.Process)
	}
	file := "../../../docs/storage.md"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	_, after, found := bytes.Cut(text, []byte("| below the prefix |"))
	at := len(text) - len(after) - len("| below the prefix |")
	end := bytes.Index(after, []byte("\n\n"))
	if !found || end < 0 {
		t.Fatalf("%s has no table of kinds", file)
	}
	old := string(text[at : at+len("| below the prefix |")+end+1])
	if old == table {
		return
	}
	if !*update {
		t.Fatalf("%s does not have the kinds as they are; go test ./cmd/portico/stored -run TestDocument -update writes them:\n%s", file, table)
	}
	if err := os.WriteFile(file, []byte(strings.Replace(string(text), old, table, 1)), 0o644); err != nil {
		t.Fatal(err)
	}
}
