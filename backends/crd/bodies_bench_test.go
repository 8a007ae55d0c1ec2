package crd

import (
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"

	"portico/internal/testing/tools"
	"portico/resource/bodylimit"
)

// BenchmarkLargestBodies shows the most memory that a request for a custom resource
// takes, for bodies that are just within the bounds: the heap in use at most (peak-MB),
// and what is allocated altogether (allocated-MB). It is a source of the table in
// docs/security.md:
//
//	go test ./backends/crd -run '^$' -bench LargestBodies -benchtime 1x
func BenchmarkLargestBodies(b *testing.B) {
	s := running(b)
	s.install(b, blobs)
	s.install(b, swellings("{type: integer, default: 1}"))
	s.must(b, "POST", blobPath, "application/json", strings.Replace(blob(`{"a":1}`), `"b"`, `"a"`, 1))
	const values = bodylimit.MaxValues - 1000
	numbered := func(n int, format string) string {
		var text strings.Builder
		for i := range n {
			if i > 0 {
				text.WriteByte(',')
			}
			fmt.Fprintf(&text, format, i)
		}
		return text.String()
	}
	repeated := func(n int, of string) string { return strings.TrimSuffix(strings.Repeat(of+",", n), ",") }
	members := `{"a":{` + numbered(values, `"k%x":0`) + `}}`
	for name, sent := range map[string]struct{ method, path, contentType, body string }{
		"JSON, numbers":               {"POST", blobPath + "?", "application/json", blob(`{"a":[` + repeated(values, "0") + `]}`)},
		"JSON, objects":               {"POST", blobPath + "?", "application/json", blob(`{"a":[` + repeated(values/2, "{}") + `]}`)},
		"JSON, members":               {"POST", blobPath + "?", "application/json", blob(members)},
		"JSON, one text":              {"POST", blobPath + "?", "application/json", blob(`{"a":"` + strings.Repeat("x", 3_000_000) + `"}`)},
		"JSON, fields of managers":    {"POST", blobPath + "?", "application/json", strings.Replace(blob("{}"), `"name":`, `"managedFields":[{"manager":"m","operation":"Update","apiVersion":"example.com/v1","fieldsType":"FieldsV1","fieldsV1":{`+numbered(values/2, `"f:%x":{}`)+`}}],"name":`, 1)},
		"JSON, defaults of each item": {"POST", swellingPath + "?", "application/json", swelling(40_000)},
		"YAML, numbers":               {"POST", blobPath + "?", "application/yaml", strings.Replace(blob("{}"), "{}", "{a: ["+repeated(values, "0")+"]}", 1)},
		"YAML, members":               {"POST", blobPath + "?", "application/yaml", strings.Replace(blob("{}"), "{}", "{a: {"+numbered(values/2, "k%x: 0")+"}}", 1)},
		"JSON patch, numbers":         {"PATCH", blobPath + "/a?", "application/json-patch+json", `[{"op":"add","path":"/spec/x","value":[` + repeated(values-10, "0") + `]}]`},
		"merge patch, members":        {"PATCH", blobPath + "/a?", "application/merge-patch+json", `{"spec":` + members + `}`},
		"apply, members":              {"PATCH", blobPath + "/c?fieldManager=m&", applyPatch, strings.Replace(blob(members), `"b"`, `"c"`, 1)},
	} {
		b.Run(name, func(b *testing.B) {
			var code int
			tools.MeasureHeap(b, func() {
				r := httptest.NewRequest(sent.method, sent.path+"dryRun=All", strings.NewReader(sent.body))
				r.Header.Set("Content-Type", sent.contentType)
				w := httptest.NewRecorder()
				s.asAdmin(w, r)
				code = w.Code
			})
			b.ReportMetric(float64(code), "code")
			b.ReportMetric(float64(len(sent.body))/1e6, "body-MB")
		})
	}
}
