package audit

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	goruntime "runtime"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"

	"portico/resource"
	"portico/resource/fairshare"
)

// Bodies of requests and responses are converted to JSON by their headers.
func TestToJSON(t *testing.T) {
	zipped := func(s string) string {
		var b bytes.Buffer
		w := gzip.NewWriter(&b)
		_, _ = w.Write([]byte(s))
		_ = w.Close()
		return b.String()
	}
	// The Content-Encoding of a request cannot hide its body: servers ignore the header.
	for name, tc := range map[string]struct{ contentType, encoding, body, want string }{
		"unknown":           {"application/json", "foo", `{}`, `{}`},
		"gzip that is none": {"application/json", "gzip", `{}`, `{}`},
		"gzip":              {"application/json", "gzip", zipped(`{}`), `{}`},
		"gzipped yaml":      {"application/yaml", "gzip", zipped(`{}`), `{}`},
		"really unknown":    {"application/json", "br", "x", ""},
		"gzip unsaid":       {"application/json", "", zipped(`{}`), ""},
	} {
		got, err := sentToJSON([]byte(tc.body), http.Header{"Content-Type": {tc.contentType}, "Content-Encoding": {tc.encoding}})
		if (err == nil) != (tc.want != "") || string(got) != tc.want {
			t.Errorf("%s: got %s, %v", name, got, err)
		}
	}
	for name, tc := range map[string]struct{ contentType, encoding, body, want string }{
		"json":          {"application/json; charset=utf-8", "", "{ \"a\": 1 }\n", `{"a":1}`},
		"no type":       {"", "", `{}`, `{}`},
		"patch":         {"application/json-patch+json", "", `[ ]`, `[]`},
		"yaml":          {"application/yaml", "", "a: [1, x]\n", `{"a":[1,"x"]}`},
		"apply":         {"application/apply-patch+yaml", "", "a: {}", `{"a":{}}`},
		"zipped":        {"application/json", "gzip", zipped(`{}`), `{}`},
		"identity":      {"application/json", "identity", `{}`, `{}`},
		"protobuf":      {"application/vnd.kubernetes.protobuf", "", configMap(t), `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a"},"data":{"k":"v"}}`},
		"CBOR":          {"application/cbor", "", "\xd9\xd9\xf7\xa1\x41a\xd6\x43abc", `{"a":"YWJj"}`},
		"apply in CBOR": {"application/apply-patch+cbor", "", "\xbf\x61a\x9f\x01\xff\xff", `{"a":[1]}`},
		"not CBOR":      {"application/cbor", "", "\xa1", ""},
		"not protobuf":  {"application/vnd.kubernetes.protobuf", "", "k8s\x00x", ""},
		"broken json":   {"application/json", "", `{"a":`, ""},
		"two documents": {"application/json", "", `{}{}`, ""},
		"aliased yaml":  {"application/yaml", "", "a: &a {b: c}\nd: *a\n", `{"a":{"b":"c"},"d":{"b":"c"}}`},
		"broken yaml":   {"application/yaml", "", "\t", ""},
		"broken zip":    {"application/json", "gzip", "x", ""},
		"a bomb":        {"application/json", "gzip", zipped(strings.Repeat(" ", maxObject+1)), ""},
		"other coding":  {"application/json", "br", "x", ""},
		"text":          {"text/plain", "", "x", ""},
		"no type known": {";", "", "{}", ""},
		"odd parameter": {"application/json;=", "", "{}", "{}"},
	} {
		t.Run(name, func(t *testing.T) {
			h := http.Header{"Content-Type": {tc.contentType}, "Content-Encoding": {tc.encoding}}
			got, err := responseToJSON([]byte(tc.body), h)
			if (err == nil) != (tc.want != "") || string(got) != tc.want {
				t.Errorf("got %s, %v", got, err)
			}
		})
	}
}

func configMap(t *testing.T) string {
	t.Helper()
	info, ok := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), runtime.ContentTypeProtobuf)
	if !ok {
		t.Fatal("no protobuf")
	}
	b, err := runtime.Encode(scheme.Codecs.EncoderForVersion(info.Serializer, corev1.SchemeGroupVersion), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "a"}, Data: map[string]string{"k": "v"},
	})
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestWithoutManagedFields(t *testing.T) {
	const fields = `"managedFields":[{"manager":"m"}]`
	for _, tc := range []struct{ object, want string }{
		{`{"metadata":{"name":"a",` + fields + `},"spec":{"x":1.50}}`, `{"metadata":{"name":"a"},"spec":{"x":1.50}}`},
		{`{"items":[{"metadata":{` + fields + `}},{"metadata":{"name":"b"}},null],"kind":"List"}`, `{"items":[{"metadata":{}},{"metadata":{"name":"b"}},null],"kind":"List"}`},
		{`{"rows":[{"cells":["a"],"object":{"metadata":{` + fields + `}}},{"object":null}]}`, `{"rows":[{"cells":["a"],"object":{"metadata":{}}},{"object":null}]}`},
		{`{"spec":{` + fields + `}}`, `{"spec":{` + fields + `}}`},
		{`["managedFields"]`, `["managedFields"]`},
		{`{"metadata":"managedFields"}`, `{"metadata":"managedFields"}`},
		{`{"z":1,"a":2}`, `{"z":1,"a":2}`}, // unchanged, with its order
	} {
		if got := string(withoutManagedFields([]byte(tc.object))); got != tc.want {
			t.Errorf("%s: got %s", tc.object, got)
		}
	}
}

// Recordings are bounded, each and together, and release their memory; one user leaves
// memory for others.
func TestRecordingIsBounded(t *testing.T) {
	memory := fairshare.New(4096, 0)
	var all []*recording
	record := func(user, body string) (lost bool) {
		c := &recording{memory: memory, user: user, limit: 8}
		all = append(all, c)
		c.write([]byte(body))
		data, lost := c.end()
		c.write([]byte("9")) // it has ended
		if again, _ := c.end(); string(again) != string(data) || !lost && string(data) != body {
			t.Errorf("%q of %s: got %q, then %q", body, user, data, again)
		}
		return lost
	}
	if !record("jane", "123456789") {
		t.Error("a body larger than its limit was recorded")
	}
	for !record("jane", "12345678") {
	}
	if used := memory.InUse(); used < 2048 || used > 3072 {
		t.Errorf("one user takes %d bytes of 4096", used)
	}
	if record("john", "12345678") || record("", "1") {
		t.Error("no memory is left for others")
	}
	for _, c := range all {
		c.free()
		c.free()
	}
	if used := memory.InUse(); used != 0 {
		t.Errorf("%d bytes are not released", used)
	}
}

// A body that was not read to its end is not recorded.
func TestRecordedBody(t *testing.T) {
	for name, tc := range map[string]struct {
		length int64
		read   int
		want   string
	}{
		"read to its end": {-1, 100, "hello"}, "as long as it says": {5, 5, "hello"}, "in part": {-1, 5, ""}, "less than it says": {9, 5, ""},
	} {
		src := &body{strings.NewReader("hello")}
		b := &recordedBody{ReadCloser: src, length: tc.length, recording: &recording{memory: fairshare.New(0, 0), limit: 100}}
		for n := 0; n < tc.read; {
			k, err := b.Read(make([]byte, 5))
			if n += k; err != nil {
				break
			}
		}
		if data, lost := b.end(); string(data) != tc.want || lost {
			t.Errorf("%s: got %q, %v", name, data, lost)
		}
	}
}

type body struct{ *strings.Reader }

func (body) Close() error { return errors.ErrUnsupported }

// Small bodies that expand to hundreds of megabytes are omitted from their events without
// being expanded.
func TestBodiesThatGrow(t *testing.T) {
	field := func(number protowire.Number, value []byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), value)
	}
	pod := append(field(1, append(field(1, []byte("v1")), field(2, []byte("Pod"))...)), field(2, field(2, bytes.Repeat(field(2, nil), 1<<20)))...)
	for contentType, body := range map[string]string{
		"application/yaml":                    "a: &a \"" + strings.Repeat("x", 64<<10) + "\"\nz: [" + strings.Repeat("*a,", 3_000) + "]\n",
		"application/cbor":                    "\x9f" + strings.Repeat("\xa0", 1<<20) + "\xff",
		"application/vnd.kubernetes.protobuf": "k8s\x00" + string(pod),
	} {
		t.Run(contentType, func(t *testing.T) { testBodyThatGrows(t, contentType, body) })
	}
}

func testBodyThatGrows(t *testing.T, contentType, body string) {
	path := filepath.Join(t.TempDir(), "audit.log")
	a := auditor(t, "omitStages: [RequestReceived]\nrules: [{level: Request}]\n", func(o *Options) { o.Log.Path = path })
	r := httptest.NewRequest("POST", "/apis/example.com/v1/widgets", strings.NewReader(body))
	r.Header.Set("Content-Type", contentType)
	action := resource.ParseAction(r)
	action.User = &resource.User{Name: "jane"}
	q, err := a.Begin(r, Arrival{Action: action, ID: "id", Time: time.Now()})
	if err != nil || q == nil {
		t.Fatal(q, err)
	}
	if n, err := io.Copy(io.Discard, r.Body); err != nil || int(n) != len(body) {
		t.Fatal(n, err)
	}
	q.OnHeader(http.Header{}, 201)
	var start, end goruntime.MemStats
	goruntime.ReadMemStats(&start)
	q.End(201, nil)
	goruntime.ReadMemStats(&end)
	if used := (end.TotalAlloc - start.TotalAlloc) >> 20; used > 16 {
		t.Errorf("%d MB were allocated", used)
	}
	line, err := os.ReadFile(path)
	if err != nil || !strings.Contains(string(line), `"audit.k8s.io/truncated":"true"`) || strings.Contains(string(line), "requestObject") {
		t.Errorf("got %.500s, %v", line, err)
	}
}
