// Package cbor converts objects between JSON and the CBOR of k8s.io/apimachinery
// (docs/wire.md 3.7), through the values that unstructured objects are made of.
//
// Runs in: gateway, core, crd.
package cbor

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"
	kjson "sigs.k8s.io/json"
)

// SelfDescribed is the tag that precedes every document (RFC 8949, 3.4.6).
const SelfDescribed = "\xd9\xd9\xf7"

// IsMediaType reports whether bodies of a media type are CBOR: application/cbor, and patches
// by their suffix.
func IsMediaType(mediaType string) bool {
	return mediaType == runtime.ContentTypeCBOR || strings.HasSuffix(mediaType, "+cbor")
}

// Item returns a JSON value as CBOR.
func Item(data []byte) ([]byte, error) {
	var value any
	if err := kjson.UnmarshalCaseSensitivePreserveInts(data, &value); err != nil {
		return nil, fmt.Errorf("encode CBOR: %w", err)
	}
	return direct.Marshal(value)
}

// FromJSON returns a JSON value as a document: its Item behind SelfDescribed.
func FromJSON(data []byte) ([]byte, error) {
	item, err := Item(data)
	return append([]byte(SelfDescribed), item...), err
}

// ToJSON returns CBOR as JSON. Its size is to be measured before (package bodylimit): the
// result may be much longer. Bytes become base64 text, and text that is not UTF-8 is an error;
// so are duplicate keys, numbers that JSON does not have, and more than one value.
func ToJSON(data []byte) ([]byte, error) {
	var value any
	if err := direct.Unmarshal(data, &value); err != nil {
		return nil, err
	}
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false) // which would grow it sixfold
	err := encoder.Encode(value)
	return text.Bytes(), err
}
