package storetest

import (
	"encoding/json"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico/resource"
)

// Codec is a rest.Codec for objects of any kind, for stores behind HTTP.
type Codec struct{}

// Decode reads a body.
func (Codec) Decode(data []byte, _ string, gvk schema.GroupVersionKind, _ bool) (runtime.Object, []error, error) {
	u := &unstructured.Unstructured{}
	if err := json.Unmarshal(data, &u.Object); err != nil {
		return nil, nil, err
	}
	u.SetGroupVersionKind(gvk)
	return u, nil, nil
}

// DecodeStored reads what is stored.
func (Codec) DecodeStored(o *resource.Object) (runtime.Object, error) {
	u := &unstructured.Unstructured{}
	return u, json.Unmarshal(o.Data, &u.Object)
}

// EncodeStored makes what is stored.
func (Codec) EncodeStored(obj runtime.Object) (*resource.Object, error) {
	data, err := json.Marshal(obj.(*unstructured.Unstructured).Object)
	if err != nil {
		return nil, err
	}
	o, err := resource.Parse(data)
	if err != nil {
		return nil, err
	}
	return o.WithRevision(0), nil
}

// Encode makes an answer.
func (Codec) Encode(obj runtime.Object, _ schema.GroupVersionKind, _ string) ([]byte, error) {
	return json.Marshal(obj.(*unstructured.Unstructured).Object)
}

// StrategicMerge returns nil: no kind has one.
func (Codec) StrategicMerge(schema.GroupVersionKind) runtime.Object { return nil }
