package rest

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/mergepatch"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	kjson "sigs.k8s.io/json"
)

// patchDocument is a parsed patch. It may be applied any number of times.
type patchDocument struct {
	// apply returns the JSON document patched. Errors are StatusErrors.
	apply func(document []byte) ([]byte, error)
	// complaints are duplicate and unknown fields in the patch itself.
	complaints []error
	// blamed is what an error says is wrong if the result is no object of the
	// kind; "" is the result.
	blamed string
}

// parsePatch parses a patch; structure is the kind's Go type, for strategic
// merge. With strict, complaints are collected. A malformed patch is a 400.
func parsePatch(t types.PatchType, data []byte, structure runtime.Object, strict bool) (patchDocument, error) {
	if !json.Valid(data) {
		return patchDocument{}, apierrors.NewBadRequest("invalid JSON patch")
	}
	switch t {
	case types.JSONPatchType:
		return parseJSONPatch(data, strict)
	case types.MergePatchType:
		return parseMergePatch(data, strict)
	case types.StrategicMergePatchType:
		return parseStrategicPatch(data, structure, strict)
	}
	return patchDocument{}, apierrors.NewInternalError(fmt.Errorf("parse patch: unknown type %q", t))
}

// operation is what a JSON patch operation may hold; it is decoded only to find
// what it should not.
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	From  string `json:"from"`
	Value any    `json:"value"`
}

func parseJSONPatch(data []byte, strict bool) (patchDocument, error) {
	var doc patchDocument
	if strict {
		var operations []operation
		complaints, err := kjson.UnmarshalStrict(data, &operations)
		if err != nil {
			return doc, badPatch(err)
		}
		for _, err := range complaints {
			doc.complaints = append(doc.complaints, fmt.Errorf("json patch %w", err))
		}
	}
	patch, err := jsonpatch.DecodePatch(data)
	if err != nil {
		return doc, apierrors.NewBadRequest(err.Error())
	}
	if len(patch) > maxPatchOperations {
		return doc, apierrors.NewRequestEntityTooLargeError(
			fmt.Sprintf("The allowed maximum operations in a JSON patch is %d, got %d", maxPatchOperations, len(patch)))
	}
	doc.apply = func(document []byte) ([]byte, error) {
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

func parseMergePatch(data []byte, strict bool) (patchDocument, error) {
	var doc patchDocument
	var err error
	if _, doc.complaints, err = patchObject(data, strict); err != nil {
		return doc, err
	}
	doc.apply = func(document []byte) ([]byte, error) {
		current, err := decodeValue(document)
		object, ok := current.(map[string]any)
		if err != nil || !ok {
			return nil, apierrors.NewInternalError(fmt.Errorf("decode object to patch: it is no object (%v)", err))
		}
		// Merging uses the patch up: decode it anew.
		patch, err := decodeValue(data)
		if err != nil {
			return nil, badPatch(err)
		}
		mergeObject(object, patch.(map[string]any)) // which patchObject found it to be
		return encodeValue(object)
	}
	return doc, nil
}

func parseStrategicPatch(data []byte, structure runtime.Object, strict bool) (patchDocument, error) {
	var doc patchDocument
	object, complaints, err := patchObject(data, strict)
	if err != nil {
		return doc, err
	}
	doc.complaints = complaints
	doc.blamed = fmt.Sprintf("%+v", object)
	doc.apply = func(document []byte) ([]byte, error) {
		var original map[string]any
		if err := kjson.UnmarshalCaseSensitivePreserveInts(document, &original); err != nil {
			return nil, apierrors.NewInternalError(fmt.Errorf("decode object to patch: %w", err))
		}
		// Applying a strategic patch uses up its directives: decode it anew.
		patch, _, err := patchObject(data, false)
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

// patchObject decodes a patch that must be a JSON object.
func patchObject(data []byte, strict bool) (object map[string]any, complaints []error, err error) {
	if strict {
		complaints, err = kjson.UnmarshalStrict(data, &object)
	} else {
		err = kjson.UnmarshalCaseSensitivePreserveInts(data, &object)
	}
	switch {
	case err != nil:
		return nil, nil, badPatch(err)
	case object == nil:
		return nil, nil, badPatch(errors.New("the patch is not an object"))
	}
	return object, complaints, nil
}

func badPatch(err error) error {
	return apierrors.NewBadRequest(fmt.Sprintf("error decoding patch: %v", err))
}

// unprocessable is the 422 for a patch that does not fit the object: a missing
// path, a test that fails.
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
	// What else can go wrong is a patch whose shape is not the object's.
	return apierrors.NewBadRequest(fmt.Sprintf("apply strategic merge patch: %v", err))
}
