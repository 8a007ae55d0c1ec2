package handlers

import (
	"bytes"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
	kjson "sigs.k8s.io/json"

	"portico/resource/rest"
)

// decodeDeleteOptions decodes a body of DeleteOptions into opts. It needs no
// scheme: the type is one, and knows its own JSON and protobuf forms. Any
// failure is a 400.
func decodeDeleteOptions(data []byte, mediaType string, res *rest.Resource, opts *metav1.DeleteOptions) error {
	var err error
	switch mediaType {
	case runtime.ContentTypeProtobuf:
		err = unmarshalEnvelope(data, opts)
	case runtime.ContentTypeYAML:
		if data, err = yaml.ToJSON(data); err == nil {
			err = kjson.UnmarshalCaseSensitivePreserveInts(data, opts)
		}
	default:
		err = kjson.UnmarshalCaseSensitivePreserveInts(data, opts)
	}
	if err != nil {
		return apierrors.NewBadRequest(fmt.Sprintf("decode DeleteOptions: %v", err))
	}
	return checkDeleteOptionsKind(opts.APIVersion, opts.Kind, res)
}

// unmarshalEnvelope decodes the Kubernetes protobuf envelope (magic, then a
// runtime.Unknown) around DeleteOptions.
func unmarshalEnvelope(data []byte, opts *metav1.DeleteOptions) error {
	message, ok := bytes.CutPrefix(data, []byte("k8s\x00"))
	if !ok {
		return errors.New("the body does not begin with the protobuf envelope's magic")
	}
	var envelope runtime.Unknown
	if err := envelope.Unmarshal(message); err != nil {
		return fmt.Errorf("protobuf envelope: %w", err)
	}
	if err := opts.Unmarshal(envelope.Raw); err != nil {
		return fmt.Errorf("protobuf message: %w", err)
	}
	opts.APIVersion, opts.Kind = envelope.APIVersion, envelope.Kind
	return nil
}
