package handlers

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico/resource/rest"
	"portico/resource/rest/managedfields"
)

// Bounds of lists and maps in metadata, whose every member is validated, tracked and
// indexed. Annotations are bounded by their size (256 KiB, as upstream).
const (
	maxLabels     = 1000
	maxFinalizers = 1000
	// maxOwnerReferences is higher: an object that many share, such as a secret, is
	// owned by each. So many fill an object of the largest size.
	maxOwnerReferences = 5000
	// maxManagers is how many entries managedFields may have.
	maxManagers = managedfields.MaxEntries
)

// metadataCounts are how many members the metadata of an object has.
type metadataCounts struct{ labels, finalizers, ownerReferences, managedFields int }

func countMetadata(obj rest.Object) metadataCounts {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return metadataCounts{len(obj.GetLabels()), len(obj.GetFinalizers()), len(obj.GetOwnerReferences()), len(obj.GetManagedFields())}
	}
	// Its accessors make copies.
	meta, _ := u.Object["metadata"].(map[string]any)
	labels, _ := meta["labels"].(map[string]any)
	list := func(name string) int {
		items, _ := meta[name].([]any)
		return len(items)
	}
	return metadataCounts{len(labels), list("finalizers"), list("ownerReferences"), list("managedFields")}
}

// growsMetadata returns an error for each part of the metadata of obj that is beyond
// its bound and larger than in old (nil: there is none). An object that is beyond a
// bound already can be changed in every other way, made smaller and deleted.
func growsMetadata(obj, old rest.Object) field.ErrorList {
	now, before := countMetadata(obj), metadataCounts{}
	if old != nil {
		before = countMetadata(old)
	}
	var errs field.ErrorList
	check := func(name string, now, before, most int) {
		if now > most && now > before {
			errs = append(errs, field.TooMany(field.NewPath("metadata", name), now, max(before, most)))
		}
	}
	check("labels", now.labels, before.labels, maxLabels)
	check("finalizers", now.finalizers, before.finalizers, maxFinalizers)
	check("ownerReferences", now.ownerReferences, before.ownerReferences, maxOwnerReferences)
	check("managedFields", now.managedFields, before.managedFields, maxManagers)
	return errs
}

// boundMetadata is the 422 for metadata that grows beyond a bound, before anything is
// made of it.
func (w *write) boundMetadata(obj, old rest.Object) error {
	return w.invalid(obj.GetName(), growsMetadata(obj, old))
}
