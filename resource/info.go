package resource

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Info has the names of a resource on the wire and in storage. It must not change once it is
// served.
type Info struct {
	// Group is the API group; "" is the core group.
	Group string
	// Versions are the served versions, preferred one first. Never empty.
	Versions []string
	// StorageVersion is the version objects are stored in; "" means Versions[0].
	StorageVersion string
	// Resource is the plural, lower-case name, as in URLs.
	Resource string
	// Singular is the lower-case singular name; "" means lower-case Kind.
	Singular string
	// Kind is the object's kind; its list is ListKind ("" means Kind + "List").
	Kind     string
	ListKind string
	// ShortNames and Categories are for discovery.
	ShortNames []string
	Categories []string
	// Namespaced is set if the objects are in namespaces.
	Namespaced bool
	// Path is the storage path below the prefix, without slashes at its ends:
	// "configmaps", "services/specs", "example.com/widgets". "" means Resource.
	Path string
}

// GroupResource returns the resource without its version.
func (i *Info) GroupResource() schema.GroupResource {
	return schema.GroupResource{Group: i.Group, Resource: i.Resource}
}

// GroupKind returns the kind without its version.
func (i *Info) GroupKind() schema.GroupKind {
	return schema.GroupKind{Group: i.Group, Kind: i.Kind}
}

// GVK returns the kind in the named version.
func (i *Info) GVK(version string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: i.Group, Version: version, Kind: i.Kind}
}

// GVR returns the resource in the named version.
func (i *Info) GVR(version string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: i.Group, Version: version, Resource: i.Resource}
}

// Storage returns the version objects are stored in.
func (i *Info) Storage() string {
	if i.StorageVersion != "" {
		return i.StorageVersion
	}
	return i.Versions[0]
}

// Serves reports whether the version is served.
func (i *Info) Serves(version string) bool { return slices.Contains(i.Versions, version) }

// SingularName returns the singular name, defaulted.
func (i *Info) SingularName() string {
	if i.Singular != "" {
		return i.Singular
	}
	return strings.ToLower(i.Kind)
}

// List returns the kind of the resource's list, defaulted.
func (i *Info) List() string {
	if i.ListKind != "" {
		return i.ListKind
	}
	return i.Kind + "List"
}

// StoragePath returns the storage path below the prefix, defaulted.
func (i *Info) StoragePath() string {
	if i.Path != "" {
		return i.Path
	}
	return i.Resource
}

// Key names one object of a resource. Namespace is "" for cluster scope.
type Key struct {
	Namespace, Name string
}

// String returns "namespace/name", or "name" in cluster scope.
func (k Key) String() string {
	if k.Namespace == "" {
		return k.Name
	}
	return k.Namespace + "/" + k.Name
}

// ObjectPath returns the storage path of one object below the prefix:
// "configmaps/ns/name" or "namespaces/name".
func (i *Info) ObjectPath(k Key) string {
	if i.Namespaced {
		return i.StoragePath() + "/" + k.Namespace + "/" + k.Name
	}
	return i.StoragePath() + "/" + k.Name
}

// RangePath returns the storage path prefix, with its closing slash, that
// covers the whole resource (namespace "") or one namespace of it. The slash
// keeps namespaces that share a prefix apart.
func (i *Info) RangePath(namespace string) string {
	if i.Namespaced && namespace != "" {
		return i.StoragePath() + "/" + namespace + "/"
	}
	return i.StoragePath() + "/"
}
