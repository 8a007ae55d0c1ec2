package admission

import (
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"

	"portico/resource"
	"portico/resource/rest"
)

// newAttributes returns a write as the engines see it.
func newAttributes(a *rest.Attributes) admission.Attributes {
	version, subresource := a.Kind.Versions[0], ""
	if a.Action != nil {
		version, subresource = a.Action.Version, a.Action.Subresource
	}
	return admission.NewAttributesRecord(a.Object, a.Old, bodyKind(a.Kind, version, subresource), namespaceOf(a), a.Key.Name,
		a.Kind.GVR(version), subresource, admission.Operation(a.Operation), a.Options, a.DryRun, userOf(a.Action))
}

// bodyKind is the kind of the bodies of a resource or of its subresource.
func bodyKind(k *rest.Kind, version, subresource string) schema.GroupVersionKind {
	for i := range k.Subresources {
		if sub := &k.Subresources[i]; sub.Name == subresource && !sub.GVK.Empty() {
			return sub.GVK
		}
	}
	return k.GVK(version)
}

// namespaceOf is the namespace of the request. A Namespace counts as being in
// itself (docs/wire.md 10.2, selectors of namespaces).
func namespaceOf(a *rest.Attributes) string {
	if a.Kind.Group == "" && a.Kind.Resource == "namespaces" {
		return a.Key.Name
	}
	return a.Key.Namespace
}

func userOf(action *resource.Action) user.Info {
	if action == nil || action.User == nil {
		return &user.DefaultInfo{}
	}
	u := action.User
	return &user.DefaultInfo{Name: u.Name, UID: u.UID, Groups: u.Groups, Extra: u.Extra}
}
