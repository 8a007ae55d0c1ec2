package handlers

import (
	"compress/gzip"
	"fmt"
	"io"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"

	"portico/resource/response"
	"portico/resource/rest/resttest"
)

// Every format of every response above the threshold is compressed for clients that accept
// gzip, with the same content.
func TestEveryFormIsCompressed(t *testing.T) {
	b := newBench(t)
	for i := range 200 {
		o := resttest.ConfigMap(fmt.Sprintf("c-%03d", i))
		o.Annotations = map[string]string{"note": strings.Repeat("x", 1000)}
		b.put(b.configMaps, o)
	}
	large := resttest.ConfigMap("large")
	large.Annotations = map[string]string{"note": strings.Repeat("x", response.GzipThreshold+1)}
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
			if plain.StatusCode != 200 || plain.Header.Get("Content-Encoding") != "" || plain.Header.Get("Vary") != "" || len(want) <= response.GzipThreshold {
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
