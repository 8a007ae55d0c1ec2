package rest_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico/resource"
	"portico/resource/rest"
	"portico/resource/rest/resttest"
)

func TestTypedStoresInItsEncoding(t *testing.T) {
	gvk := corev1.SchemeGroupVersion.WithKind("ConfigMap")
	for _, c := range []struct {
		codec    rest.Codec
		encoding resource.Encoding
	}{{rest.Typed(resttest.CoreScheme(), gvk), resource.Protobuf}, {rest.TypedJSON(resttest.CoreScheme(), gvk, nil), resource.JSON}} {
		obj := resttest.ConfigMap("a")
		obj.ResourceVersion = "99"
		o, err := c.codec.EncodeStored(obj)
		if err != nil {
			t.Fatal(err)
		}
		if o.Encoding != c.encoding || o.Revision != 0 || bytes.Contains(o.Data, []byte("99")) {
			t.Fatalf("stored encoding %v, revision %d: %q", o.Encoding, o.Revision, o.Data)
		}
		if obj.ResourceVersion != "99" || obj.Kind != "" {
			t.Fatal("encoding changed the object")
		}
		got, err := c.codec.DecodeStored(o.WithRevision(7))
		if err != nil {
			t.Fatal(err)
		}
		want := resttest.ConfigMap("a")
		want.ResourceVersion = "7"
		want.SetGroupVersionKind(gvk)
		got.(*corev1.ConfigMap).CreationTimestamp = want.CreationTimestamp // differs in its Location only
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("got %+v, want %+v", got, want)
		}
	}
}

// A kind may be kept in etcd in the other encoding, by an earlier version.
func TestTypedReadsBothEncodings(t *testing.T) {
	gvk := corev1.SchemeGroupVersion.WithKind("ConfigMap")
	written, err := rest.TypedJSON(resttest.CoreScheme(), gvk, nil).EncodeStored(resttest.ConfigMap("a"))
	if err != nil {
		t.Fatal(err)
	}
	obj, err := rest.Typed(resttest.CoreScheme(), gvk).DecodeStored(written)
	if err != nil || obj.(*corev1.ConfigMap).Data["<key>"] != "value of a" {
		t.Fatalf("got %+v, %v", obj, err)
	}
}

func TestTypedDecode(t *testing.T) {
	gvk := corev1.SchemeGroupVersion.WithKind("ConfigMap")
	codec := rest.Typed(resttest.CoreScheme(), gvk)
	protobuf, err := codec.Encode(resttest.ConfigMap("a"), gvk, runtime.ContentTypeProtobuf)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, media, body, want, strict, err string
	}{
		{name: "empty type meta", body: `{"metadata":{"name":"a"}}`, want: "a"},
		{name: "kind only", body: `{"kind":"ConfigMap","metadata":{"name":"a"}}`, want: "a"},
		{name: "yaml", media: runtime.ContentTypeYAML, body: "metadata:\n  name: a\n", want: "a"},
		{name: "protobuf", media: runtime.ContentTypeProtobuf, body: string(protobuf), want: "a"},
		{name: "unknown field", body: `{"metadata":{"name":"a"},"spec":{"x":1}}`, want: "a", strict: `unknown field "spec"`},
		{name: "duplicate field", body: `{"metadata":{"name":"b","name":"a"}}`, want: "a", strict: `duplicate field "metadata.name"`},
		{name: "yaml duplicate", media: runtime.ContentTypeYAML, body: "metadata:\n  name: b\n  name: a\n", want: "a",
			strict: "yaml: unmarshal errors:\n  line 3: key \"name\" already set in map"},
		{name: "other version", body: `{"apiVersion":"v2","kind":"ConfigMap"}`, err: `ConfigMap in version "v2" cannot be handled as a ConfigMap: no kind "ConfigMap" is registered for version "v2"`},
		{name: "other kind", body: `{"apiVersion":"v1","kind":"Secret"}`, err: `Secret in version "v1" cannot be handled as a ConfigMap`},
		{name: "wrong type", body: `{"apiVersion":"v1","kind":"ConfigMap","data":[]}`,
			err: `ConfigMap in version "v1" cannot be handled as a ConfigMap: json: cannot unmarshal array into Go struct field ConfigMap.data of type map[string]string`},
		{name: "no JSON", body: `hello, this is not an object at all`, err: `the object provided is unrecognized (must be of type ConfigMap): couldn't get version/kind; json parse error`},
		{name: "empty", body: ``, err: `the object provided is unrecognized (must be of type ConfigMap)`},
		{name: "no protobuf", media: runtime.ContentTypeProtobuf, body: `{}`, err: `the object provided is unrecognized (must be of type ConfigMap)`},
	} {
		t.Run(c.name, func(t *testing.T) {
			obj, strict, err := codec.Decode([]byte(c.body), c.media, gvk, true)
			if c.err != "" {
				if err == nil || !strings.HasPrefix(err.Error(), c.err) {
					t.Fatalf("error %v, want %s", err, c.err)
				}
				if status := resource.AsStatus(err); status.Code != 400 || status.Reason != metav1.StatusReasonBadRequest {
					t.Fatalf("status %+v", status)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := obj.(*corev1.ConfigMap); got.Name != c.want || got.GroupVersionKind() != gvk {
				t.Fatalf("got %+v", got)
			}
			text := ""
			for _, e := range strict {
				text += e.Error()
			}
			if text != c.strict {
				t.Fatalf("strict %q, want %q", text, c.strict)
			}
			if _, lax, err := codec.Decode([]byte(c.body), c.media, gvk, false); err != nil || len(lax) > 0 {
				t.Fatalf("not strict: %v, %v", lax, err)
			}
		})
	}
}

func TestTypedDecodeExpectsTheVersionAskedFor(t *testing.T) {
	scheme := resttest.CoreScheme()
	v2 := schema.GroupVersionKind{Version: "v2", Kind: "ConfigMap"}
	scheme.AddKnownTypeWithName(v2, &corev1.ConfigMap{})
	codec := rest.Typed(scheme, corev1.SchemeGroupVersion.WithKind("ConfigMap"))
	_, _, err := codec.Decode([]byte(`{"apiVersion":"v1","kind":"ConfigMap"}`), "", v2, false)
	if err == nil || err.Error() != "the API version in the data (v1) does not match the expected API version (v2)" {
		t.Fatalf("error %v", err)
	}
	// The same shape in both versions: only the version changes.
	obj, _, err := codec.Decode([]byte(`{"apiVersion":"v2","kind":"ConfigMap","data":{"a":"b"}}`), "", v2, false)
	if err != nil || obj.GetObjectKind().GroupVersionKind().Version != "v1" {
		t.Fatalf("got %+v, %v", obj, err)
	}
	data, err := codec.Encode(obj, v2, runtime.ContentTypeJSON)
	if err != nil || string(data) != `{"kind":"ConfigMap","apiVersion":"v2","metadata":{},"data":{"a":"b"}}` {
		t.Fatalf("got %s, %v", data, err)
	}
}

// Events are kept as core/v1 and also served as events.k8s.io/v1.
func TestTypedConverted(t *testing.T) {
	scheme := resttest.CoreScheme()
	if err := eventsv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	core, events := corev1.SchemeGroupVersion.WithKind("Event"), eventsv1.SchemeGroupVersion.WithKind("Event")
	codec := rest.TypedConverted(scheme, core, func(in runtime.Object, to schema.GroupVersionKind) (runtime.Object, error) {
		switch in := in.(type) {
		case *corev1.Event:
			return &eventsv1.Event{ObjectMeta: in.ObjectMeta, Regarding: in.InvolvedObject, Note: in.Message}, nil
		case *eventsv1.Event:
			return &corev1.Event{ObjectMeta: in.ObjectMeta, InvolvedObject: in.Regarding, Message: in.Note}, nil
		}
		return nil, fmt.Errorf("cannot convert %T to %s", in, to)
	})
	obj, _, err := codec.Decode([]byte(`{"metadata":{"name":"e"},"note":"hello"}`), "", events, true)
	if err != nil || obj.(*corev1.Event).Message != "hello" {
		t.Fatalf("got %+v, %v", obj, err)
	}
	o, err := codec.EncodeStored(obj)
	if err != nil || o.APIVersion != "v1" {
		t.Fatalf("stored %+v, %v", o, err)
	}
	data, err := codec.Encode(obj, events, runtime.ContentTypeJSON)
	if err != nil {
		t.Fatal(err)
	}
	var out struct{ APIVersion, Note string }
	if err := json.Unmarshal(data, &out); err != nil || out.APIVersion != "events.k8s.io/v1" || out.Note != "hello" {
		t.Fatalf("encoded %s, %v", data, err)
	}
}

func TestTypedConvertsWithoutBytes(t *testing.T) {
	codec := rest.Typed(resttest.CoreScheme(), corev1.SchemeGroupVersion.WithKind("ConfigMap")).(rest.Versioned)
	if codec.Hub() != corev1.SchemeGroupVersion {
		t.Errorf("hub %s", codec.Hub())
	}
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "data": map[string]any{"k": "v"}}}
	for _, in := range []runtime.Object{u, &corev1.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, Data: map[string]string{"k": "v"}}} {
		out, err := codec.ConvertTo(in, corev1.SchemeGroupVersion)
		if cm, ok := out.(*corev1.ConfigMap); err != nil || !ok || cm.Data["k"] != "v" || cm.Kind != "ConfigMap" || cm.APIVersion != "v1" {
			t.Errorf("%T: %+v, %v", in, out, err)
		}
	}
	if _, err := codec.ConvertTo(u, schema.GroupVersion{Version: "v0"}); !runtime.IsNotRegisteredError(err) {
		t.Errorf("to a version that is none: %v", err)
	}
	u.SetAPIVersion("v0")
	if _, err := codec.ConvertTo(u, corev1.SchemeGroupVersion); !runtime.IsNotRegisteredError(err) {
		t.Errorf("from a version that is none: %v", err)
	}
}

// A protobuf body with a RawExtension that is not JSON is refused with 400. Field ownership panics on
// it, and if it were stored, each list of the kind would fail.
func TestRawFieldsOfProtobuf(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := appsv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	gvk := appsv1.SchemeGroupVersion.WithKind("ControllerRevision")
	codec := rest.Typed(scheme, gvk)
	for raw, ok := range map[string]bool{`{"a":1}`: true, `null`: true, ``: false, `"`: false, `{`: false, `[`: false, `1z`: false, `z`: false} {
		body, err := codec.Encode(&appsv1.ControllerRevision{Data: runtime.RawExtension{Raw: []byte(raw)}}, gvk, runtime.ContentTypeProtobuf)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := codec.Decode(body, runtime.ContentTypeProtobuf, gvk, true); ok != (err == nil) || !ok && !apierrors.IsBadRequest(err) {
			t.Errorf("%q: %v", raw, err)
		}
	}
	body, err := codec.Encode(&appsv1.ControllerRevision{}, gvk, runtime.ContentTypeProtobuf)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := codec.Decode(body, runtime.ContentTypeProtobuf, gvk, true); err != nil {
		t.Errorf("without the field: %v", err)
	}
}
