package rest

import (
	"context"
	"unicode/utf8"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico/resource"
	"portico/resource/audit"
)

// createDraft stores a new object that nobody has to see whole: its kind vouches
// for its bytes and admission does not look at it. Not done is that it has to go
// the usual way, where every complaint is worded that is not of the store or of
// admission; nothing was written or said then.
func (w *write) createDraft(ctx context.Context, body []byte, mediaType string) (o *resource.Object, done bool, err error) {
	admission, ok := w.unseeing()
	if w.strategy.Draft == nil || mediaType != runtime.ContentTypeJSON || w.ownership == nil || w.res.TTL != nil || !ok {
		return nil, false, nil
	}
	d := w.strategy.Draft(body)
	if d == nil {
		return nil, false, nil
	}
	defer d.Close()
	head := d.Head()
	audit.Refer(ctx, w.act, head)
	if o = w.finishDraft(d); o == nil {
		return nil, false, nil
	}
	w.key.Name = head.GetName()
	if admission != nil {
		decided, err := admission.AdmitUnseen(ctx, w.attributes(Create, nil, nil))
		if !decided || err != nil {
			return nil, decided, err
		}
	}
	stored, err := w.store(ctx, resource.Mutation{Object: o})
	if tooLarge(err) {
		return nil, false, nil
	}
	w.warnings(ctx, head, nil)
	return stored, true, w.explainExists(ctx, err, head.GetGenerateName() != "")
}

// unseeing is the admission to ask about a draft; nil is none. ok is false
// where admission sees every object.
func (w *write) unseeing() (admission Unseeing, ok bool) {
	if w.api.admission == nil {
		return nil, true
	}
	admission, ok = w.api.admission.(Unseeing)
	return admission, ok
}

// finishDraft fills in what the server says about a new object and encodes it;
// nil is one with something that is rare or wrong. Without a name it is rare:
// names are made one after the other until one is free.
func (w *write) finishDraft(d Draft) *resource.Object {
	head := d.Head()
	if len(growsMetadata(head, nil)) > 0 || head.GetName() == "" || head.GetResourceVersion() != "" || len(head.GetOwnerReferences()) > 1 || head.GroupVersionKind() != w.gvk {
		return nil
	}
	wipeSystemMetadata(head)
	if placeInNamespace(head, w.key.Namespace) != nil || !w.ownDraft(d) {
		return nil
	}
	initMetadata(head, w.strategy.TrackGeneration)
	errs := apivalidation.ValidateObjectMetaAccessor(w.unvalidated(head), w.res.Namespaced, nameRule(w.strategy), field.NewPath("metadata"))
	if len(errs) > 0 || !w.strategy.LooseFinalizers && len(head.GetFinalizers()) > 0 {
		return nil
	}
	o, err := d.Encode()
	if err != nil {
		return nil
	}
	return o
}

// ownDraft is recordNew for a draft.
func (w *write) ownDraft(d Draft) bool {
	head := d.Head()
	meta, ok := head.Object["metadata"].(map[string]any)
	if !ok || !utf8.ValidString(w.owner) {
		return false
	}
	if _, sent := meta["managedFields"]; sent {
		return false
	}
	converter, err := w.ownership()
	if err != nil {
		return false
	}
	root, ok := typeOf(converter, w.gvk)
	if !ok {
		return false
	}
	fields, ok := ownedText(root, head.Object, d.Content(), w.resets)
	if !ok {
		return false
	}
	if len(fields) > len(`{}`) {
		meta["managedFields"] = []any{w.entryOf(OwnedText(fields))}
	}
	w.recorded = recordOf(head)
	return true
}
