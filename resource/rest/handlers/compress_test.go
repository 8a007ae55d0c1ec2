package handlers

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Every form of every answer is compressed above the threshold, for those who
// take it, and says the same either way.
func TestEveryFormIsCompressed(t *testing.T) {
	b := newBench(t)
	for i := range 200 {
		o := configMap(fmt.Sprintf("c-%03d", i))
		o.Annotations = map[string]string{"note": strings.Repeat("x", 1000)}
		b.put(b.configMaps, o)
	}
	large := configMap("large")
	large.Annotations = map[string]string{"note": strings.Repeat("x", gzipThreshold+1)}
	b.put(b.configMaps, large)
	const meta = ";g=meta.k8s.io;v=v1"
	for target, forms := range map[string][]string{
		"/api/v1/namespaces/default/configmaps": {
			runtime.ContentTypeJSON, runtime.ContentTypeJSON + ";pretty=1", runtime.ContentTypeYAML, runtime.ContentTypeProtobuf, runtime.ContentTypeJSON + ";as=Table" + meta, runtime.ContentTypeYAML + ";as=Table" + meta,
			runtime.ContentTypeJSON + ";as=PartialObjectMetadataList" + meta, runtime.ContentTypeYAML + ";as=PartialObjectMetadataList" + meta, runtime.ContentTypeProtobuf + ";as=PartialObjectMetadataList" + meta,
		},
		"/api/v1/namespaces/default/configmaps/large": {
			runtime.ContentTypeJSON, runtime.ContentTypeJSON + ";pretty=1", runtime.ContentTypeYAML, runtime.ContentTypeProtobuf, runtime.ContentTypeJSON + ";as=Table" + meta, runtime.ContentTypeJSON + ";as=PartialObjectMetadata" + meta, runtime.ContentTypeProtobuf + ";as=PartialObjectMetadata" + meta,
		},
	} {
		for _, accept := range forms {
			plain, want := b.do("GET", target, "Accept", accept)
			if plain.StatusCode != 200 || plain.Header.Get("Content-Encoding") != "" || plain.Header.Get("Vary") != "" || len(want) <= gzipThreshold {
				t.Errorf("%s as %s: %d %v, %d bytes", target, accept, plain.StatusCode, plain.Header, len(want))
			}
			small, data := b.do("GET", target, "Accept", accept, "Accept-Encoding", "br, gzip")
			if small.Header.Get("Content-Encoding") != "gzip" || small.Header.Get("Vary") != "Accept-Encoding" || small.Header.Get("Content-Type") != plain.Header.Get("Content-Type") {
				t.Errorf("%s as %s: %v", target, accept, small.Header)
				continue
			}
			if got := inflate(t, data); got != want || len(data) > len(want)/4 {
				t.Errorf("%s as %s: %d bytes compressed to %d say something else", target, accept, len(want), len(data))
			}
		}
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

// Answers that are no resource's are compressed by the same rule.
func TestWhatIsCompressed(t *testing.T) {
	long := strings.Repeat("x", gzipThreshold)
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
				t.Error("the body is another one")
			}
		})
	}
}
