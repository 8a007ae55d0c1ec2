package handlers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	quantity "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/conversion"
	"k8s.io/apimachinery/pkg/runtime"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"portico/resource"
	"portico/resource/rest"
	"portico/resource/rest/managedfields"
	"portico/resource/rest/patch"
)

// applying is a write that merges an apply patch with the current state. It can be applied any
// number of times.
type applying struct {
	*write
	// intent has the fields that the manager owns.
	intent map[string]any
	// duplicates is the error for duplicate fields; nil: none.
	duplicates error
	force      bool
}

// newApplying returns w as an apply patch, which is JSON or, with inYAML, YAML. A malformed
// patch is a 400.
func newApplying(w *write, data []byte, inYAML bool) (*applying, error) {
	w.applied = true
	p := &applying{write: w}
	document, err := data, error(nil)
	if inYAML {
		document, err = yaml.YAMLToJSON(data)
	}
	if err == nil {
		// Without floats, which would change large integers.
		err = kjson.UnmarshalCaseSensitivePreserveInts(document, &p.intent)
	}
	if err != nil {
		return nil, patch.Malformed(err)
	}
	if p.intent == nil {
		p.intent = map[string]any{}
	}
	if inYAML && w.validation != metav1.FieldValidationIgnore {
		if err := yaml.UnmarshalStrict(data, &map[string]any{}); err != nil {
			p.duplicates = boundDuplicates(err)
		}
	}
	if opts, ok := w.object.(*metav1.PatchOptions); ok && opts.Force != nil {
		p.force = *opts.Force
	}
	return p, nil
}

// next is a nextState; without a current state it creates the object.
func (p *applying) next(ctx context.Context, _ *resource.Object, old rest.Object) (rest.Object, error) {
	merged, err := p.merge(old)
	if err != nil {
		return nil, err
	}
	switch {
	case p.duplicates == nil:
	case p.validation == metav1.FieldValidationStrict:
		return nil, apierrors.NewBadRequest(fmt.Sprintf("error strict decoding patch: %v", p.duplicates))
	default:
		p.api.warnStrict(ctx, []error{p.duplicates})
		p.duplicates = nil // warn once, not in every attempt
	}
	obj, err := p.complete(merged)
	if err != nil {
		return nil, err
	}
	if uid := obj.GetUID(); uid != "" && old == nil {
		return nil, p.conflict(fmt.Sprintf("uid mismatch: the provided object specified uid %s, and no existing object was found", uid))
	}
	return obj, p.fitPath(obj)
}

// merge returns the current state merged with the intent, with updated managedFields. A
// conflict is a 409, and conflicts that are too many to list a 413.
func (p *applying) merge(old rest.Object) (runtime.Object, error) {
	if err := p.checkPaths(old); err != nil {
		return nil, err
	}
	merged, err := p.tracker.Apply(old, p.intent, p.force)
	if err != nil {
		return nil, p.badIntent(err)
	}
	return merged, nil
}

// badIntent returns the error of a merge: a 400 if the patch does not match the schema of the
// kind (an unknown field, a list item with a missing or duplicate key) or its Go types (a
// string that is not a duration). A StatusError is returned as it is.
func (p *applying) badIntent(err error) error {
	var status *apierrors.StatusError
	if errors.As(err, &status) {
		boundConflicts(&status.ErrStatus)
		return err
	}
	if refused := p.tooMany(err); refused != nil {
		return refused
	}
	if errors.Is(err, managedfields.ErrPatch) {
		return apierrors.NewBadRequest(err.Error())
	}
	if codec, ok := p.body.Codec.(rest.Versioned); ok {
		patch := &unstructured.Unstructured{Object: runtime.DeepCopyJSON(p.intent)}
		if _, typing := codec.ConvertTo(patch, codec.Hub()); typing != nil {
			return undecodable(p.gvk, typing)
		}
	}
	return apierrors.NewInternalError(err)
}

// complete returns a merged object with defaults. It keeps nulls that the types do not allow,
// so that validation rejects them.
func (p *applying) complete(merged runtime.Object) (rest.Object, error) {
	if codec, ok := p.body.Codec.(rest.Defaulting); ok {
		if err := codec.Default(merged); err != nil {
			return nil, undecodable(p.gvk, err)
		}
	}
	return p.withDefaults(merged)
}

// Conflicts are bounded twice. Upstream's tracker builds the path of every conflict, several
// times: a patch with paths that could exceed maxPaths bytes is rejected first. The response
// lists at most maxConflicts, in maxConflictText bytes.
const (
	// maxPaths is more than twice that of the largest definitions in use.
	maxPaths        = 16 << 20
	maxConflicts    = 1000
	maxConflictText = 256 << 10
	// stepSize is the approximate size of a path element without its name, in bytes.
	stepSize = 8
)

// checkPaths is the 413 for a patch with conflicts that may exceed maxPaths. A forced patch
// has none.
func (p *applying) checkPaths(old rest.Object) error {
	if p.force || old == nil {
		return nil
	}
	records := slices.DeleteFunc(slices.Clone(old.GetManagedFields()), func(r metav1.ManagedFieldsEntry) bool {
		return r.Manager == p.managerName && r.Operation == metav1.ManagedFieldsOperationApply && r.Subresource == p.subresource
	})
	if pathSize(p.intent, 0)*len(records) <= maxPaths {
		return nil
	}
	// Other managers may own few of the fields.
	owned := 0
	for _, r := range records {
		var fields map[string]any
		if r.FieldsV1 == nil || json.Unmarshal(r.FieldsV1.GetRawBytes(), &fields) != nil {
			continue // an entry that cannot be decoded has no conflicts
		}
		owned += pathSize(fields, 0)
	}
	if owned <= maxPaths {
		return nil
	}
	return apierrors.NewRequestEntityTooLargeError(fmt.Sprintf(
		"the paths of the fields that may be in conflict have more than %d bytes; force the patch, or apply it in parts", maxPaths))
}

// pathSize returns the size of the paths of all leaves of v. prefix is that of v itself.
// Any string of a list item may be part of its key.
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

// namesSize returns the size of the strings of a list item.
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

// boundConflicts shortens the list of conflicts of a Status, and adds how many it omits.
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

// cutConflicts shortens a message with a line for each conflict and each manager.
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
	if end == 0 { // a single conflict with a long path
		return resource.CutText(message, maxConflictText)
	}
	more := strings.Count(message[end:], "\n- ")
	if strings.HasPrefix(message[end:], "- ") {
		more++
	}
	return fmt.Sprintf("%s- and %d more", message[:end], more)
}

// settle returns the prepared next state of old with its generation: old itself, copied, if an apply patch made it and both
// are stored alike. An empty list or map of a Go type is stored as none, so that a patch that has one finds it missing every
// time.
func (w *write) settle(obj, old rest.Object) rest.Object {
	prepared := obj.GetGeneration() // PrepareUpdate may have increased it
	obj.SetGeneration(old.GetGeneration())
	managedfields.KeepTimes(obj, old)
	if _, ok := obj.(runtime.Unstructured); w.applied && !ok && storedAlike.DeepEqual(obj, old) {
		return old.DeepCopyObject().(rest.Object)
	}
	obj.SetGeneration(prepared)
	if w.strategy.ChangesGeneration(obj, old) {
		obj.SetGeneration(old.GetGeneration() + 1)
	}
	return obj
}

// storedAlike compares objects of a Go type as they are stored: empty lists and maps are none, and quantities have the form
// in which they were written. Objects without Go types are stored as they are, and need no such comparison.
var storedAlike = func() conversion.Equalities {
	e := apiequality.Semantic.Copy()
	if err := e.AddFuncs(func(a, b quantity.Quantity) bool { return a.String() == b.String() }); err != nil {
		panic(err)
	}
	return e
}()
