package rest

import (
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "sigs.k8s.io/json"

	"portico/resource"
)

// metaGVK is a kind of meta.k8s.io.
func metaGVK(version, kind string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: metav1.GroupName, Version: version, Kind: kind}
}

// partialOf reads the metadata of an object from its bytes. It needs no codec:
// metadata has one shape in every kind and version, and in protobuf it is
// field 1 of every top-level message, as it is of PartialObjectMetadata.
func partialOf(o *resource.Object) (*metav1.PartialObjectMetadata, error) {
	partial := &metav1.PartialObjectMetadata{}
	if o.Encoding == resource.Protobuf {
		raw, err := openEnvelope(o.Data)
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
		return nil, fmt.Errorf("decode metadata: %w", err)
	}
	return partial, nil
}

// encodePartial makes the PartialObjectMetadata form of an object.
func encodePartial(o *resource.Object, f form) ([]byte, error) {
	partial, err := partialOf(o)
	if err != nil {
		return nil, err
	}
	gvk := metaGVK(f.version, "PartialObjectMetadata")
	if f.media == mediaProtobuf {
		raw, err := partial.Marshal()
		if err != nil {
			return nil, fmt.Errorf("encode metadata: %w", err)
		}
		return envelope(gvk, raw), nil
	}
	partial.SetGroupVersionKind(gvk)
	data, err := json.Marshal(partial)
	if err != nil {
		return nil, fmt.Errorf("encode metadata: %w", err)
	}
	return data, nil
}
