package handlers

import (
	"encoding/binary"
	"fmt"
	"net/http/httptest"
	goruntime "runtime"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"portico/internal/testing/tools"
	"portico/resource"
	"portico/resource/bodylimit"
	"portico/resource/response/render"
	"portico/resource/rest"
	"portico/resource/rest/patch"
	"portico/resource/rest/resttest"
)

// costBench returns a bench with pods that tracks field ownership.
func costBench(t testing.TB) *bench {
	t.Helper()
	if _, err := builtinOwners(); err != nil {
		t.Fatal(err)
	}
	return newTrackedBench(t, withCBOR, func(cfg *Config, b *bench) {
		k := &rest.Kind{
			Info:  resource.Info{Versions: []string{"v1"}, Resource: "pods", Kind: "Pod", Namespaced: true},
			Codec: rest.Typed(resttest.CoreScheme(), corev1.SchemeGroupVersion.WithKind("Pod")), Ownership: builtinOwners,
		}
		cfg.Resources = append(cfg.Resources, &rest.Resource{Kind: k, Store: b.storage.Store(&k.Info)})
	})
}

// sentBody is a request with an expensive body.
type sentBody struct{ method, path, contentType, body string }

func (s sentBody) send(b *bench) *httptest.ResponseRecorder {
	return b.sendAs(&resource.User{Name: "jane"}, s.method, s.path, s.contentType, strings.NewReader(s.body))
}

func numbered(n int, format string) string {
	var b strings.Builder
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		if strings.Contains(format, "%") {
			fmt.Fprintf(&b, format, i)
		} else {
			b.WriteString(format)
		}
	}
	return b.String()
}

func mapJSON(meta, rest string) string {
	return `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"` + meta + `}` + rest + `}`
}

func podJSON(spec string) string {
	return `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"},"spec":{` + spec + `}}`
}

func podProtobuf(containers int, container string) string {
	spec := []byte(strings.Repeat("\x12"+string(rune(len(container)))+container, containers))
	meta := protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), []byte("\x0a\x01a"))
	pod := protowire.AppendBytes(protowire.AppendTag(meta, 2, protowire.BytesType), spec)
	envelope := protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), []byte("\x0a\x02v1\x12\x03Pod"))
	return render.ProtobufMagic + string(protowire.AppendBytes(protowire.AppendTag(envelope, 2, protowire.BytesType), pod))
}

// cborMap is a config map with so many members.
func cborMap(values int) string {
	var b strings.Builder
	b.WriteString("\xa4\x4aapiVersion\x42v1\x44kind\x49ConfigMap\x48metadata\xa1\x44name\x41a\x44data\xba")
	b.Write(binary.BigEndian.AppendUint32(nil, uint32(values)))
	for i := range values {
		fmt.Fprintf(&b, "\x46k%05x\x40", i)
	}
	return b.String()
}

// cborPod is a pod with so many containers.
func cborPod(items int) string {
	return "\xa2\x48metadata\xa1\x44name\x41a\x44spec\xa1\x4acontainers\x9a" +
		string(binary.BigEndian.AppendUint32(nil, uint32(items))) + strings.Repeat("\xf6", items)
}

// bodiesOf are the dearest bodies of so many values and elements of arrays.
func bodiesOf(values, items int) map[string]sentBody {
	const pods = inDefault + "pods"
	data := `"data":{` + numbered(values, `"k%x":""`) + `}`
	yamlMap := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"
	return map[string]sentBody{
		"JSON, members of a map":         {"POST", configMaps, runtime.ContentTypeJSON, mapJSON("", ","+data)},
		"JSON, labels":                   {"POST", configMaps, runtime.ContentTypeJSON, mapJSON(`,"labels":{`+numbered(values, `"l%x":""`)+`}`, "")},
		"JSON, finalizers":               {"POST", configMaps, runtime.ContentTypeJSON, mapJSON(`,"finalizers":[`+numbered(items, `"a/%x"`)+`]`, "")},
		"JSON, ownerReferences":          {"POST", configMaps, runtime.ContentTypeJSON, mapJSON(`,"ownerReferences":[`+numbered(items, `{"uid":"%x"}`)+`]`, "")},
		"JSON, managedFields":            {"POST", configMaps, runtime.ContentTypeJSON, mapJSON(`,"managedFields":[`+numbered(items, `{}`)+`]`, "")},
		"JSON, fields of managedFields":  {"POST", configMaps, runtime.ContentTypeJSON, mapJSON(`,"managedFields":[{"manager":"m","operation":"Update","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{`+numbered(values/2, `"f:%x":{}`)+`}}]`, "")},
		"JSON, structs":                  {"POST", pods, runtime.ContentTypeJSON, podJSON(`"containers":[` + numbered(items, `null`) + `]`)},
		"JSON, structs with names":       {"POST", pods, runtime.ContentTypeJSON, podJSON(`"volumes":[` + numbered(items, `{"name":"%x"}`) + `]`)},
		"JSON, one text":                 {"POST", configMaps, runtime.ContentTypeJSON, mapJSON("", `,"data":{"k":"`+strings.Repeat("x", 3_000_000)+`"}`)},
		"YAML, members of a map":         {"POST", configMaps, runtime.ContentTypeYAML, yamlMap + "data:\n" + strings.ReplaceAll(numbered(values, " k%x: ''"), ",", "\n") + "\n"},
		"YAML, list":                     {"POST", configMaps, runtime.ContentTypeYAML, yamlMap + "x: [" + numbered(items, "a") + "]\n"},
		"YAML, structs":                  {"POST", pods, runtime.ContentTypeYAML, "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [" + numbered(items, "~") + "]}\n"},
		"protobuf, structs":              {"POST", pods, runtime.ContentTypeProtobuf, podProtobuf(values/9, "")},
		"protobuf, structs with names":   {"POST", pods, runtime.ContentTypeProtobuf, podProtobuf(values/6, "\x0a\x01a")},
		"JSON patch, value":              {"PATCH", configMaps + "/b", jsonPatch, `[{"op":"replace","path":"/data","value":{` + numbered(values, `"k%x":""`) + `}}]`},
		"JSON patch, operations":         {"PATCH", configMaps + "/b", jsonPatch, `[` + numbered(min(values/5, patch.MaxOperations), `{"op":"add","path":"/data/k%x","value":""}`) + `]`},
		"merge patch, members of a map":  {"PATCH", configMaps + "/b", mergePatch, `{` + data + `}`},
		"strategic merge patch, members": {"PATCH", configMaps + "/b", "application/strategic-merge-patch+json", `{` + data + `}`},
		"apply, members of a map":        {"PATCH", configMaps + "/b?fieldManager=m", applyPatch, strings.Replace(mapJSON("", ","+data), `"a"`, `"b"`, 1)},
		"DeleteOptions, JSON":            {"DELETE", configMaps + "/b", runtime.ContentTypeJSON, `{"dryRun":[` + numbered(items, `""`) + `]}`},
		"CBOR, members of a map":         {"POST", configMaps, cborType, cborMap(values)},
		"CBOR, structs":                  {"POST", pods, cborType, cborPod(items)},
		"CBOR, one text":                 {"POST", configMaps, cborType, "\xa2\x48metadata\xa1\x44name\x41a\x44data\xa1\x41k\x5a\x00\x2d\xc6\xc0" + strings.Repeat("x", 3_000_000)},
		"CBOR, apply":                    {"PATCH", configMaps + "/b?fieldManager=m", applyCBOR, strings.Replace(cborMap(values), "\x41a", "\x41b", 1)},
		"CBOR, DeleteOptions":            {"DELETE", configMaps + "/b", cborType, "\xa1\x46dryRun\x9f" + strings.Repeat("\x40", items) + "\xff"},
		"DeleteOptions, YAML":            {"DELETE", configMaps + "/b", runtime.ContentTypeYAML, "x: [" + numbered(items, "a") + "]\n"},
	}
}

// Bodies with too many values are rejected before they are decoded, for each media type and
// verb.
func TestBodiesBeyondBounds(t *testing.T) {
	a := costBench(t)
	a.create(bare("b"))
	for name, sent := range bodiesOf(bodylimit.MaxValues+1000, bodylimit.MaxItems+1000) {
		if strings.HasSuffix(name, "one text") || name == "JSON patch, operations" {
			continue // few values
		}
		t.Run(name, func(t *testing.T) {
			var start, end goruntime.MemStats
			goruntime.ReadMemStats(&start)
			w := sent.send(a)
			goruntime.ReadMemStats(&end)
			if w.Code != 413 || !strings.Contains(w.Body.String(), "the body ha") && !strings.Contains(w.Body.String(), "the arrays of the body have") {
				t.Errorf("got %d %.300s", w.Code, w.Body)
			}
			if used := (end.TotalAlloc - start.TotalAlloc) >> 20; used > 16 {
				t.Errorf("%d MB were allocated", used)
			}
		})
	}
}

// BenchmarkLargestBodies shows the most memory that a request takes, for bodies that
// are just within the bounds: the heap in use at most (peak-MB), and what is allocated
// altogether (allocated-MB). It is the source of the table in docs/security.md:
//
//	go test ./resource/rest/handlers -run '^$' -bench LargestBodies -benchtime 1x
func BenchmarkLargestBodies(b *testing.B) {
	a := costBench(b)
	a.create(bare("b"))
	for name, sent := range bodiesOf(bodylimit.MaxValues-1000, bodylimit.MaxItems-1000) {
		if sent.method != "DELETE" {
			sent.path = withQuery(sent.path, "dryRun=All")
		}
		b.Run(name, func(b *testing.B) {
			var code int
			tools.MeasureHeap(b, func() { code = sent.send(a).Code })
			b.ReportMetric(float64(code), "code")
			b.ReportMetric(float64(len(sent.body))/1e6, "body-MB")
		})
	}
}
