package handlers

import (
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "sigs.k8s.io/json"

	"portico/resource"
	"portico/resource/rest"
	"portico/resource/rest/render"
)

// metaGVK is a kind of meta.k8s.io.
func metaGVK(version, kind string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: metav1.GroupName, Version: version, Kind: kind}
}

// partialOf reads the metadata of an object from its bytes. It needs no codec:
// metadata has one shape in every kind and version, and in protobuf it is
// field 1 of every top-level message, as it is of PartialObjectMetadata. In JSON
// anybody may have stored anything: fields that do not fit are left out, and a
// kind that counts generations has none without one, as in the whole object.
func partialOf(k *rest.Kind, o *resource.Object) (*metav1.PartialObjectMetadata, error) {
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
	// Not as encoding/json does, for which Metadata is metadata, too.
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

// fittingMetadata reads those fields of the metadata that are of their type.
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
		// What does not fit may have been filled in half.
		if err := kjson.UnmarshalCaseSensitivePreserveInts(field, &metav1.ObjectMeta{}); err != nil {
			continue
		}
		if err := kjson.UnmarshalCaseSensitivePreserveInts(field, &partial.ObjectMeta); err != nil {
			return nil, err
		}
	}
	return partial, nil
}

// encodePartial makes the PartialObjectMetadata form of an object.
func encodePartial(k *rest.Kind, o *resource.Object, f form) ([]byte, error) {
	partial, err := partialOf(k, o)
	if err != nil {
		return nil, err
	}
	gvk := metaGVK(f.version, "PartialObjectMetadata")
	if f.media == mediaProtobuf {
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
