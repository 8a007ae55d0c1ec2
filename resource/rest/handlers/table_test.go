package handlers

import (
	"encoding/json"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"portico/resource/response/render"
	"portico/resource/rest/resttest"
)

func TestTable(t *testing.T) {
	b := newBench(t)
	b.put(b.configMaps, resttest.ConfigMap("a"))
	b.put(b.secrets, resttest.Secret("s"))
	for _, c := range []struct {
		path        string
		cells       string
		object      string
		columns     int
		wantVersion bool
	}{
		{inDefault + "configmaps", `["a","2026-01-02T03:04:05Z"]`, "PartialObjectMetadata meta.k8s.io/v1", 2, true},
		{inDefault + "configmaps/a", `["a","2026-01-02T03:04:05Z"]`, "PartialObjectMetadata meta.k8s.io/v1", 2, true},
		{inDefault + "configmaps?includeObject=Object", `["a","2026-01-02T03:04:05Z"]`, "ConfigMap v1", 2, true},
		{inDefault + "secrets?includeObject=None", `["s",1]`, " ", 2, true},
		{inDefault + "secrets?includeObject=Metadata", `["s",1]`, "PartialObjectMetadata meta.k8s.io/v1", 2, true},
	} {
		_, body := b.do("GET", c.path, "Accept", tableAccept)
		var table metav1.Table
		if err := json.Unmarshal([]byte(body), &table); err != nil {
			t.Fatal(err, body)
		}
		if table.Kind != "Table" || table.APIVersion != "meta.k8s.io/v1" || len(table.Rows) != 1 || len(table.ColumnDefinitions) != c.columns || table.ResourceVersion == "" {
			t.Errorf("%s: %s", c.path, body)
			continue
		}
		cells, err := json.Marshal(table.Rows[0].Cells)
		if err != nil {
			t.Fatal(err)
		}
		var object metav1.PartialObjectMetadata
		if raw := table.Rows[0].Object.Raw; len(raw) > 0 {
			if err := json.Unmarshal(raw, &object); err != nil {
				t.Fatal(err)
			}
		}
		if string(cells) != c.cells || object.Kind+" "+object.APIVersion != c.object {
			t.Errorf("%s: cells %s, object %s", c.path, cells, object.TypeMeta)
		}
	}
	_, body := b.do("GET", "/api/v1/namespaces/empty/configmaps", "Accept", tableAccept)
	if !strings.Contains(body, `"rows":[]`) {
		t.Errorf("empty table: %s", body)
	}
}

func TestPartialList(t *testing.T) {
	b := newBench(t)
	b.put(b.secrets, resttest.Secret("s"))
	const as = ";as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
	_, body := b.do("GET", inDefault+"secrets", "Accept", runtime.ContentTypeJSON+as)
	if !strings.HasPrefix(body, `{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":`) ||
		!strings.Contains(body, `"items":[{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"s"`) || strings.Contains(body, `"data"`) {
		t.Errorf("JSON: %s", body)
	}
	_, body = b.do("GET", inDefault+"secrets", "Accept", runtime.ContentTypeProtobuf+as)
	raw, err := render.OpenEnvelope([]byte(body))
	if err != nil {
		t.Fatal(err)
	}
	var list metav1.PartialObjectMetadataList
	if err := list.Unmarshal(raw); err != nil || len(list.Items) != 1 || list.Items[0].Name != "s" || list.ResourceVersion == "" {
		t.Errorf("protobuf: %+v, %v", list, err)
	}
}
