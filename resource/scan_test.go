package resource

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"

	"portico/resource/jsonscan"
)

func sample() *corev1.ConfigMap {
	yes := true
	now := metav1.NewTime(time.Unix(1700000000, 0))
	return &corev1.ConfigMap{
		TypeMeta: metav1.TypeMeta{Kind: "ConfigMap", APIVersion: "v1"},
		ObjectMeta: metav1.ObjectMeta{
			Name: "n", Namespace: "ns", UID: "u-1", Generation: 7, DeletionTimestamp: &now,
			Labels:     map[string]string{"a": "b", "quote\"d": "ü"},
			Finalizers: []string{"x/y", "orphan"},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "apps/v1", Kind: "Deployment", Name: "d", UID: "u-0", Controller: &yes, BlockOwnerDeletion: &yes,
			}},
		},
		Data: map[string]string{"metadata": "{}", "resourceVersion": "5"},
	}
}

func encodings(t testing.TB, obj *corev1.ConfigMap) map[string][]byte {
	t.Helper()
	j, err := json.Marshal(obj)
	if err != nil {
		t.Fatal(err)
	}
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	var p bytes.Buffer
	if err := protobuf.NewSerializer(scheme, scheme).Encode(obj, &p); err != nil {
		t.Fatal(err)
	}
	return map[string][]byte{"json": j, "protobuf": p.Bytes()}
}

func TestSpliceOddJSON(t *testing.T) {
	for in, want := range map[string]string{
		`{}`:                                  `{"metadata":{"resourceVersion":"3"}}`,
		`{"a":1}`:                             `{"metadata":{"resourceVersion":"3"},"a":1}`,
		`{"metadata":{}}`:                     `{"metadata":{"resourceVersion":"3"}}`,
		`{"metadata":{ } }`:                   `{"metadata":{"resourceVersion":"3" } }`,
		`{"metadata":{"resourceVersion":""}}`: `{"metadata":{"resourceVersion":"3"}}`,
		`{"metadata":{"resourceVersion":null,"name":"a"}}`:      `{"metadata":{"resourceVersion":"3","name":"a"}}`,
		`{"metadata":{"name":"a" , "resourceVersion" : "12" }}`: `{"metadata":{"name":"a" , "resourceVersion":"3" }}`,
	} {
		o, err := Parse([]byte(in))
		if err != nil {
			t.Fatalf("%s: %v", in, err)
		}
		if got := string(o.WithRevision(3).Data); got != want {
			t.Errorf("%s\n got %s\nwant %s", in, got, want)
		}
		if s := string(o.WithRevision(3).Stored()); strings.Contains(s, "resourceVersion") || !json.Valid([]byte(s)) {
			t.Errorf("%s: stored as %s", in, s)
		}
	}
}

// nested returns nested arrays.
func nested(depth int) string { return strings.Repeat("[", depth) + strings.Repeat("]", depth) }

func TestParseGoesAsDeepAsDecoders(t *testing.T) {
	for _, in := range []string{`{"a":` + nested(jsonscan.DefaultMaxDepth-1) + `}`, `{"metadata":{"a":` + nested(jsonscan.DefaultMaxDepth-2) + `}}`} {
		if _, err := Parse([]byte(in)); err != nil || !json.Valid([]byte(in)) {
			t.Errorf("%.40s: %v", in, err)
		}
	}
}

func TestParseRejects(t *testing.T) {
	for _, in := range []string{
		``, `[]`, `null`, `{`, `{}{}`, `{"a"}`, `{"a":}`, `{"a":01}`, `{"a":1.}`, `{"a":1e}`, `{"a":tru}`, `{"a":"\x"}`, "{\"a\":\"\n\"}",
		`{"metadata":null}`, `{"metadata":[]}`, `{"metadata":{},"metadata":{}}`, `{"metadata":{"resourceVersion":"x"}}`,
		`{"metadata":{"resourceVersion":"1","resourceVersion":"2"}}`, `{"kind":"A","kind":"B"}`, `{"metadata":{"name":"a","n\u0061me":"b"}}`,
		`{"metadata":{"labels":{"a":"b"},"labels":{}}}`, `{"metadata":{"ownerReferences":[{"uid":"1","uid":"2"}]}}`, `{"metadata":{"ownerReferences":[{"controller":"true"}]}}`, `{"metadata":{"labels":{"a":1}}}`, `{"metadata":{"name":1}}`,
		`{"a":` + nested(jsonscan.DefaultMaxDepth) + `}`, `{"metadata":{"a":` + nested(jsonscan.DefaultMaxDepth-1) + `}}`,
		`{"metadata":{"ownerReferences":[{"a":` + nested(jsonscan.DefaultMaxDepth-3) + `}]}}`,
		"k8s\x00", "k8s\x00\x12", "k8s\x00\x12\x05\x0a\x09", "k8s\x00\x0a\x00",
	} {
		if o, err := Parse([]byte(in)); err == nil {
			t.Errorf("%.60q was accepted as %+v", in, o.Header)
		}
	}
}

// A canonical object with metadata is canonical at any revision.
func TestCanonicalAtAnyRevision(t *testing.T) {
	asked := 0
	canonical := func(o *Object) bool {
		return o.Canonical("schema", func(*Object) bool { asked++; return true })
	}
	o, err := Parse([]byte(`{"apiVersion":"v1","kind":"A","metadata":{"name":"a"}}`))
	if err != nil {
		t.Fatal(err)
	}
	if !canonical(o) || !canonical(o.WithRevision(3)) || asked != 1 {
		t.Errorf("asked %d times", asked)
	}
	bare, err := Parse([]byte(`{"apiVersion":"v1","kind":"A"}`))
	if err != nil {
		t.Fatal(err)
	}
	if !canonical(bare) || !canonical(bare.WithRevision(3)) || asked != 3 {
		t.Errorf("asked %d times", asked)
	}
}
