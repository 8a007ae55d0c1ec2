package access

import (
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico/resource"
	"portico/resource/rest"
)

// Restore has requests authorized by the policy that an earlier process knew,
// until Run has read what is stored. find is as for Run; objects returns what
// is known of a resource. What grants nothing there is granted by nothing.
func (a *Access) Restore(find func(schema.GroupResource) *rest.Resource, objects func(schema.GroupResource) []*resource.Object) {
	var s policyState
	restore(a, find, objects, "roles", &s.roles)
	restore(a, find, objects, "clusterroles", &s.clusterRoles)
	restore(a, find, objects, "rolebindings", &s.bindings)
	restore(a, find, objects, "clusterrolebindings", &s.clusterBinds)
	a.index.CompareAndSwap(nil, newIndex(&s))
}

func restore[T rest.Object](a *Access, find func(schema.GroupResource) *rest.Resource, objects func(schema.GroupResource) []*resource.Object, name string, into *[]T) {
	gr := schema.GroupResource{Group: rbacv1.GroupName, Resource: name}
	*into, _ = decodeAll[T](a.log, find(gr), objects(gr), nil)
}
