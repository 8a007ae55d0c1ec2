package kinds

import (
	"context"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	registry "k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage"

	"portico/resource"
	"portico/resource/rest"
)

// row is one resource of kube-apiserver.
type row struct {
	resource.Info
	// storage is the kind and version in which objects are stored. Default: the storage version of Info.
	storage schema.GroupVersionKind
	// strategy is the strategy of the main resource, status the one of the subresource status, and updates has those of
	// further subresources that update the stored object, by name.
	strategy registryStrategy
	status   registry.RESTUpdateStrategy
	updates  map[string]registry.RESTUpdateStrategy
	// fieldLabels are the field labels beyond metadata.name and metadata.namespace, and fields returns their values.
	fieldLabels []string
	fields      func(obj runtime.Object) map[string]string
	// defaultTable makes the Table form that of a resource without printer: name and creation time.
	defaultTable bool
	// returnDeleted makes DELETE respond with the object instead of a Status.
	returnDeleted bool
	// customize changes the kind after the other fields are applied.
	customize func(k *rest.Kind)
}

// registryStrategy is a strategy of a resource in k8s.io/kubernetes/pkg/registry.
type registryStrategy interface {
	registry.RESTCreateStrategy
	registry.RESTUpdateStrategy
}

// kind returns the row as package handlers serves it.
func (r row) kind(cfg Config) *rest.Kind {
	k := &rest.Kind{Info: r.Info, ReturnDeleted: r.returnDeleted, FieldLabels: r.fieldLabels, Fields: r.fields}
	hub := r.storage
	if hub.Empty() {
		hub = k.GVK(k.Storage())
	}
	k.Codec = rest.TypedDefaulted(scheme, hub, convert)
	s := strategy{hub: hub, info: &r.Info, create: r.strategy, update: r.strategy, warn: cfg.Warn}
	k.Strategy = s.rules()
	ctx := s.requestContext(context.Background())
	k.CreateOnUpdate, k.UnconditionalUpdate = r.strategy.AllowCreateOnUpdate(ctx), r.strategy.AllowUnconditionalUpdate(ctx)
	if r.status != nil {
		k.Subresources = append(k.Subresources, s.subresourceOf("status", r.status))
	}
	for name, update := range r.updates {
		k.Subresources = append(k.Subresources, s.subresourceOf(name, update))
	}
	if !r.defaultTable {
		k.Columns, k.Cells = table(hub)
	}
	if r.customize != nil {
		r.customize(k)
	}
	slices.SortFunc(k.Subresources, func(a, b rest.Subresource) int { return strings.Compare(a.Name, b.Name) })
	return k
}

// fieldsFrom adapts a storage.AttrFunc to rest.Kind.Fields. An object of another type has no fields.
func fieldsFrom(attrs storage.AttrFunc) func(runtime.Object) map[string]string {
	return func(obj runtime.Object) map[string]string {
		in, err := Internal(obj)
		if err != nil {
			return nil
		}
		_, fields, err := attrs(in)
		if err != nil {
			return nil
		}
		return fields
	}
}

// names are the names of a resource without short names and categories.
func names(group, plural, kind string) resource.Info {
	return resource.Info{Group: group, Versions: []string{"v1"}, Resource: plural, Kind: kind}
}

// namespaced is names of a resource that is in namespaces.
func namespaced(group, plural, kind string, short ...string) resource.Info {
	info := names(group, plural, kind)
	info.Namespaced, info.ShortNames = true, short
	return info
}

// clusterwide is names of a resource that is not in namespaces.
func clusterwide(group, plural, kind string, short ...string) resource.Info {
	info := names(group, plural, kind)
	info.ShortNames = short
	return info
}

// inAll adds the category all, which is what "kubectl get all" shows.
func inAll(info resource.Info) resource.Info {
	info.Categories = []string{"all"}
	return info
}

// storedUnder sets the folder in etcd, for resources with another folder than their name.
func storedUnder(path string, info resource.Info) resource.Info {
	info.Path = path
	return info
}

// addSubresources adds subresources that do not update the stored object.
func addSubresources(k *rest.Kind, more ...rest.Subresource) {
	k.Subresources = append(k.Subresources, more...)
}

// fieldsOf adapts a function that returns the selectable fields of an object. An object of another type has none.
func fieldsOf[T rest.Object](f func(obj T) map[string]string) func(runtime.Object) map[string]string {
	return func(obj runtime.Object) map[string]string {
		typed, ok := obj.(T)
		if !ok {
			return nil
		}
		return f(typed)
	}
}

// readWithDefaults makes the codec of a row set defaults in objects that are stored as protobuf, as kube-apiserver does
// for every kind when it reads. It is for kinds with fields that have a default and are not stored. JSON holds all
// defaults, such as the apiVersion and kind of the claim templates of a StatefulSet, which protobuf lacks.
func readWithDefaults(k *rest.Kind) {
	k.Codec = defaultingCodec{k.Codec.(rest.Versioned), k.Strategy.Default, func(o *resource.Object) bool { return o.Encoding != resource.Protobuf }}
}

// defaultingCodec sets defaults in stored objects when they are read.
type defaultingCodec struct {
	rest.Versioned
	setDefaults func(obj rest.Object)
	canonical   func(o *resource.Object) bool // reports that setDefaults changes nothing; called on every read
}

var _ rest.CanonicalCodec = defaultingCodec{}

// DecodeStored implements rest.Codec.
func (c defaultingCodec) DecodeStored(o *resource.Object) (runtime.Object, error) {
	obj, err := c.Versioned.DecodeStored(o)
	if err == nil && !c.canonical(o) {
		c.setDefaults(obj.(rest.Object))
	}
	return obj, err
}

// Canonical implements rest.CanonicalCodec.
func (c defaultingCodec) Canonical(o *resource.Object) bool { return c.canonical(o) }
