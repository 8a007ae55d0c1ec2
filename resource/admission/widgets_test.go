package admission

import (
	"encoding/json"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"portico/resource"
	"portico/resource/rest"
)

// widgetCodec is the codec of a custom resource: unstructured objects in two versions that
// differ by name only, with a spec of known fields.
type widgetCodec struct{ rest.Codec }

const widgetGroup = "example.com"

func (widgetCodec) Decode(data []byte, _ string, want schema.GroupVersionKind, _ bool) (runtime.Object, []error, error) {
	u := &unstructured.Unstructured{}
	if err := utiljson.Unmarshal(data, &u.Object); err != nil {
		return nil, nil, apierrors.NewBadRequest(err.Error())
	}
	if err := rest.ExpectKind(u.GroupVersionKind(), want); err != nil {
		return nil, nil, err
	}
	u.SetAPIVersion(widgetGroup + "/v1")
	if spec, ok := u.Object["spec"].(map[string]any); ok {
		for field := range spec {
			if !slices.Contains([]string{"size", "color", "tags"}, field) {
				delete(spec, field)
			}
		}
	}
	return u, nil, nil
}

func (c widgetCodec) DecodeStored(o *resource.Object) (runtime.Object, error) {
	u := &unstructured.Unstructured{}
	err := utiljson.Unmarshal(o.Data, &u.Object)
	u.SetResourceVersion(fmt.Sprint(o.Revision))
	return u, err
}

func (widgetCodec) EncodeStored(obj runtime.Object) (*resource.Object, error) {
	u := obj.DeepCopyObject().(*unstructured.Unstructured)
	u.SetResourceVersion("")
	data, err := json.Marshal(u)
	if err != nil {
		return nil, err
	}
	return resource.Parse(data)
}

func (widgetCodec) Encode(obj runtime.Object, gvk schema.GroupVersionKind, _ string) ([]byte, error) {
	u := obj.DeepCopyObject().(*unstructured.Unstructured)
	u.SetGroupVersionKind(gvk)
	return json.Marshal(u)
}

func (widgetCodec) StrategicMerge(schema.GroupVersionKind) runtime.Object { return nil }

func widgets() *rest.Kind {
	return &rest.Kind{
		Info:  resource.Info{Group: widgetGroup, Versions: []string{"v1", "v2"}, Resource: "widgets", Kind: "Widget", Namespaced: true},
		Codec: widgetCodec{},
		Strategy: rest.Strategy{Default: func(obj rest.Object) {
			u := obj.(*unstructured.Unstructured)
			if _, found, _ := unstructured.NestedString(u.Object, "spec", "color"); !found {
				_ = unstructured.SetNestedField(u.Object, "grey", "spec", "color")
			}
		}},
		Subresources: []rest.Subresource{{Name: "status", Strategy: &rest.Strategy{}}},
	}
}
