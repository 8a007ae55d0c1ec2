package form

import (
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "sigs.k8s.io/json"

	"portico/resource"
	"portico/resource/response"
	"portico/resource/response/render"
	"portico/resource/rest"
)

// MetaGVK returns a kind of the group meta.k8s.io.
func MetaGVK(version, kind string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: metav1.GroupName, Version: version, Kind: kind}
}

// metadataOf decodes the metadata of an object without a codec: its shape is the same in
// every kind and version, and in protobuf it is field 1 of every object, as it is of
// PartialObjectMetadata. In JSON, which may have been stored by an older version, fields of
// a wrong type are left out. A kind that tracks generations has generation 1 if none is
// stored.
func metadataOf(k *rest.Kind, o *resource.Object) (*metav1.PartialObjectMetadata, error) {
	partial := &metav1.PartialObjectMetadata{}
	if o.Encoding == resource.Protobuf {
		raw, err := render.OpenEnvelope(o.Data)
		if err != nil {
			return nil, err
		}
		if err := partial.Unmarshal(raw); err != nil {
			return nil, fmt.Errorf("decode metadata: %w", err)
		}
		return partial, nil
	}
	// encoding/json would accept Metadata for metadata.
	if err := kjson.UnmarshalCaseSensitivePreserveInts(o.Data, partial); err != nil {
		if partial, err = fittingMetadata(o.Data); err != nil {
			return nil, fmt.Errorf("decode metadata: %w", err)
		}
	}
	if k.Strategy.TrackGeneration && partial.Generation == 0 {
		partial.Generation = 1
	}
	return partial, nil
}

// fittingMetadata decodes the fields of the metadata that have the right type.
func fittingMetadata(data []byte) (*metav1.PartialObjectMetadata, error) {
	var object struct {
		Metadata map[string]json.RawMessage `json:"metadata"`
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(data, &object); err != nil {
		return nil, err
	}
	partial := &metav1.PartialObjectMetadata{}
	for name, value := range object.Metadata {
		field, err := json.Marshal(map[string]json.RawMessage{name: value})
		if err != nil {
			return nil, err
		}
		// Into another struct first: a field that fails may be partly decoded.
		if err := kjson.UnmarshalCaseSensitivePreserveInts(field, &metav1.ObjectMeta{}); err != nil {
			continue
		}
		if err := kjson.UnmarshalCaseSensitivePreserveInts(field, &partial.ObjectMeta); err != nil {
			return nil, err
		}
	}
	return partial, nil
}

// encodePartial encodes PartialObjectMetadata of an object.
func encodePartial(k *rest.Kind, o *resource.Object, f Form) ([]byte, error) {
	partial, err := metadataOf(k, o)
	if err != nil {
		return nil, err
	}
	gvk := MetaGVK(f.Version, "PartialObjectMetadata")
	if f.Media == response.Protobuf {
		raw, err := partial.Marshal()
		if err != nil {
			return nil, fmt.Errorf("encode metadata: %w", err)
		}
		return render.Envelope(gvk, raw), nil
	}
	partial.SetGroupVersionKind(gvk)
	data, err := json.Marshal(partial)
	if err != nil {
		return nil, fmt.Errorf("encode metadata: %w", err)
	}
	return data, nil
}
