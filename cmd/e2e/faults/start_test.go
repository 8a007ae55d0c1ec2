package faults

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"portico/cmd/e2e"
	"strings"
	"testing"
)

// starts is how many times the tests here start an installation.
const starts = 2

// Ready means ready: whatever is asked first, the creation of a definition, a
// ConfigMap or, when there is data, a custom resource, is done. And whoever reads
// the logs for warnings finds none that mean nothing.
func TestReadyForWrites(t *testing.T) {
	t.Parallel()
	for i := range starts {
		dir := t.TempDir()
		group := fmt.Sprintf("first%d.example.com", i)
		definition, err := e2e.Widgets(t, group).MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		object, err := e2e.Widget(group, "first").MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		type request struct {
			path string
			body []byte
		}
		define := request{"/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition}
		fill := request{"/api/v1/namespaces/default/configmaps", []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"first"}}`)}
		custom := request{"/apis/" + group + "/v1/namespaces/default/widgets", object}
		first := []request{define, fill}
		if i%2 == 1 {
			first = []request{fill, define}
		}
		for _, requests := range [][]request{first, {custom}} {
			up, err := e2e.Launch(dir)
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range requests {
				if code, answer := up.Post(t, r.path, r.body); code != http.StatusCreated {
					t.Errorf("start %d: %s: %d %s", i, r.path, code, answer)
				}
			}
			if err := up.Stop(); err != nil {
				t.Fatal(err)
			}
		}
		quiet(t, dir)
	}
}

// aboutSlowness reports whether a line is what etcd says of a slow machine.
func aboutSlowness(line string) bool {
	for _, words := range []string{"took too long", "slow fdatasync", `msg="request stats"`} {
		if strings.Contains(line, words) {
			return true
		}
	}
	return false
}

// quiet checks that no log holds a warning or an error. What etcd says of a slow
// machine is none of ours.
func quiet(t *testing.T, dir string) {
	t.Helper()
	logs, err := filepath.Glob(filepath.Join(dir, "logs", "*.log"))
	if err != nil || len(logs) != 4 {
		t.Fatalf("logs: %v %v", logs, err)
	}
	for _, file := range logs {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(data)) {
			if strings.Contains(line, "level=INFO") || aboutSlowness(line) {
				continue
			}
			t.Errorf("%s: %s", filepath.Base(file), line)
		}
	}
}
