package patch

import (
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

// maxMergePairs bounds the pairs of items that a strategic merge patch compares. The
// library searches the whole list for each item of the patch: two lists of 5,000 items
// take seven seconds.
const maxMergePairs = 2_000_000

// mergePairs counts the pairs of items that a strategic merge compares.
type mergePairs struct{ left int }

// checkMergeCost returns the 413 for a strategic merge patch with lists that are too long to
// be merged item by item. structure is the Go type, which declares the merged lists.
func checkMergeCost(original, patch map[string]any, structure runtime.Object) error {
	meta, err := strategicpatch.NewPatchMetaFromStruct(structure)
	if err != nil {
		return apierrors.NewInternalError(fmt.Errorf("look up merge keys of %T: %w", structure, err))
	}
	pairs := &mergePairs{left: maxMergePairs}
	if path := pairs.object(meta, original, patch); path != nil {
		slices.Reverse(path)
		return apierrors.NewRequestEntityTooLargeError(fmt.Sprintf(
			"the lists that the patch merges are too long, with %s: merging compares more than %d pairs of their items",
			strings.Join(path, "."), maxMergePairs))
	}
	return nil
}

// object counts the pairs of an object. It returns the path where there are too many, from
// the inside out; nil if there are not.
func (m *mergePairs) object(meta strategicpatch.LookupPatchMeta, original, patch map[string]any) []string {
	for name, change := range patch {
		field := name
		for _, directive := range []string{"$setElementOrder/", "$deleteFromPrimitiveList/"} {
			field = strings.TrimPrefix(field, directive)
		}
		var path []string
		switch change := change.(type) {
		case map[string]any:
			in, _, err := meta.LookupPatchMetadataForStruct(field)
			if current, ok := original[field].(map[string]any); ok && err == nil {
				path = m.object(in, current, change)
			}
		case []any:
			in, how, err := meta.LookupPatchMetadataForSlice(field)
			if current, ok := original[field].([]any); ok && err == nil && slices.Contains(how.GetPatchStrategies(), "merge") {
				path = m.list(in, how.GetPatchMergeKey(), current, change)
			}
		}
		if path != nil {
			return append(path, field)
		}
	}
	return nil
}

// list counts the pairs of a list, and of the lists in its items.
func (m *mergePairs) list(meta strategicpatch.LookupPatchMeta, mergeKey string, original, patch []any) []string {
	if len(original) == 0 {
		return nil
	}
	if m.left -= len(patch) * (len(original) + len(patch)); m.left < 0 {
		return []string{}
	}
	byKey := make(map[string]map[string]any, len(original))
	for _, item := range original {
		if fields, ok := item.(map[string]any); ok {
			byKey[fmt.Sprint(fields[mergeKey])] = fields
		}
	}
	for _, item := range patch {
		fields, ok := item.(map[string]any)
		if !ok {
			continue
		}
		if current, ok := byKey[fmt.Sprint(fields[mergeKey])]; ok {
			if path := m.object(meta, current, fields); path != nil {
				return path
			}
		}
	}
	return nil
}
