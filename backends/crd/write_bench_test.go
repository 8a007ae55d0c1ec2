package crd

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"portico/resource"
)

// BenchmarkWriteCustom measures writes of custom resources of about 3.5 KB, from the request
// to a store in memory.
func BenchmarkWriteCustom(b *testing.B) {
	for _, verb := range []string{"create", "update", "patch", "apply"} {
		b.Run(verb, func(b *testing.B) { benchCustom(b, verb) })
	}
}

func benchCustom(b *testing.B, verb string) {
	s := running(b)
	s.install(b, gadgets)
	do := func(method, path, contentType, body string, want int) *httptest.ResponseRecorder {
		r := httptest.NewRequest(method, path, strings.NewReader(body))
		r.Header.Set("Content-Type", contentType)
		r.Header.Set("User-Agent", "bench/1.0")
		act := resource.ParseAction(r)
		act.User = &resource.User{Name: "admin"}
		w := httptest.NewRecorder()
		s.resources().ServeHTTP(w, r.WithContext(resource.WithAction(r.Context(), act)))
		if w.Code != want {
			b.Fatalf("code %d: %s", w.Code, w.Body)
		}
		return w
	}
	current := do("POST", gadgetPath, "application/json", gadget("a"), http.StatusCreated).Body.String()
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		i++
		switch verb {
		case "create":
			do("POST", gadgetPath, "application/json", gadget(fmt.Sprint("a", i)), http.StatusCreated)
		case "update":
			_, rest, _ := strings.Cut(current, `"replicas":`)
			rest = rest[strings.IndexAny(rest, ",}"):]
			head, _, _ := strings.Cut(current, `"replicas":`)
			current = do("PUT", gadgetPath+"/a", "application/json", fmt.Sprintf(`%s"replicas":%d%s`, head, i+10, rest), http.StatusOK).Body.String()
		case "patch":
			do("PATCH", gadgetPath+"/a", "application/merge-patch+json", fmt.Sprintf(`{"spec":{"replicas":%d}}`, i+10), http.StatusOK)
		case "apply":
			do("PATCH", gadgetPath+"/a?fieldManager=m&force=true", "application/apply-patch+yaml", fmt.Sprintf(
				`{"apiVersion":"example.com/v1","kind":"Gadget","spec":{"replicas":%d}}`, i+10), http.StatusOK)
		}
	}
}

const gadgets = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gadgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: gadgets, kind: Gadget}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            required: [size]
            properties:
              size: {type: string, enum: [small, large]}
              replicas: {type: integer, minimum: 0}
              env: {type: object, additionalProperties: {type: string}}
              steps:
                type: array
                maxItems: 100
                items:
                  type: object
                  required: [name]
                  properties:
                    name: {type: string, pattern: '^[a-z0-9-]+$'}
                    image: {type: string}
                    timeout: {type: integer, minimum: 1}
                    args: {type: array, items: {type: string}}
          status: {type: object, properties: {phase: {type: string}}}
`

const gadgetPath = "/apis/example.com/v1/namespaces/default/gadgets"

func gadget(name string) string {
	var steps, env []string
	for i := range 20 {
		steps = append(steps, fmt.Sprintf(`{"name":"step-%d","image":"registry.example.com/tools/runner:v1.%d","timeout":%d,"args":["--verbose","--target=all","%032d"]}`, i, i, i+30, i))
		env = append(env, fmt.Sprintf(`"VARIABLE_%d":"value-%d"`, i, i))
	}
	return `{"apiVersion":"example.com/v1","kind":"Gadget","metadata":{"name":"` + name + `","labels":{"app":"bench","tier":"backend"}},` +
		`"spec":{"size":"small","replicas":3,"env":{` + strings.Join(env, ",") + `},"steps":[` + strings.Join(steps, ",") + `]}}`
}
