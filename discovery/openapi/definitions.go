package openapi

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"weak"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	extensionsopenapi "k8s.io/apiextensions-apiserver/pkg/generated/openapi"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/kube-openapi/pkg/builder3"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/util"
	"k8s.io/kube-openapi/pkg/validation/spec"
	kubernetesopenapi "k8s.io/kubernetes/pkg/generated/openapi"

	"portico/resource/rest"
)

// refPrefix precedes the name of a model in references.
const refPrefix = "#/components/schemas/"

func modelRef(name string) spec.Ref {
	return spec.MustCreateRef(refPrefix + common.EscapeJsonPointer(modelName(name)))
}

// modelName returns the model name of a type by its name in generated definitions, which is an import
// path for types of other modules.
func modelName(name string) string {
	if strings.Contains(name, "/") {
		return util.ToRESTFriendlyName(name)
	}
	return name
}

// definitions are the schemas of Go types by model, each with the models that it refers to.
type definitions map[string]common.OpenAPIDefinition

// generated makes definitions when they are needed, and keeps them while a document is built. Those of
// Kubernetes take 7 MB and 10 ms.
type generated struct {
	make common.GetOpenAPIDefinitions

	mu   sync.Mutex
	held weak.Pointer[definitions]
}

func (g *generated) get() *definitions {
	g.mu.Lock()
	defer g.mu.Unlock()
	if all := g.held.Value(); all != nil {
		return all
	}
	made := definitions(g.make(modelRef))
	g.held = weak.Make(&made)
	return &made
}

var (
	// kubernetes has the types of all groups of kube-apiserver.
	kubernetes = &generated{make: kubernetesopenapi.GetOpenAPIDefinitions}
	// extensions has definitions of custom resources, and the types in the documents of custom
	// resources, so that a CRD server does not make the definitions of Kubernetes.
	extensions = &generated{make: extensionsopenapi.GetOpenAPIDefinitions}
)

// definitionsOf returns the definitions that the document of kinds needs.
func definitionsOf(kinds []*rest.Kind) *definitions {
	typed := func(k *rest.Kind) bool { return k.Schema == nil && k.Group != apiextensions.GroupName }
	if slices.ContainsFunc(kinds, typed) {
		all := kubernetes.get()
		for _, k := range kinds {
			if k.Definitions == nil {
				continue
			}
			more := maps.Clone(*all)
			for name, d := range k.Definitions(modelRef) {
				for i := range d.Dependencies {
					d.Dependencies[i] = modelName(d.Dependencies[i])
				}
				more[name] = d
			}
			all = &more
		}
		return all
	}
	return extensions.get()
}

// models are the models of Go types in one document.
type models struct {
	definitions *definitions
	// used are the kinds of each model that is referred to by operations or by other schemas.
	used map[string][]schema.GroupVersionKind
}

func newModels(kinds []*rest.Kind) *models {
	return &models{definitions: definitionsOf(kinds), used: map[string][]schema.GroupVersionKind{}}
}

// add adds the model of a Go type, which is of the given kinds, and returns its name.
func (m *models) add(namer util.OpenAPIModelNamer, kinds ...schema.GroupVersionKind) string {
	return m.addModel(namer.OpenAPIModelName(), kinds...)
}

func (m *models) addModel(name string, kinds ...schema.GroupVersionKind) string {
	have := m.used[name]
	for _, id := range kinds {
		if !slices.Contains(have, id) {
			have = append(have, id)
		}
	}
	m.used[name] = have
	return name
}

// ofKind adds the model of a kind and returns its name; "" if the kind has no Go type.
func (m *models) ofKind(codec rest.Codec, id schema.GroupVersionKind) string {
	namer, ok := codec.StrategicMerge(id).(util.OpenAPIModelNamer)
	if !ok {
		return ""
	}
	return m.add(namer, id)
}

// schemas returns the schemas of all models, and of the models that they refer to.
func (m *models) schemas() (map[string]*spec.Schema, error) {
	// The builder changes the extensions of definitions, which other documents share.
	own := make(definitions, len(*m.definitions))
	for name, d := range *m.definitions {
		d.Schema.Extensions = maps.Clone(d.Schema.Extensions)
		own[name] = d
	}
	return builder3.BuildOpenAPIDefinitionsForResources(&common.OpenAPIV3Config{
		Definitions:       own,
		GetDefinitionName: func(name string) (string, spec.Extensions) { return name, m.extensionsOf(name) },
	}, slices.Sorted(maps.Keys(m.used))...)
}

// corePrefix precedes the names of the models of the core group.
const corePrefix = "io.k8s.api.core.v1."

// extensionsOf returns the extension that names the kinds of a model.
func (m *models) extensionsOf(name string) spec.Extensions {
	kinds := m.used[name]
	if kind, ok := strings.CutPrefix(name, corePrefix); ok && kinds == nil && isObject((*m.definitions)[name].Schema) {
		kinds = []schema.GroupVersionKind{{Version: "v1", Kind: kind}} // a PersistentVolumeClaim within a StatefulSet
	}
	if len(kinds) == 0 {
		return nil
	}
	return spec.Extensions{extensionGVK: extensionOf(kinds)}
}

// isObject reports whether a schema has the fields of every object.
func isObject(s spec.Schema) bool {
	_, kind := s.Properties["kind"]
	_, version := s.Properties["apiVersion"]
	_, metadata := s.Properties["metadata"]
	return kind && version && metadata
}

// extensionOf returns the value of extensionGVK, sorted as in kube-apiserver's documents.
func extensionOf(kinds []schema.GroupVersionKind) []any {
	sorted := slices.SortedFunc(slices.Values(kinds), func(a, b schema.GroupVersionKind) int { return strings.Compare(a.Group, b.Group) })
	out := make([]any, 0, len(sorted))
	for _, id := range sorted {
		out = append(out, map[string]any{"group": id.Group, "kind": id.Kind, "version": id.Version})
	}
	return out
}

// Ownership returns the type converter for managed fields of a kind with a Go type, from the schemas
// of its OpenAPI document. It is built at the first call.
func Ownership(k *rest.Kind) func() (managedfields.TypeConverter, error) {
	return sync.OnceValues(func() (managedfields.TypeConverter, error) {
		all := newModels([]*rest.Kind{k})
		for _, version := range k.Versions {
			all.ofKind(k.Codec, k.GVK(version))
		}
		schemas, err := all.schemas()
		if err != nil {
			return nil, err
		}
		return managedfields.NewTypeConverter(schemas, false)
	})
}
