package handlers

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico/resource"
	"portico/resource/rest"
)

// Conflicts are bounded twice. Upstream's tracker spells out the whole path of
// every one, several times, before anybody can say how many are enough: where
// that could be more than maxPaths bytes the patch is not tried. And of what it
// found a client is told maxConflicts at most, in maxConflictText bytes.
const (
	// maxPaths is more than twice what the largest definitions in use have.
	maxPaths        = 16 << 20
	maxConflicts    = 1000
	maxConflictText = 256 << 10
	// stepSize is roughly what a step of a path costs besides its name.
	stepSize = 8
)

// checkPaths is the 413 for a patch whose conflicts might be too much to list.
// One that is forced has none.
func (p *applying) checkPaths(old rest.Object) error {
	if p.force || old == nil {
		return nil
	}
	records := slices.DeleteFunc(slices.Clone(old.GetManagedFields()), func(r metav1.ManagedFieldsEntry) bool {
		return r.Manager == p.managerName && r.Operation == metav1.ManagedFieldsOperationApply && r.Subresource == p.subresource
	})
	if pathSize(p.intent.object, 0)*len(records) <= maxPaths {
		return nil
	}
	// It may be that others own little of it.
	owned := 0
	for _, r := range records {
		var fields map[string]any
		if r.FieldsV1 == nil || json.Unmarshal(r.FieldsV1.GetRawBytes(), &fields) != nil {
			continue // what cannot be read does not get as far as a conflict
		}
		owned += pathSize(fields, 0)
	}
	if owned <= maxPaths {
		return nil
	}
	return apierrors.NewRequestEntityTooLargeError(fmt.Sprintf(
		"the paths of the fields that may be in conflict have more than %d bytes; force the patch, or apply it in parts", maxPaths))
}

// pathSize returns the size of the paths of all leaves of v, which itself has a
// path of prefix bytes. An item of a list may be named by any of its texts.
func pathSize(v any, prefix int) int {
	size := 0
	switch v := v.(type) {
	case map[string]any:
		for name, member := range v {
			size += pathSize(member, prefix+stepSize+len(name))
		}
	case []any:
		for _, item := range v {
			size += pathSize(item, prefix+stepSize+namesSize(item))
		}
	}
	return max(size, prefix)
}

// namesSize is the size of an item's own texts.
func namesSize(item any) int {
	size := 0
	switch item := item.(type) {
	case string:
		size = len(item)
	case map[string]any:
		for name, member := range item {
			if text, ok := member.(string); ok {
				size += len(name) + len(text)
			}
		}
	}
	return size
}

// boundConflicts leaves out what is too much of an answer that lists conflicts,
// and says how many it leaves out.
func boundConflicts(status *metav1.Status) {
	if status.Reason != metav1.StatusReasonConflict || status.Details == nil {
		return
	}
	causes := status.Details.Causes
	kept, text := 0, 0
	for kept < min(len(causes), maxConflicts) {
		text += len(causes[kept].Field) + len(causes[kept].Message)
		if text > maxConflictText {
			break
		}
		kept++
	}
	if kept == len(causes) && len(status.Message) <= 2*maxConflictText {
		return
	}
	status.Details.Causes = causes[:kept:kept]
	status.Message = cutConflicts(status.Message)
}

// cutConflicts shortens the message, which has a line for each conflict and
// each manager.
func cutConflicts(message string) string {
	end, conflicts := 0, 0
	for line := range strings.Lines(message) {
		if end+len(line) > maxConflictText || conflicts == maxConflicts {
			break
		}
		end += len(line)
		if strings.HasPrefix(line, "- ") {
			conflicts++
		}
	}
	if end == 0 { // one conflict, of one long path
		return resource.CutText(message, maxConflictText)
	}
	more := strings.Count(message[end:], "\n- ")
	if strings.HasPrefix(message[end:], "- ") {
		more++
	}
	return fmt.Sprintf("%s- and %d more, which are left out", message[:end], more)
}
