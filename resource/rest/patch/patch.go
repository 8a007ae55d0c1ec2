// Package patch parses and applies JSON patches (RFC 6902), merge patches (RFC 7386) and
// strategic merge patches, as kube-apiserver does. Package managedfields has apply patches.
//
// A patch is parsed once and applied as often as the stored object has changed. Its cost
// is bounded: documents are decoded once, copies and moves are limited (operations.go),
// and so are the items that a strategic merge compares (cost.go). FuzzMergePatch and
// FuzzJSONPatch compare it with the library that other servers use.
//
// Runs in: gateway, core, crd.
package patch

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/mergepatch"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"

	"portico/resource"
)

// Patch is a parsed patch.
type Patch struct {
	// Apply returns a JSON document with the patch applied. Errors are StatusErrors. It
	// may be called any number of times.
	Apply func(document []byte) ([]byte, error)
	// StrictErrors are the errors for duplicate and unknown fields in the patch itself.
	StrictErrors []error
	// text is what errors about the result quote; "": the result.
	text string
	// structure is the Go type of the result of a strategic merge; nil for other patches.
	structure runtime.Object
}

// Parse parses a patch. structure is the kind's Go type, for strategic merge; with strict,
// StrictErrors are collected. A malformed patch is a 400.
func Parse(t types.PatchType, data []byte, structure runtime.Object, strict bool) (Patch, error) {
	if !json.Valid(data) {
		return Patch{}, apierrors.NewBadRequest("invalid JSON patch")
	}
	switch t {
	case types.JSONPatchType:
		return parseJSONPatch(data, strict)
	case types.MergePatchType:
		return parseMergePatch(data, strict)
	case types.StrategicMergePatchType:
		return parseStrategicPatch(data, structure, strict)
	}
	return Patch{}, apierrors.NewInternalError(fmt.Errorf("parse patch: unknown type %q", t))
}

// operation has the fields of a JSON patch operation. It is decoded only to find others.
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	From  string `json:"from"`
	Value any    `json:"value"`
}

func parseJSONPatch(data []byte, strict bool) (Patch, error) {
	var doc Patch
	if strict {
		var operations []operation
		strictErrs, err := kjson.UnmarshalStrict(data, &operations)
		if err != nil {
			return doc, Malformed(err)
		}
		for _, err := range strictErrs {
			doc.StrictErrors = append(doc.StrictErrors, fmt.Errorf("json patch %w", err))
		}
	}
	patch, err := jsonpatch.DecodePatch(data)
	if err != nil {
		return doc, apierrors.NewBadRequest(err.Error())
	}
	if len(patch) > MaxOperations {
		return doc, apierrors.NewRequestEntityTooLargeError(
			fmt.Sprintf("The allowed maximum operations in a JSON patch is %d, got %d", MaxOperations, len(patch)))
	}
	doc.Apply = func(document []byte) ([]byte, error) {
		patched, err := applyOperations(document, patch)
		var copied *jsonpatch.AccumulatedCopySizeError
		switch {
		case errors.As(err, &copied), errors.Is(err, errShifts):
			return nil, apierrors.NewRequestEntityTooLargeError(err.Error())
		case err != nil:
			return nil, unprocessable(err)
		}
		return patched, nil
	}
	return doc, nil
}

func parseMergePatch(data []byte, strict bool) (Patch, error) {
	var doc Patch
	var err error
	if _, doc.StrictErrors, err = decodeObject(data, strict); err != nil {
		return doc, err
	}
	doc.Apply = func(document []byte) ([]byte, error) {
		current, err := decodeValue(document)
		object, ok := current.(map[string]any)
		if err != nil || !ok {
			return nil, apierrors.NewInternalError(fmt.Errorf("decode object to patch: not an object (%v)", err))
		}
		// Merging moves parts of the patch into the object: decode it again.
		patch, err := decodeValue(data)
		if err != nil {
			return nil, Malformed(err)
		}
		mergeObject(object, patch.(map[string]any)) // decodeObject has checked the type
		return encodeValue(object)
	}
	return doc, nil
}

func parseStrategicPatch(data []byte, structure runtime.Object, strict bool) (Patch, error) {
	var doc Patch
	object, strictErrs, err := decodeObject(data, strict)
	if err != nil {
		return doc, err
	}
	doc.StrictErrors = strictErrs
	doc.text, doc.structure = fmt.Sprintf("%+v", object), structure
	doc.Apply = func(document []byte) ([]byte, error) {
		var original map[string]any
		if err := kjson.UnmarshalCaseSensitivePreserveInts(document, &original); err != nil {
			return nil, apierrors.NewInternalError(fmt.Errorf("decode object to patch: %w", err))
		}
		// Merging removes the directives from the patch: decode it again.
		patch, _, err := decodeObject(data, false)
		if err != nil {
			return nil, err
		}
		if err := checkMergeCost(original, patch, structure); err != nil {
			return nil, err
		}
		patched, err := strategicpatch.StrategicMergeMapPatch(original, patch, structure)
		if err != nil {
			return nil, strategicError(err)
		}
		return json.Marshal(patched)
	}
	return doc, nil
}

// decodeObject decodes a patch that must be a JSON object.
func decodeObject(data []byte, strict bool) (object map[string]any, strictErrs []error, err error) {
	if strict {
		strictErrs, err = kjson.UnmarshalStrict(data, &object)
	} else {
		err = kjson.UnmarshalCaseSensitivePreserveInts(data, &object)
	}
	switch {
	case err != nil:
		return nil, nil, Malformed(err)
	case object == nil:
		return nil, nil, Malformed(errors.New("the patch is not an object"))
	}
	return object, strictErrs, nil
}

// Malformed is the 400 for a patch that cannot be decoded.
func Malformed(err error) error {
	return apierrors.NewBadRequest(fmt.Sprintf("error decoding patch: %v", err))
}

// unprocessable is the 422 for a patch that cannot be applied to the object: a missing path,
// a test that fails.
func unprocessable(err error) error {
	return apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "", schema.GroupResource{}, "", err.Error(), 0, false)
}

func strategicError(err error) error {
	switch {
	case errors.Is(err, mergepatch.ErrBadJSONDoc),
		errors.Is(err, mergepatch.ErrBadPatchFormatForPrimitiveList),
		errors.Is(err, mergepatch.ErrBadPatchFormatForRetainKeys),
		errors.Is(err, mergepatch.ErrBadPatchFormatForSetElementOrderList),
		errors.Is(err, mergepatch.ErrUnsupportedStrategicMergePatchFormat):
		return apierrors.NewBadRequest(err.Error())
	case errors.Is(err, mergepatch.ErrNoListOfLists), errors.Is(err, mergepatch.ErrPatchContentNotMatchRetainKeys):
		return unprocessable(err)
	}
	// Other errors mean that the patch has another shape than the object.
	return apierrors.NewBadRequest(fmt.Sprintf("apply strategic merge patch: %v", err))
}

// maxQuoted is how much of a patch, or its result, an error quotes, and maxReason how long
// the reason in it is, in bytes.
const (
	maxQuoted = 256
	maxReason = 16 << 10
)

// BadResult is the 422 for a result that is not a valid object of the kind. That of a strategic merge has
// the words of the converter of maps by which kube-apiserver decodes it.
func (p *Patch) BadResult(patched []byte, err error) error {
	if p.structure != nil && !runtime.IsStrictDecodingError(err) {
		if cause := convert(patched, p.structure); cause != nil {
			err = cause
		}
	}
	quoted := p.text
	if quoted == "" {
		quoted = string(patched)
	}
	return apierrors.NewInvalid(schema.GroupKind{}, "", field.ErrorList{
		field.Invalid(field.NewPath("patch"), resource.CutText(quoted, maxQuoted), resource.CutText(err.Error(), maxReason)),
	})
}

// convert returns the error of converting a JSON object to the type of structure. It returns nil if document is not a JSON
// object: then the error of the decoder stands.
func convert(document []byte, structure runtime.Object) error {
	var object map[string]any
	if err := kjson.UnmarshalCaseSensitivePreserveInts(document, &object); err != nil {
		return nil
	}
	return runtime.DefaultUnstructuredConverter.FromUnstructured(object, reflect.New(reflect.TypeOf(structure).Elem()).Interface())
}
