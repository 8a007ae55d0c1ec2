package liststream

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico/resource"
	"portico/resource/response/render"
)

// protobufList encodes a protobuf list in an envelope from items in envelopes: ListMeta is
// field 1 of every list message, the items are field 2.
type protobufList struct {
	gvk     schema.GroupVersionKind
	head    []byte
	encode  func(*resource.Object) ([]byte, error)
	scratch []byte
}

func newProtobufList(gvk schema.GroupVersionKind, head metav1.ListMeta, encode func(*resource.Object) ([]byte, error)) (*protobufList, error) {
	data, err := head.Marshal()
	if err != nil {
		return nil, fmt.Errorf("encode list: %w", err)
	}
	return &protobufList{gvk: gvk, head: append(render.AppendFieldStart(nil, 1, len(data)), data...), encode: encode}, nil
}

// measure returns true: the envelope has the length of the list.
func (e *protobufList) measure(bool) bool { return true }

func (e *protobufList) begin(out output, items int64) error {
	start := render.AppendEnvelopeStart(nil, e.gvk, len(e.head)+int(items))
	return out.write(append(start, e.head...))
}

func (e *protobufList) item(out output, o *resource.Object, _ bool) error {
	data, err := e.encode(o)
	if err != nil {
		return err
	}
	raw, err := render.OpenEnvelope(data)
	if err != nil {
		return err
	}
	e.scratch = render.AppendFieldStart(e.scratch[:0], 2, len(raw))
	if err := out.write(e.scratch); err != nil {
		return err
	}
	return out.write(raw)
}

func (e *protobufList) end(out output, _ bool) error { return out.write(render.AppendEnvelopeEnd(nil)) }
