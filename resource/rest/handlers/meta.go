package handlers

import (
	"context"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
)

// maxNameBase is how much of a generateName is kept, in bytes: with the five
// random characters behind it the name is a valid label value.
const maxNameBase = 58

// generatedName makes a name of a generateName.
func generatedName(base string) string {
	if len(base) > maxNameBase {
		base = base[:maxNameBase]
	}
	return base + rand.String(5)
}

// placeInNamespace puts the object into the namespace of the URL, "" for
// cluster scope; one that names another namespace is a 400.
func placeInNamespace(obj metav1.Object, namespace string) error {
	if own := obj.GetNamespace(); own != "" && namespace != "" && own != namespace {
		return apierrors.NewBadRequest("the namespace of the provided object does not match the namespace sent on the request")
	}
	obj.SetNamespace(namespace)
	return nil
}

// checkName is the 400 for a body that has no name, or not the URL's.
func checkName(obj metav1.Object, name string) error {
	switch obj.GetName() {
	case name:
		return nil
	case "":
		return apierrors.NewBadRequest(fmt.Sprintf("the name of the object (%s based on URL) was undeterminable: name must be provided", name))
	}
	return apierrors.NewBadRequest(fmt.Sprintf("the name of the object (%s) does not match the name on the URL (%s)", obj.GetName(), name))
}

// keepSystemMetadata restores what no updater may change. An empty uid is
// filled in; another one was refused before.
func keepSystemMetadata(obj, old metav1.Object) {
	obj.SetUID(old.GetUID())
	obj.SetCreationTimestamp(old.GetCreationTimestamp())
	obj.SetDeletionTimestamp(old.GetDeletionTimestamp())
	obj.SetDeletionGracePeriodSeconds(old.GetDeletionGracePeriodSeconds())
	obj.SetSelfLink(old.GetSelfLink())
	obj.SetResourceVersion(old.GetResourceVersion())
}

// ownerIdentity is an owner reference as a value that can be compared. Of what
// may be left out it has whether it is there, and what it is.
type ownerIdentity struct {
	apiVersion, kind, name, uid string
	controller, blocks          [2]bool
}

func identify(ref metav1.OwnerReference) ownerIdentity {
	id := ownerIdentity{apiVersion: ref.APIVersion, kind: ref.Kind, name: ref.Name, uid: string(ref.UID)}
	if ref.Controller != nil {
		id.controller = [2]bool{true, *ref.Controller}
	}
	if ref.BlockOwnerDeletion != nil {
		id.blocks = [2]bool{true, *ref.BlockOwnerDeletion}
	}
	return id
}

// dedupeOwners drops owner references that are there twice, with a warning.
func (w *write) dedupeOwners(ctx context.Context, obj metav1.Object, afterAdmission bool) {
	refs := obj.GetOwnerReferences()
	if len(refs) < 2 {
		return
	}
	var kept []metav1.OwnerReference
	var dropped []string
	seen := make(map[ownerIdentity]bool, len(refs))
	for _, ref := range refs {
		if id := identify(ref); !seen[id] {
			seen[id] = true
		} else {
			dropped = append(dropped, string(ref.UID))
			continue
		}
		kept = append(kept, ref)
	}
	if len(dropped) == 0 {
		return
	}
	obj.SetOwnerReferences(kept)
	when := ""
	if afterAdmission {
		when = " after mutating admission happens"
	}
	w.api.warn(ctx, fmt.Sprintf(".metadata.ownerReferences contains duplicate entries%s; API server dedups owner references in 1.20+, "+
		"and may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: %s", when, strings.Join(dropped, ", ")))
}
