package swagger

import (
	"bytes"
	"compress/gzip"
	"crypto/sha512"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	openapi_v2 "github.com/google/gnostic-models/openapiv2"
	"google.golang.org/protobuf/proto"
	models "k8s.io/kube-openapi/pkg/util/proto"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// v3 is the v3 document of one kind: it uses Meta, which says meta, and a
// definition of its own.
func v3(group, kind, meta string, size int) []byte {
	key := "/apis/" + group + "/v1/"
	name := group + ".v1." + kind
	return fmt.Appendf(nil, `{"openapi":"3.0.0","info":{"title":"t","version":"v"},"paths":{
	 %[1]q:{"get":{"operationId":"list%[3]s","parameters":[{"name":"limit","in":"query","description":"how many","schema":{"type":"integer"}},{"name":"fieldValidation","in":"query","schema":{"type":"string"}}],
	  "responses":{"200":{"description":"OK","content":{"application/json":{"schema":{"$ref":"#/components/schemas/%[2]s"}}}}},
	  "x-kubernetes-group-version-kind":{"group":%[5]q,"version":"v1","kind":%[3]q}}},
	 "/apis/other.example.com/v1/things":{"get":{"operationId":"stray","responses":{"200":{"description":"OK"}}}}},
	 "components":{"schemas":{
	  %[2]q:{"type":"object","description":%[6]q,"properties":{"metadata":{"allOf":[{"$ref":"#/components/schemas/Meta"}]}},"x-kubernetes-group-version-kind":[{"group":%[5]q,"version":"v1","kind":%[3]q}]},
	  "Meta":{"type":"object","description":%[4]q,"properties":{"name":{"type":"string"}},"x-kubernetes-group-version-kind":[{"group":%[5]q,"version":"v1","kind":"Meta"}]}}}}`,
		key+strings.ToLower(kind), name, kind, meta, group, strings.Repeat("d", size))
}

func partOf(t testing.TB, group, kind, meta string, size int) *part {
	t.Helper()
	p, err := newPartV3(v3(group, kind, meta, size), []string{"/apis/" + group + "/v1/"})
	if err != nil {
		t.Fatal(err)
	}
	p.names = []string{"v1." + group}
	return p
}

func (d *document) plain(t testing.TB) []byte {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(d.packed))
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(z)
	if err != nil || len(data) != d.size {
		t.Fatalf("%d bytes, said to be %d: %v", len(data), d.size, err)
	}
	return data
}

func mustMerge(t testing.TB, parts ...*part) (*document, *spec.Swagger) {
	t.Helper()
	d, err := merge(parts, limits{maxShared, maxMerged}, func(p *part, err error) { t.Errorf("%v: %v", p.names, err) })
	if err != nil {
		t.Fatal(err)
	}
	data := d.plain(t)
	if want := fmt.Sprintf(`"%X"`, sha512.Sum512(data)); d.etag != want {
		t.Errorf("ETag %s, want the digest of the JSON", d.etag)
	}
	if err := tried(data); err != nil {
		t.Fatalf("%v\n%s", err, data)
	}
	out := &spec.Swagger{}
	if err := json.Unmarshal(data, out); err != nil {
		t.Fatal(err)
	}
	return d, out
}

func TestMerge(t *testing.T) {
	a, b, c := partOf(t, "a.example.com", "Apple", "one", 10), partOf(t, "b.example.com", "Bean", "one", 10), partOf(t, "c.example.com", "Corn", "two", 10)
	d, out := mustMerge(t, a, b, c)
	var names []string
	for name := range out.Definitions {
		names = append(names, name)
	}
	slices.Sort(names)
	if want := []string{"Meta", "Meta_v2", "a.example.com.v1.Apple", "b.example.com.v1.Bean", "c.example.com.v1.Corn"}; !slices.Equal(names, want) {
		t.Errorf("definitions %v", names)
	}
	meta := func(name string) string {
		s := out.Definitions[name].Properties["metadata"]
		return s.Ref.String()
	}
	if meta("b.example.com.v1.Bean") != "#/definitions/Meta" || meta("c.example.com.v1.Corn") != "#/definitions/Meta_v2" {
		t.Errorf("references to %q and %q", meta("b.example.com.v1.Bean"), meta("c.example.com.v1.Corn"))
	}
	if gvks := out.Definitions["Meta"].Extensions["x-kubernetes-group-version-kind"].([]any); len(gvks) != 2 {
		t.Errorf("group/version/kinds of what two parts share: %v", gvks)
	}
	if len(out.Paths.Paths) != 3 || out.Paths.Paths["/apis/a.example.com/v1/apple"].Get == nil {
		t.Errorf("%d paths", len(out.Paths.Paths))
	}
	if len(out.Parameters) != 1 {
		t.Errorf("shared parameters %v", out.Parameters)
	}
	parameters := out.Paths.Paths["/apis/b.example.com/v1/bean"].Get.Parameters
	if len(parameters) != 2 || !strings.HasPrefix(parameters[0].Ref.String(), "#/parameters/limit-") || parameters[1].Name != "fieldValidation" {
		t.Errorf("parameters %v", parameters)
	}
	if again, _ := mustMerge(t, a, b, c); again.etag != d.etag {
		t.Error("the same parts make another document")
	}
	if _, none := mustMerge(t); len(none.Paths.Paths) != 0 {
		t.Error("of nothing something was made")
	}
}

// What is too much is left out, by name, and the rest is as it would be without.
func TestMergeBounds(t *testing.T) {
	small, large, last := partOf(t, "a.example.com", "Apple", "one", 10), partOf(t, "b.example.com", "Bean", "one", 100_000), partOf(t, "c.example.com", "Corn", "one", 10)
	var failed []string
	note := func(want error) func(*part, error) {
		return func(p *part, err error) {
			failed = append(failed, p.names...)
			if !errors.Is(err, want) {
				t.Errorf("%v: %v", p.names, err)
			}
		}
	}
	d, err := merge([]*part{small, large, last}, limits{maxShared, 20_000}, note(errMerged))
	if err != nil || !slices.Equal(failed, []string{"v1.b.example.com"}) {
		t.Errorf("too large: %v, %v", failed, err)
	}
	if without, _ := mustMerge(t, small, last); !bytes.Equal(d.plain(t), without.plain(t)) {
		t.Error("what was left out has left something")
	}
	failed = nil
	other := partOf(t, "d.example.com", "Dill", strings.Repeat("x", 5000), 10)
	if _, err = merge([]*part{small, other, last}, limits{3000, maxMerged}, note(errShared)); err != nil || !slices.Equal(failed, []string{"v1.d.example.com"}) {
		t.Errorf("too much that is shared: %v, %v", failed, err)
	}
}

func protobufOf(t testing.TB, data []byte, dropped func(section, name string, err error)) (*openapi_v2.Document, models.Models) {
	t.Helper()
	var out bytes.Buffer
	if err := toProtobuf(bytes.NewReader(data), &out, dropped); err != nil {
		t.Fatal(err)
	}
	doc := &openapi_v2.Document{}
	if err := proto.Unmarshal(out.Bytes(), doc); err != nil {
		t.Fatal(err)
	}
	known, err := models.NewOpenAPIData(doc)
	if err != nil {
		t.Fatal(err)
	}
	return doc, known
}

// Joined pieces are the document that would be made in one piece.
func TestProtobufOfPieces(t *testing.T) {
	var parts []*part
	for i := range 20 {
		parts = append(parts, partOf(t, fmt.Sprintf("g%d.example.com", i), "Thing", "one", pieceSize/5))
	}
	d, _ := mustMerge(t, parts...)
	data := d.plain(t)
	doc, _ := protobufOf(t, data, func(section, name string, err error) { t.Errorf("%s %s: %v", section, name, err) })
	whole, err := openapi_v2.ParseDocument(data)
	if err != nil {
		t.Fatal(err)
	}
	if !proto.Equal(doc, whole) {
		t.Error("the pieces are not the whole")
	}
}

// What the parser rejects is left out, and nothing else.
func TestProtobufWithoutWhatIsBroken(t *testing.T) {
	var dropped []string
	data := `{"swagger":"2.0","info":{"title":"t","version":"v"},"paths":{"/a":{"nonsense":1},"/b":{"get":{"responses":{}}}},
		"definitions":{"A":{"type":"string"},"B":{"nonsense":1},"C":{"type":"object","properties":{"b":{"$ref":"#/definitions/B"}}}}}`
	doc, known := protobufOf(t, []byte(data), func(section, name string, _ error) { dropped = append(dropped, section+" "+name) })
	if !slices.Equal(dropped, []string{"paths /a", "definitions B"}) {
		t.Errorf("dropped %v", dropped)
	}
	if got := doc.GetPaths().GetPath(); len(got) != 1 || got[0].Name != "/b" {
		t.Errorf("paths %v", got)
	}
	if known.LookupModel("A") == nil || known.LookupModel("B") == nil || known.LookupModel("C") == nil {
		t.Errorf("models %v", known.ListModels())
	}
	if doc.Swagger != "2.0" || doc.Info.GetTitle() != "Kubernetes" {
		t.Errorf("%q %v", doc.Swagger, doc.Info)
	}
}

// The whole is never in memory: 300 parts, 17 MB of JSON, take far less than
// that beside what is kept.
func TestMergeMemory(t *testing.T) {
	const perPart = 60_000
	var parts []*part
	for i := range 300 {
		parts = append(parts, partOf(t, fmt.Sprintf("g%d.example.com", i), "Thing", "one", perPart))
	}
	defer debug.SetGCPercent(debug.SetGCPercent(25)) // garbage that lies about is not meant
	runtime.GC()
	var before runtime.MemStats
	runtime.ReadMemStats(&before)
	peak, stop, ended := uint64(0), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-stop:
				return
			case <-time.After(5 * time.Millisecond):
				var m runtime.MemStats
				runtime.ReadMemStats(&m)
				peak = max(peak, m.HeapAlloc)
			}
		}
	}()
	began := time.Now()
	d, err := merge(parts, limits{maxShared, maxMerged}, func(p *part, err error) { t.Error(err) })
	took := time.Since(began)
	close(stop)
	<-ended
	if err != nil || d.size < 300*perPart {
		t.Fatalf("%d bytes, %v", d.size, err)
	}
	if grown := int64(peak) - int64(before.HeapAlloc); grown > 10<<20 {
		t.Errorf("%d MB of heap for a document of %d MB", grown>>20, d.size>>20)
	}
	t.Logf("%d MB of heap, %d MB of JSON in %v, kept in %d KB", (peak-min(peak, before.HeapAlloc))>>20, d.size>>20, took, len(d.packed)>>10)
}
