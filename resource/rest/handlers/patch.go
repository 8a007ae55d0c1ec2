package handlers

import (
	"context"
	"fmt"
	"net/http"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"portico/resource"
	"portico/resource/rest"
	"portico/resource/rest/patch"
)

// patch implements PATCH on an object or its subresource sub: 200, or 201 if an apply patch
// creates. The patch is parsed once and applied to the current object in every attempt; only
// writeCap bounds the attempts.
func (a *API) patch(w http.ResponseWriter, r *http.Request, act *resource.Action, res *rest.Resource, sub *rest.Subresource) error {
	ctx, cancel := context.WithTimeout(r.Context(), writeCap)
	defer cancel()
	patchType := types.PatchType(bareMediaType(r.Header.Get("Content-Type")))
	accepted := res.PatchTypes(act.Version)
	if sub != nil {
		accepted = sub.PatchTypes(res.Kind, act.Version)
	}
	if a.cfg.CBOR && slices.Contains(accepted, string(types.ApplyYAMLPatchType)) {
		accepted = append(accepted, string(types.ApplyCBORPatchType))
	}
	if !slices.Contains(accepted, string(patchType)) {
		return resource.UnsupportedMediaType(accepted)
	}
	if err := requireName(act); err != nil {
		return err
	}
	opts, err := patchOptions(r, patchType)
	if err != nil {
		return err
	}
	wr := newWrite(a, act, res, sub, opts)
	body, err := a.readBodyAs(r, string(patchType), wr.target())
	if err != nil {
		return err
	}
	defer body.close()
	wr.sent = body
	if err := checkKey(wr.key); err != nil {
		return err
	}
	next, err := wr.parse(patchType, body.data)
	if err != nil {
		return err
	}
	// Only an apply patch can create.
	return wr.replace(ctx, w, r, sub, next, wr.applied)
}

// parse parses a patch. Errors are 400s and 413s.
func (w *write) parse(t types.PatchType, data []byte) (nextState, error) {
	if t == types.ApplyYAMLPatchType || t == types.ApplyCBORPatchType {
		p, err := newApplying(w, data, t == types.ApplyYAMLPatchType)
		if err != nil {
			return nil, err
		}
		return p.next, nil
	}
	document, err := patch.Parse(t, data, w.body.Codec.StrategicMerge(w.gvk), w.validation != metav1.FieldValidationIgnore)
	if err != nil {
		return nil, err
	}
	return (&patching{write: w, Patch: document}).next, nil
}

// patching is a write that patches the current state.
type patching struct {
	*write
	patch.Patch
}

// next is a nextState. It patches the JSON of the object in the version of the request.
func (p *patching) next(ctx context.Context, _ *resource.Object, old rest.Object) (rest.Object, error) {
	current, err := p.body.Codec.Encode(old, p.gvk, runtime.ContentTypeJSON)
	if err != nil {
		return nil, unencodable(fmt.Errorf("encode %s %s: %w", p.res.GroupResource(), p.key, err))
	}
	patched, err := p.Apply(current)
	if err != nil {
		return nil, err
	}
	if err := p.checkResult(current, patched); err != nil {
		return nil, err
	}
	decoded, strictErrs, err := p.body.Codec.Decode(patched, runtime.ContentTypeJSON, p.gvk, p.validation != metav1.FieldValidationIgnore)
	if err != nil {
		return nil, p.BadResult(patched, err)
	}
	strictErrs = append(slices.Clone(p.StrictErrors), strictErrs...)
	switch {
	case len(strictErrs) == 0:
	case p.validation == metav1.FieldValidationStrict:
		return nil, p.BadResult(patched, runtime.NewStrictDecodingError(strictErrs))
	case p.validation == metav1.FieldValidationWarn:
		p.api.warnStrict(ctx, strictErrs)
	}
	obj, err := p.withDefaults(decoded)
	if err != nil {
		return nil, err
	}
	return obj, p.fitPath(obj)
}

// patchSlack is by how much a patch may grow an object that exceeds the bounds of bodies, in
// bytes: a label, a finalizer.
const patchSlack = 1 << 10

// checkResult checks the size of a patched object. One that exceeds the bounds in storage
// can be changed as long as it does not grow.
func (p *patching) checkResult(current, patched []byte) error {
	_, err := measureBody(patched, runtime.ContentTypeJSON, p.target())
	if err == nil || len(patched) > len(current)+patchSlack {
		return err
	}
	if _, before := measureBody(current, runtime.ContentTypeJSON, p.target()); before != nil {
		return nil
	}
	return err
}
