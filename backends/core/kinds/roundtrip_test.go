package kinds

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"io"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"k8s.io/kubernetes/pkg/apis/autoscaling"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	upstreamcbor "k8s.io/apimachinery/pkg/runtime/serializer/cbor"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"sigs.k8s.io/yaml"

	"portico/internal/testing/kindtest"
	"portico/resource"
	"portico/resource/cbor"
	"portico/resource/response"
	"portico/resource/response/render"
	"portico/resource/rest"
	"portico/resource/rest/form"
	"portico/resource/rest/resttest"
	"portico/resource/rest/watchstream"
)

// storedRevision is the revision of stored objects in these tests.
const storedRevision = 7

// The test data of module k8s.io/api has an object of each kind in which every field has a
// value. Read as JSON, YAML, CBOR and protobuf it is stored and sent without loss: in each of these
// forms, and in the frames of a watch. Kinds without a row have one for the test, with the same
// codec; those without metadata, which are never stored, are decoded and encoded.
func TestObjectsWithAllFieldsPassWithoutLoss(t *testing.T) {
	t.Parallel()
	rows := map[schema.GroupVersionKind]*rest.Kind{}
	for _, k := range allKinds() {
		for _, version := range k.Versions {
			rows[k.GVK(version)] = k
		}
	}
	files, err := filepath.Glob(filepath.Join(kindtest.ModuleDir(t, "k8s.io/api"), "testdata", "HEAD", "*.json"))
	if err != nil || len(files) < len(rows) {
		t.Fatalf("%d files: %v", len(files), err)
	}
	for _, file := range files {
		file = strings.TrimSuffix(file, ".json")
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			gvk := kindOf(filepath.Base(file))
			sample, err := apiScheme.New(gvk)
			if err != nil {
				t.Fatal(err)
			}
			k := rows[gvk]
			switch _, stored := sample.(rest.Object); {
			case !stored:
				decodesInEveryForm(t, file, gvk)
				return
			case k == nil:
				info := resource.Info{Group: gvk.Group, Versions: []string{gvk.Version}, Resource: strings.ToLower(gvk.Kind) + "s", Kind: gvk.Kind}
				k = &rest.Kind{Info: info, Codec: rest.Typed(apiScheme, gvk)}
			}
			passesWithoutLoss(t, file, k, gvk.Version)
		})
	}
}

// passesWithoutLoss stores the object of a file as each form has it, and compares all forms in which it
// is sent.
func passesWithoutLoss(t *testing.T, file string, k *rest.Kind, version string) {
	want := expected(t, file)
	for ending, media := range map[string]string{
		".json": runtime.ContentTypeJSON, ".yaml": runtime.ContentTypeYAML, ".pb": runtime.ContentTypeProtobuf, "CBOR": runtime.ContentTypeCBOR,
	} {
		o := storeBody(t, k, version, bodyOf(t, file, ending), media)
		for name, got := range sentForms(t, k, version, o) {
			withoutDerived(got, want)
			if !reflect.DeepEqual(got, want) {
				t.Errorf("%s sent as %s differs:\ngot  %v\nwant %v", ending, name, got, want)
			}
		}
	}
}

// bodyOf returns the object of a file in a form.
func bodyOf(t *testing.T, file, ending string) []byte {
	t.Helper()
	if ending != "CBOR" {
		return readFile(t, file+ending)
	}
	obj, gvk, err := protobufSerializer.Decode(readFile(t, file+".pb"), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	obj.GetObjectKind().SetGroupVersionKind(*gvk)
	var body bytes.Buffer
	if err := cborSerializer.Encode(obj, &body); err != nil {
		t.Fatal(err)
	}
	return body.Bytes()
}

func readFile(t *testing.T, file string) []byte {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// expected returns the object of a file as it is read from a store.
func expected(t *testing.T, file string) map[string]any {
	t.Helper()
	o := untyped(t, readFile(t, file+".json"))
	o["metadata"].(map[string]any)["resourceVersion"] = "7"
	return o
}

func untyped(t *testing.T, data []byte) map[string]any {
	t.Helper()
	var o map[string]any
	if err := json.Unmarshal(data, &o); err != nil {
		t.Fatalf("%v in %.200s", err, data)
	}
	return o
}

// withoutDerived removes the annotation that version v1 of an autoscaler derives from a field,
// as kube-apiserver does.
func withoutDerived(got, want map[string]any) {
	if _, ok := got["metadata"].(map[string]any)["annotations"].(map[string]any); ok && want["apiVersion"] == "autoscaling/v1" {
		delete(got["metadata"].(map[string]any)["annotations"].(map[string]any), autoscaling.MetricStatusesAnnotation)
	}
}

// storeBody decodes a body without unknown fields and returns the stored object.
func storeBody(t *testing.T, k *rest.Kind, version string, body []byte, media string) *resource.Object {
	t.Helper()
	if media == runtime.ContentTypeCBOR { // as the handlers do
		var err error
		if body, err = cbor.ToJSON(body); err != nil {
			t.Fatal(err)
		}
		media = runtime.ContentTypeJSON
	}
	hub, unknown, err := k.Codec.Decode(body, media, k.GVK(version), true)
	if err != nil || len(unknown) > 0 {
		t.Fatalf("decode %s: %v %v", media, err, unknown)
	}
	return resttest.Stored(t, k, hub, storedRevision)
}

// sentForms returns an object in all forms that clients are sent, decoded again.
func sentForms(t *testing.T, k *rest.Kind, version string, o *resource.Object) map[string]map[string]any {
	t.Helper()
	out := map[string]map[string]any{}
	encoded := func(f response.Format) []byte {
		data, err := form.NewCache(1<<20).Encode(k, o, form.Of(f, version))
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	plain := encoded(response.Format{})
	out["JSON"] = untyped(t, plain)
	text, err := render.YAML(plain)
	if err != nil {
		t.Fatal(err)
	}
	fromYAML, err := yaml.YAMLToJSON(text)
	if err != nil {
		t.Fatal(err)
	}
	out["YAML"] = untyped(t, fromYAML)
	out["protobuf"] = fromProtobuf(t, encoded(response.Format{Media: response.Protobuf}))
	inCBOR, err := cbor.FromJSON(plain)
	if err != nil {
		t.Fatal(err)
	}
	out["CBOR"] = fromCBOR(t, inCBOR)

	var event struct {
		Type   string
		Object json.RawMessage
	}
	if err := json.Unmarshal(watched(t, k, version, o, response.JSON), &event); err != nil || event.Type != "MODIFIED" {
		t.Fatalf("a frame of %s: %v", event.Type, err)
	}
	out["a frame in JSON"] = untyped(t, event.Object)
	var packed metav1.WatchEvent
	frame := watched(t, k, version, o, response.Protobuf)
	if err := packed.Unmarshal(frame[4:]); err != nil || packed.Type != "MODIFIED" || int(binary.BigEndian.Uint32(frame)) != len(frame)-4 {
		t.Fatalf("a frame of %s: %v", packed.Type, err)
	}
	out["a frame in protobuf"] = fromProtobuf(t, packed.Object.Raw)
	var sequence metav1.WatchEvent
	if err := direct.Unmarshal(watched(t, k, version, o, response.CBOR), &sequence); err != nil || sequence.Type != "MODIFIED" {
		t.Fatalf("a frame of %s: %v", sequence.Type, err)
	}
	out["a frame in CBOR"] = fromCBOR(t, sequence.Object.Raw)
	return out
}

// protobufSerializer and cborSerializer are upstream's, with the types of module k8s.io/api.
var (
	protobufSerializer = protobuf.NewSerializer(apiScheme, apiScheme)
	cborSerializer     = upstreamcbor.NewSerializer(apiScheme, apiScheme, upstreamcbor.Strict(true))
)

func fromProtobuf(t *testing.T, data []byte) map[string]any {
	t.Helper()
	return decoded(t, data, protobufSerializer)
}

func fromCBOR(t *testing.T, data []byte) map[string]any {
	t.Helper()
	return decoded(t, data, cborSerializer)
}

func decoded(t *testing.T, data []byte, decoder runtime.Decoder) map[string]any {
	t.Helper()
	obj, gvk, err := decoder.Decode(data, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	obj.GetObjectKind().SetGroupVersionKind(*gvk)
	out, err := json.Marshal(obj)
	if err != nil {
		t.Fatal(err)
	}
	return untyped(t, out)
}

// oneEvent is a watcher that has one change.
type oneEvent struct{ events []resource.Event }

func (w *oneEvent) Next(context.Context) ([]resource.Event, error) {
	events := w.events
	if w.events = nil; events == nil {
		return nil, io.EOF
	}
	return events, nil
}

func (w *oneEvent) Close() {}

// watched returns the body of a watch in which the object changes once.
func watched(t *testing.T, k *rest.Kind, version string, o *resource.Object, media response.Media) []byte {
	t.Helper()
	server := watchstream.NewServer(form.NewCache(1<<20), slog.New(slog.DiscardHandler))
	w := httptest.NewRecorder()
	opts := watchstream.Options{Kind: k, Version: version, Format: response.Format{Media: media}}
	err := server.Serve(t.Context(), w, httptest.NewRequest("GET", "/", nil), opts, &oneEvent{[]resource.Event{{Type: resource.Modified, Object: o, Revision: storedRevision}}})
	if err != nil {
		t.Fatal(err)
	}
	return w.Body.Bytes()
}
