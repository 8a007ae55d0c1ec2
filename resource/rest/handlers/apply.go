package handlers

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"portico/resource"
	"portico/resource/rest"
	"portico/resource/rest/managedfields"
	"portico/resource/rest/patch"
)

// intent is the parsed body of an apply patch: all that its manager wants to
// have a say in. It may be applied any number of times.
type intent struct {
	object map[string]any
	// duplicates is the complaint about fields that are there twice; nil: none.
	duplicates error
}

// parseIntent parses an apply patch, which is YAML and so may be JSON. With
// strict, duplicate fields are looked for. A malformed patch is a 400.
func parseIntent(data []byte, strict bool) (intent, error) {
	var in intent
	document, err := yaml.YAMLToJSON(data)
	if err != nil {
		return in, patch.Malformed(err)
	}
	// Not by way of floats: a large integer must arrive as it was sent.
	if err := kjson.UnmarshalCaseSensitivePreserveInts(document, &in.object); err != nil {
		return in, patch.Malformed(err)
	}
	if in.object == nil {
		in.object = map[string]any{}
	}
	if strict {
		if err := yaml.UnmarshalStrict(data, &map[string]any{}); err != nil {
			in.duplicates = boundComplaint(err)
		}
	}
	return in, nil
}

// applying is a write whose next state is the current one, merged with what a
// manager applies.
type applying struct {
	*write
	intent
	force bool
}

// newApplying makes of w an apply patch.
func newApplying(w *write, data []byte) (*applying, error) {
	in, err := parseIntent(data, w.validation != metav1.FieldValidationIgnore)
	if err != nil {
		return nil, err
	}
	w.applied = true
	p := &applying{write: w, intent: in}
	if opts, ok := w.object.(*metav1.PatchOptions); ok && opts.Force != nil {
		p.force = *opts.Force
	}
	return p, nil
}

// next is a nextState; without a current state it makes the first one.
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
		p.duplicates = nil // one warning, however often this is tried
	}
	obj, err := p.settle(merged)
	if err != nil {
		return nil, err
	}
	if uid := obj.GetUID(); uid != "" && old == nil {
		return nil, p.conflict(fmt.Sprintf("uid mismatch: the provided object specified uid %s, and no existing object was found", uid))
	}
	if err := placeInNamespace(obj, p.key.Namespace); err != nil {
		return nil, err
	}
	return obj, checkName(obj, p.key.Name)
}

// merge returns the current state with the intent in it and its ownership
// recorded. A conflict is a 409, more of them than can be listed a 413.
func (p *applying) merge(old rest.Object) (runtime.Object, error) {
	if err := p.checkPaths(old); err != nil {
		return nil, err
	}
	merged, err := p.tracker.Apply(old, p.intent.object, p.force)
	if err != nil {
		return nil, p.badIntent(err)
	}
	return merged, nil
}

// badIntent is the error of a merge: a 400 if what is applied does not fit the
// kind's schema (an unknown field, an item without its key or there twice) or its
// Go types (a text that is no duration), unless the codec says which Status it is.
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
		patch := &unstructured.Unstructured{Object: runtime.DeepCopyJSON(p.intent.object)}
		if _, typing := codec.ConvertTo(patch, codec.Hub()); typing != nil {
			return undecodable(p.gvk, typing)
		}
	}
	return apierrors.NewInternalError(err)
}

// settle makes of a merged object one that a codec might have decoded. Without
// Go types it may hold what the codec prunes or lack what it defaults.
func (p *applying) settle(merged runtime.Object) (rest.Object, error) {
	if _, ok := merged.(runtime.Unstructured); ok {
		data, err := p.body.Codec.Encode(merged, p.gvk, runtime.ContentTypeJSON)
		if err != nil {
			return nil, unencodable(fmt.Errorf("encode %s %s: %w", p.res.GroupResource(), p.key, err))
		}
		if merged, _, err = p.body.Codec.Decode(data, runtime.ContentTypeJSON, p.gvk, false); err != nil {
			return nil, undecodable(p.gvk, err)
		}
	}
	return p.withDefaults(merged)
}
