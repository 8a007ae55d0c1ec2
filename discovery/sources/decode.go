package sources

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The kinds of discovery documents.
const (
	kindVersions  = "APIVersions"
	kindGroups    = "APIGroupList"
	kindResources = "APIResourceList"
	kindGroupsV2  = "APIGroupDiscoveryList"
	kindStatus    = "Status"
)

// maxMember bounds the members of a document that identify it, in bytes.
const maxMember = 1 << 10

var errNoObject = errors.New("not a JSON object")

// header are the members of a discovery document that identify it.
type header struct {
	metav1.TypeMeta
	groupVersion string
	hasArray     bool
}

func (a *answer) decodeList(kind, array string, item func(json.RawMessage) error) error {
	_, err := a.decodeArray(kind, array, item)
	return err
}

// decodeArray calls item for each element of one array of a discovery document. Elements are
// decoded one at a time, so that the caller can skip large ones; item must not keep its
// argument. A truncated answer ends within the array. An error means that the elements must
// be discarded.
func (a *answer) decodeArray(kind, array string, item func(json.RawMessage) error) (header, error) {
	var h header
	inArray, err := h.decode(json.NewDecoder(bytes.NewReader(a.body)), array, item)
	ended := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
	switch {
	case err == nil, a.truncated && inArray && ended:
		return h, a.checkKind(kind, &h)
	case a.truncated:
		return h, &tooLargeError{a.url, int64(len(a.body))}
	}
	return h, fmt.Errorf("decode answer of %s: %w", a.url, err)
}

func (h *header) decode(dec *json.Decoder, array string, item func(json.RawMessage) error) (inArray bool, err error) {
	switch t, err := dec.Token(); {
	case err != nil:
		return false, errNoObject
	case t == nil:
		return false, nil // null is a document without members
	case t != json.Delim('{'):
		return false, errNoObject
	}
	var value json.RawMessage
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return false, err
		}
		if name == array {
			if inArray, err := h.decodeElements(dec, item); err != nil {
				return inArray, err
			}
			continue
		}
		if err := dec.Decode(&value); err != nil {
			return false, err
		}
		if err := h.member(name, value); err != nil {
			return false, err
		}
	}
	if _, err := dec.Token(); err != nil {
		return false, errNoObject
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return false, errNoObject
	}
	return false, nil
}

// decodeElements decodes the value of the array member; inArray reports that err is of an
// element.
func (h *header) decodeElements(dec *json.Decoder, item func(json.RawMessage) error) (inArray bool, err error) {
	switch t, err := dec.Token(); {
	case err != nil:
		return false, err
	case t == json.Delim('{'):
		return false, errors.New("the list is not a JSON array")
	case t != json.Delim('['):
		return false, nil
	}
	h.hasArray = true
	var element json.RawMessage
	for dec.More() {
		if err := dec.Decode(&element); err != nil {
			return true, err
		}
		if err := item(element); err != nil {
			return false, err
		}
	}
	_, err = dec.Token()
	return true, err
}

func (h *header) member(name json.Token, value []byte) error {
	var to *string
	switch name {
	case "kind":
		to = &h.Kind
	case "apiVersion":
		to = &h.APIVersion
	case "groupVersion":
		to = &h.groupVersion
	default:
		return nil
	}
	if len(value) > maxMember {
		return fmt.Errorf("%s is longer than %d bytes", name, maxMember)
	}
	if err := json.Unmarshal(value, to); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// checkKind returns an error if a document is not of a kind. {} decodes into any kind and
// lists nothing: a maintenance page of a proxy would remove all groups of its server.
//
// Servers made with upstream's library name the kind. A document without kind is accepted if
// it has the array of the kind: Go clients accept it too, and handwritten servers exist. The
// apiVersion is ignored: upstream omits it for the core group.
func (a *answer) checkKind(kind string, h *header) error {
	switch {
	case h.Kind == kind, h.Kind == "" && h.hasArray:
		return nil
	case slices.Contains([]string{kindVersions, kindGroups, kindResources, kindGroupsV2, kindStatus}, h.Kind):
		return fmt.Errorf("answer of %s is no %s but of kind %s", a.url, kind, h.Kind)
	}
	// The kind may be any text, and conditions are public.
	return fmt.Errorf("answer of %s is no %s", a.url, kind)
}

// countElements estimates how many elements a JSON text has.
func countElements(text []byte) int { return bytes.Count(text, []byte(",")) + 1 }
