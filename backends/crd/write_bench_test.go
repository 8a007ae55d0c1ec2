package crd

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// BenchmarkWriteCustom measures writes of custom resources of about 3 KB, from the request to
// a store in memory.
func BenchmarkWriteCustom(b *testing.B) {
	const path = "/apis/example.com/v1/namespaces/default/bakeries"
	read := func(name string) string {
		data, err := os.ReadFile("custom/testdata/" + name)
		if err != nil {
			b.Fatal(err)
		}
		return string(data)
	}
	definition := read("bakeries.yaml")
	data, err := yaml.YAMLToJSON([]byte(read("bakery.yaml")))
	if err != nil {
		b.Fatal(err)
	}
	object := string(data)
	for verb, write := range map[string]func(s *Server, i int) answer{
		"create": func(s *Server, i int) answer {
			return s.send(b, "POST", path, "application/json", strings.Replace(object, "bakery-0", fmt.Sprint("a", i), 1))
		},
		"patch": func(s *Server, i int) answer {
			return s.send(b, "PATCH", path+"/bakery-0", mergePatch, fmt.Sprintf(`{"spec":{"replicas":%d}}`, i%90+1))
		},
		"apply": func(s *Server, i int) answer {
			return s.send(b, "PATCH", path+"/bakery-0?fieldManager=m&force=true", applyPatch,
				fmt.Sprintf(`{"apiVersion":"example.com/v1","kind":"Bakery","spec":{"replicas":%d}}`, i%90+1))
		},
	} {
		b.Run(verb, func(b *testing.B) {
			s := running(b)
			s.install(b, definition)
			s.must(b, "POST", path, "application/json", object)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if a := write(s, i); a.code >= 300 {
					b.Fatalf("%d %s", a.code, a.body)
				}
			}
		})
	}
}
