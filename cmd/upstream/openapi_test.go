package upstream

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/kube-openapi/pkg/spec3"

	"portico/backends/core/kinds"
	"portico/discovery/openapi"
	"portico/internal/testing/kindtest"
)

// TestOperationsAreThoseOfKubeAPIServer compares the operations in the OpenAPI documents: paths,
// methods, ids, actions, kinds, parameters, and encodings of responses but CBOR.
func TestOperationsAreThoseOfKubeAPIServer(t *testing.T) {
	t.Parallel()
	documents := openapi.FromKinds(kinds.All(allKinds(t)))
	for _, key := range documents.Keys() {
		name := strings.ReplaceAll(key, "/", "__") + "_openapi.json"
		data, err := os.ReadFile(filepath.Join(kindtest.ModuleDir(t, "k8s.io/kubernetes"), "api", "openapi-spec", "v3", name))
		if err != nil {
			t.Fatal(err)
		}
		r := httptest.NewRequest("GET", "/openapi/v3/"+key, nil)
		w := httptest.NewRecorder()
		documents.Handler().ServeHTTP(w, r)
		want, got := operations(t, data), operations(t, w.Body.Bytes())
		for id, op := range want {
			if got[id] != op {
				t.Errorf("%s:\n\tgot  %s\n\twant %s", id, got[id], op)
			}
		}
		for id := range got {
			if want[id] == "" {
				t.Errorf("%s is not in the document of kube-apiserver", id)
			}
		}
	}
}

// operations returns a text for each operation by its id, without the deprecated watches.
func operations(t *testing.T, document []byte) map[string]string {
	t.Helper()
	var doc spec3.OpenAPI
	if err := json.Unmarshal(document, &doc); err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for path, item := range doc.Paths.Paths {
		if strings.Contains(path, "/watch/") {
			continue
		}
		for method, op := range map[string]*spec3.Operation{
			"GET": item.Get, "PUT": item.Put, "POST": item.Post, "PATCH": item.Patch, "DELETE": item.Delete, "HEAD": item.Head, "OPTIONS": item.Options,
		} {
			if op == nil {
				continue
			}
			var parameters []string
			for _, p := range slices.Concat(item.Parameters, op.Parameters) {
				if p.Name == "shardSelector" {
					continue // an alpha feature
				}
				parameters = append(parameters, fmt.Sprint(p.In, " ", p.Name, " ", p.Schema.Type))
			}
			var answers []string
			for code, a := range op.Responses.StatusCodeResponses {
				for encoding := range a.Content {
					if strings.HasPrefix(encoding, "application/cbor") {
						continue
					}
					answers = append(answers, fmt.Sprint(code, " ", encoding))
				}
			}
			slices.Sort(parameters)
			slices.Sort(answers)
			all[op.OperationId] = fmt.Sprint(method, " ", path, " ", op.Tags, " ", op.Extensions["x-kubernetes-action"], " ",
				op.Extensions["x-kubernetes-group-version-kind"], " ", parameters, " ", answers)
		}
	}
	return all
}
