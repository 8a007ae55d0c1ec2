package response

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	sigsyaml "sigs.k8s.io/yaml"

	"portico/resource"
	"portico/resource/response/render"
)

func TestWriteStatus(t *testing.T) {
	for _, c := range []struct{ accept, contentType, prefix string }{
		{"", runtime.ContentTypeJSON, `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"away","reason":"ServiceUnavailable","details":{"retryAfterSeconds":7},"code":503}` + "\n"},
		{runtime.ContentTypeYAML, runtime.ContentTypeYAML, "apiVersion: v1\ncode: 503\n"},
		{runtime.ContentTypeProtobuf, runtime.ContentTypeProtobuf, render.ProtobufMagic},
		{runtime.ContentTypeProtobuf + ";as=Table;g=meta.k8s.io;v=v1," + runtime.ContentTypeYAML, runtime.ContentTypeYAML, "apiVersion: v1\n"},
		{"text/html", runtime.ContentTypeJSON, "{\n  \"kind\": \"Status\",\n"},
	} {
		w := httptest.NewRecorder()
		WriteStatus(w, requestWith(c.accept, "test", ""), resource.Unavailable("away", 7))
		if w.Code != 503 || w.Header().Get("Content-Type") != c.contentType || w.Header().Get("Retry-After") != "7" || !strings.HasPrefix(w.Body.String(), c.prefix) {
			t.Errorf("%q: %d %v %s", c.accept, w.Code, w.Header(), w.Body)
		}
	}
	w := httptest.NewRecorder()
	WriteStatus(w, requestWith("", "test", ""), fmt.Errorf("read it: %w", io.ErrUnexpectedEOF))
	if w.Code != 500 || !strings.Contains(w.Body.String(), `"message":"read it: unexpected EOF"`) || w.Header().Get("Retry-After") != "" {
		t.Errorf("plain error: %d %s", w.Code, w.Body)
	}
}

// A metadata client accepts only PartialObjectMetadata, also for the Status of a deletion.
func TestSuccessStatusAnswersATransform(t *testing.T) {
	w := httptest.NewRecorder()
	status := &metav1.Status{Status: metav1.StatusSuccess}
	WriteObject(w, requestWith("application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1", "test", ""), 200, status, metav1.SchemeGroupVersion.WithKind("Status"))
	if w.Code != 200 || w.Body.String() != `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success"}`+"\n" {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

func inflate(t *testing.T, data string) string {
	t.Helper()
	z, err := gzip.NewReader(strings.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	out, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// Bodies above the threshold are compressed for clients that accept gzip.
func TestLargeBodiesAreCompressed(t *testing.T) {
	long := strings.Repeat("x", GzipThreshold)
	for name, test := range map[string]struct {
		method string
		accept []string
		write  http.HandlerFunc
		want   bool
	}{
		"body": {"GET", []string{"gzip"}, func(w http.ResponseWriter, r *http.Request) {
			WriteBody(w, r, 200, runtime.ContentTypeJSON, []byte(long+"x"))
		}, true},
		"second line": {"GET", []string{"br", "gzip"}, func(w http.ResponseWriter, r *http.Request) {
			WriteBody(w, r, 200, runtime.ContentTypeJSON, []byte(long+"x"))
		}, true},
		"at the limit": {"GET", []string{"gzip"}, func(w http.ResponseWriter, r *http.Request) {
			WriteBody(w, r, 200, runtime.ContentTypeJSON, []byte(long))
		}, false},
		"not asked": {"GET", nil, func(w http.ResponseWriter, r *http.Request) {
			WriteBody(w, r, 200, runtime.ContentTypeJSON, []byte(long+"x"))
		}, false},
		"refused": {"GET", []string{"gzip;q=0"}, func(w http.ResponseWriter, r *http.Request) {
			WriteBody(w, r, 200, runtime.ContentTypeJSON, []byte(long+"x"))
		}, false},
		"HEAD": {"HEAD", []string{"gzip"}, func(w http.ResponseWriter, r *http.Request) {
			WriteBody(w, r, 200, runtime.ContentTypeJSON, []byte(long+"x"))
		}, false},
		"error": {"GET", []string{"gzip"}, func(w http.ResponseWriter, r *http.Request) { WriteStatus(w, r, errors.New(long)) }, true},
		"object": {"GET", []string{"gzip"}, func(w http.ResponseWriter, r *http.Request) {
			WriteObject(w, r, 200, &corev1.ConfigMap{Data: map[string]string{"a": long}}, corev1.SchemeGroupVersion.WithKind("ConfigMap"))
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			r := httptest.NewRequest(test.method, "/", nil)
			r.Header["Accept-Encoding"] = test.accept
			w := httptest.NewRecorder()
			test.write(w, r)
			h := w.Header()
			if got := h.Get("Content-Encoding") == "gzip"; got != test.want || (h.Get("Vary") == "Accept-Encoding") != test.want || (h.Get("Content-Length") == "") != test.want {
				t.Fatalf("headers %v", h)
			}
			if test.want && !strings.Contains(inflate(t, w.Body.String()), long) {
				t.Error("the body differs")
			}
		})
	}
}

// deep returns an object with a deeply nested value.
func deep(depth int, inside string) []byte {
	return []byte(`{"kind":"ConfigMap","apiVersion":"v1","a":` + strings.Repeat(`{"a":`, depth) + inside + strings.Repeat("}", depth) + "}")
}

// growing returns objects of about 30 KB that indentation would grow to ten megabytes.
func growing() map[string][]byte {
	return map[string][]byte{
		"numbers": deep(300, "["+strings.Repeat("1,", 20000)+"1]"),
		"arrays":  []byte(`{"a":` + strings.Repeat("[", 300) + strings.Repeat("1,", 20000) + "1" + strings.Repeat("]", 300) + "}"),
	}
}

// ofWords returns objects that only YAML breaks into lines.
func ofWords() map[string][]byte {
	return map[string][]byte{
		"words":      deep(300, `"`+strings.Repeat("w ", 20000)+`"`),
		"breaks":     deep(300, `"`+strings.Repeat(`w\n`, 20000)+`"`),
		"characters": deep(300, `"`+strings.Repeat("w\u0085\u2028", 20000)+"\u007f\ufeff"+`"`),
	}
}

// An object that indentation would make too long is sent in one line.
func TestDeepObjectsAreNotIndented(t *testing.T) {
	check := func(name string, data []byte, f Format) {
		t.Helper()
		b, err := Finish(data, f)
		if bound := len(data)*render.MaxGrowth + render.FreeGrowth; err != nil || b.Len() > bound {
			t.Errorf("%s: %d bytes became %d, want at most %d (%v)", name, len(data), b.Len(), bound, err)
			return
		}
		got := b.data
		if !json.Valid(got) {
			if got, err = sigsyaml.YAMLToJSON(got); err != nil {
				t.Errorf("%s: %v", name, err)
				return
			}
		}
		var x, y any
		if err := errors.Join(json.Unmarshal(got, &x), json.Unmarshal(data, &y)); err != nil || !reflect.DeepEqual(x, y) {
			t.Errorf("%s: the object differs (%v): %.100s", name, err, got)
		}
	}
	for name, data := range growing() {
		check(name+" pretty", data, Format{Pretty: true})
		check(name+" YAML", data, Format{Media: YAML})
	}
	for name, data := range ofWords() {
		check(name+" YAML", data, Format{Media: YAML})
		if b, err := Finish(data, Format{Pretty: true}); err != nil || !bytes.Contains(b.data, []byte("\n    \"a\": {\n")) {
			t.Errorf("%s: strings do not count for JSON: %v, %.50s", name, err, b.data)
		}
	}
}

// JSON is indented unless that would make it too long.
func TestIndentationBounds(t *testing.T) {
	for _, c := range []struct {
		name   string
		data   []byte
		pretty bool
	}{
		{"a common object", []byte(`{"metadata":{"name":"a","labels":{"b":"c"}},"data":{},"list":[1,2,[]]}`), true},
		{"a deep, small one", deep(200, "[1,2,3]"), true},
		{"a large, flat one", []byte(`{"a":[` + strings.Repeat("1,", 700000) + "1]}"), true},
		{"no longer than what is free", deep(1500, "1"), false},
	} {
		b, err := Finish(c.data, Format{Pretty: true})
		if err != nil {
			t.Fatal(err)
		}
		var want bytes.Buffer
		if err := json.Indent(&want, c.data, "", "  "); err != nil {
			t.Fatal(err)
		}
		if got := bytes.Equal(b.data, want.Bytes()); got != c.pretty {
			t.Errorf("%s (%d bytes, %d indented): indented %v, want %v", c.name, len(c.data), want.Len(), got, c.pretty)
		}
	}
}
