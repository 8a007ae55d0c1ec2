package render

import (
	"bytes"
	"encoding/binary"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
)

func TestEnvelope(t *testing.T) {
	gvk := schema.GroupVersionKind{Version: "v1", Kind: "Status"}
	status := &metav1.Status{Message: string(make([]byte, 300))}
	raw, err := status.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	status.SetGroupVersionKind(gvk)
	var want bytes.Buffer
	if err := protobuf.NewSerializer(nil, nil).Encode(status, &want); err != nil {
		t.Fatal(err)
	}
	got := Envelope(gvk, raw)
	if !bytes.Equal(got, want.Bytes()) {
		t.Fatalf("got %q, want %q", got, want.Bytes())
	}
	if opened, err := OpenEnvelope(got); err != nil || !bytes.Equal(opened, raw) {
		t.Fatalf("opened %q, %v", opened, err)
	}
}

func TestFrames(t *testing.T) {
	got := AppendFrame(nil, false, "ADDED", []byte("{\"a\":1}\n"), true)
	if string(got) != `{"type":"ADDED","object":{"a":1}}`+"\n" {
		t.Errorf("JSON frame %s", got)
	}
	object := make([]byte, 200)
	want := metav1.WatchEvent{Type: "MODIFIED"}
	want.Object.Raw = object
	message, err := want.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	if got := AppendFrame(nil, true, "MODIFIED", object, false); !bytes.Equal(got, message) {
		t.Errorf("protobuf message %q, want %q", got, message)
	}
	framed := AppendFrame(nil, true, "MODIFIED", object, true)
	if n := binary.BigEndian.Uint32(framed); int(n) != len(message) || !bytes.Equal(framed[4:], message) {
		t.Errorf("protobuf frame of length %d, want %d", n, len(message))
	}
}

func FuzzOpenEnvelope(f *testing.F) {
	f.Add(Envelope(schema.GroupVersionKind{Group: "g", Version: "v1", Kind: "K"}, []byte("raw")))
	f.Add([]byte("k8s\x00\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"))
	f.Fuzz(func(t *testing.T, data []byte) {
		raw, err := OpenEnvelope(data)
		if err == nil && len(raw) > len(data) {
			t.Fatal("opened more than there is")
		}
	})
}
