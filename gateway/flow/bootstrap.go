package flow

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	flowv1 "k8s.io/api/flowcontrol/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/apis/flowcontrol/bootstrap"

	"portico/resource"
	"portico/resource/rest"
)

// ensure maintains the objects that every cluster has, as kube-apiserver does. It creates those
// that are missing. Mandatory ones get back their spec; suggested ones do unless their
// annotation apf.kubernetes.io/autoupdate-spec is false, or is absent from one that was changed.
// Objects with the annotation that no version has any more are deleted.
func ensure(ctx context.Context, levels, schemas *rest.Resource) error {
	wantLevels, wantSchemas := bootstrapLevels(), bootstrapSchemas()
	for _, l := range wantLevels {
		if err := maintain(ctx, levels, l, setLevelSpec); err != nil {
			return err
		}
	}
	for _, s := range wantSchemas {
		if err := maintain(ctx, schemas, s, setSchemaSpec); err != nil {
			return err
		}
	}
	if err := removeOthers(ctx, schemas, wantSchemas); err != nil {
		return err
	}
	return removeOthers(ctx, levels, wantLevels)
}

// bootstrapLevels and bootstrapSchemas return copies of the objects that every cluster has.
func bootstrapLevels() []*flowv1.PriorityLevelConfiguration {
	return copies(bootstrap.MandatoryPriorityLevelConfigurations, bootstrap.SuggestedPriorityLevelConfigurations)
}

func bootstrapSchemas() []*flowv1.FlowSchema {
	return copies(bootstrap.MandatoryFlowSchemas, bootstrap.SuggestedFlowSchemas)
}

func copies[T object[T]](mandatory, suggested []T) (out []T) {
	for _, obj := range slices.Concat(mandatory, suggested) {
		out = append(out, obj.DeepCopy())
	}
	return out
}

// isMandatory reports whether the objects with a name, of both kinds, are mandatory.
func isMandatory(name string) bool {
	return name == flowv1.FlowSchemaNameExempt || name == flowv1.FlowSchemaNameCatchAll
}

// setLevelSpec makes the spec of a level that of want, and reports whether it differed. The
// operator decides on the shares of the level exempt.
func setLevelSpec(have, want *flowv1.PriorityLevelConfiguration) bool {
	spec := want.Spec.DeepCopy()
	if spec.Exempt != nil && have.Spec.Exempt != nil {
		spec.Exempt = have.Spec.Exempt
	}
	differs := !apiequality.Semantic.DeepEqual(*spec, have.Spec)
	have.Spec = *spec
	return differs
}

func setSchemaSpec(have, want *flowv1.FlowSchema) bool {
	differs := !apiequality.Semantic.DeepEqual(want.Spec, have.Spec)
	have.Spec = *want.Spec.DeepCopy()
	return differs
}

// object is one of both kinds.
type object[T any] interface {
	rest.Object
	*flowv1.FlowSchema | *flowv1.PriorityLevelConfiguration
	DeepCopy() T
}

// maintain creates an object, or updates its spec and annotation.
func maintain[T object[T]](ctx context.Context, r *rest.Resource, want T, setSpec func(have, want T) bool) error {
	key := resource.Key{Name: want.GetName()}
	stored, err := r.Store.Get(ctx, key, resource.At{})
	switch {
	case apierrors.IsNotFound(err):
		if _, err := rest.CreateObject(ctx, r, want); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("create %s %q: %w", r.Kind.Kind, key.Name, err)
		}
		return nil
	case err != nil:
		return fmt.Errorf("read %s %q: %w", r.Kind.Kind, key.Name, err)
	}
	have, err := rest.DecodeAs[T](r.Kind, stored)
	if err != nil {
		return err
	}
	if !update(have, want, setSpec) {
		return nil
	}
	_, err = rest.Modify(ctx, r, key, func(obj T) error {
		update(obj, want, setSpec)
		return nil
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("update %s %q: %w", r.Kind.Kind, key.Name, err)
	}
	return nil
}

// update makes have what maintain wants, and reports whether it changed anything.
func update[T object[T]](have, want T, setSpec func(have, want T) bool) (changed bool) {
	annotation, err := strconv.ParseBool(have.GetAnnotations()[flowv1.AutoUpdateAnnotationKey])
	auto := isMandatory(want.GetName()) || annotation || err != nil && have.GetGeneration() == 1
	if err != nil || annotation != auto {
		annotations := have.GetAnnotations()
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations[flowv1.AutoUpdateAnnotationKey] = strconv.FormatBool(auto)
		have.SetAnnotations(annotations)
		changed = true
	}
	if auto && setSpec(have, want) {
		have.SetGeneration(have.GetGeneration() + 1)
		changed = true
	}
	return changed
}

// removeOthers deletes the objects with the annotation of automatic updates that are not in all.
func removeOthers[T object[T]](ctx context.Context, r *rest.Resource, all []T) error {
	list, err := r.Store.List(ctx, resource.ListOptions{At: resource.At{Freshness: resource.Any}})
	if err != nil {
		return fmt.Errorf("list %s: %w", r.Resource, err)
	}
	unwanted := func(obj rest.Object) bool {
		auto, _ := strconv.ParseBool(obj.GetAnnotations()[flowv1.AutoUpdateAnnotationKey])
		return auto && !slices.ContainsFunc(all, func(want T) bool { return want.GetName() == obj.GetName() })
	}
	for _, o := range list.Items {
		obj, err := r.Decode(o)
		if err != nil || !unwanted(obj) {
			continue // an object that does not decode is not ours
		}
		_, err = r.Store.Delete(ctx, o.Key(), nil)
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("delete %s %q: %w", r.Kind.Kind, o.Name, err)
		}
	}
	return nil
}
