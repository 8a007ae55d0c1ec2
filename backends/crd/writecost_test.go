package crd

import (
	"bytes"
	"fmt"
	"net/http/httptest"
	"os"
	"testing"

	"sigs.k8s.io/yaml"

	"portico/resource"
)

// BenchmarkCreate is a POST of an object of about 3.5 KB, by what its schema
// is made of.
func BenchmarkCreate(b *testing.B) {
	s := running(b)
	s.install(b, read(b, "bakeries.yaml"))
	body := asJSON(b, read(b, "bakery.yaml"))
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		s.post(b, "/apis/example.com/v1/namespaces/default/bakeries", bytes.Replace(body, []byte(`"bakery-0"`), fmt.Appendf(nil, `"bakery-%d"`, i), 1))
	}
}

// post creates an object as an administrator.
func (s *Server) post(t testing.TB, path string, body []byte) {
	r := httptest.NewRequest("POST", path, bytes.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("User-Agent", "tester/1.0")
	act := resource.ParseAction(r)
	act.User = &resource.User{Name: "admin", Groups: []string{resource.GroupMasters}}
	w := httptest.NewRecorder()
	s.resources().ServeHTTP(w, r.WithContext(resource.WithAction(r.Context(), act)))
	if w.Code != 201 {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
}

// read is a file of test data.
func read(t testing.TB, name string) string {
	t.Helper()
	data, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func asJSON(t testing.TB, text string) []byte {
	t.Helper()
	data, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return data
}
