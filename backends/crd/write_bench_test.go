package crd

import (
	"fmt"
	"strings"
	"testing"
)

// BenchmarkWriteCustom measures writes of custom resources of about 3.5 KB, from the request
// to a store in memory.
func BenchmarkWriteCustom(b *testing.B) {
	for verb, write := range map[string]func(s *Server, i int) answer{
		"create": func(s *Server, i int) answer {
			return s.send(b, "POST", gadgetPath, "application/json", gadget(fmt.Sprint("a", i)))
		},
		"patch": func(s *Server, i int) answer {
			return s.send(b, "PATCH", gadgetPath+"/a", mergePatch, fmt.Sprintf(`{"spec":{"replicas":%d}}`, i+10))
		},
		"apply": func(s *Server, i int) answer {
			return s.send(b, "PATCH", gadgetPath+"/a?fieldManager=m&force=true", applyPatch,
				fmt.Sprintf(`{"apiVersion":"example.com/v1","kind":"Gadget","spec":{"replicas":%d}}`, i+10))
		},
	} {
		b.Run(verb, func(b *testing.B) {
			s := running(b)
			s.install(b, gadgets)
			s.must(b, "POST", gadgetPath, "application/json", gadget("a"))
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if a := write(s, i); a.code >= 300 {
					b.Fatalf("%d %s", a.code, a.body)
				}
			}
		})
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
