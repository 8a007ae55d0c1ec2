package crd

import (
	"fmt"
	"maps"
	"slices"
	"sync"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico/backends/crd/custom"
	"portico/discovery"
	"portico/resource"
	"portico/resource/rest"
)

// The discovery of definitions is bounded, so that the gateway reads all of this server's
// document. A write that exceeds a bound is rejected, unless the definition exceeded it
// before and does not grow. Definitions that another server stored are in discovery up to
// the bounds, and can be read, changed and deleted.
const (
	// maxVersions bounds the versions of one definition, and maxNames its short names and
	// its categories.
	maxVersions = 100
	maxNames    = 100
	// maxGroupVersions bounds the group/versions of all definitions together, and
	// maxDiscovery the size of their discovery, in bytes of memory (discovery.Size).
	// 10,000 definitions of three versions in a group of their own each are too many
	// group/versions, and in groups of several they take about 45 MB.
	maxGroupVersions = 16384
	maxDiscovery     = 64 << 20
)

// truncated is the condition of a definition that discovery has in part, or omits with its
// group (reasonOmitted).
const (
	truncated     apiextensionsv1.CustomResourceDefinitionConditionType = "DiscoveryTruncated"
	reasonOmitted string                                                = "TooManyGroupVersions"
)

// setTruncated sets or removes the condition truncated. all is nil while the definition is
// written; whether its group is omitted is then left as it is.
func setTruncated(crd *apiextensionsv1.CustomResourceDefinition, all *totals) {
	have := apihelpers.FindCRDCondition(crd, truncated)
	omitted := have != nil && have.Reason == reasonOmitted
	if all != nil {
		omitted = all.omittedGroups[crd.Spec.Group]
	}
	c := apiextensionsv1.CustomResourceDefinitionCondition{Type: truncated, Status: apiextensionsv1.ConditionTrue}
	names := &crd.Spec.Names
	switch n := len(servedVersions(crd)); {
	case omitted:
		c.Reason = reasonOmitted
		c.Message = fmt.Sprintf("the group is left out: all definitions together have more than %d group/versions, or %d bytes of discovery", maxGroupVersions, maxDiscovery)
	case n > maxVersions:
		c.Reason, c.Message = "TooManyVersions", fmt.Sprintf("spec.versions: discovery has the first %d of %d served versions", maxVersions, n)
	case len(names.ShortNames) > maxNames:
		c.Reason, c.Message = "TooManyShortNames", fmt.Sprintf("spec.names.shortNames: discovery has the first %d of %d", maxNames, len(names.ShortNames))
	case len(names.Categories) > maxNames:
		c.Reason, c.Message = "TooManyCategories", fmt.Sprintf("spec.names.categories: discovery has the first %d of %d", maxNames, len(names.Categories))
	case have != nil:
		apihelpers.RemoveCRDCondition(crd, truncated)
		return
	default:
		return
	}
	apihelpers.SetCRDCondition(crd, c)
}

// withinBounds checks that a definition is within the bounds of one definition, or does
// not exceed them more than old (nil: it is new).
func withinBounds(crd, old *apiextensionsv1.CustomResourceDefinition) (errs field.ErrorList) {
	if old == nil {
		old = &apiextensionsv1.CustomResourceDefinition{}
	}
	bound := func(path *field.Path, n, was, most int) {
		if n > most && n > was {
			errs = append(errs, field.TooMany(path, n, most))
		}
	}
	spec, names := field.NewPath("spec"), field.NewPath("spec", "names")
	now, was := &crd.Spec, &old.Spec
	bound(spec.Child("versions"), len(now.Versions), len(was.Versions), maxVersions)
	bound(names.Child("shortNames"), len(now.Names.ShortNames), len(was.Names.ShortNames), maxNames)
	bound(names.Child("categories"), len(now.Names.Categories), len(was.Names.Categories), maxNames)
	for i := range now.Versions {
		v, path := &now.Versions[i], spec.Child("versions").Index(i).Child("additionalPrinterColumns")
		stored := columnsOf(was, v.Name)
		bound(path, len(v.AdditionalPrinterColumns), len(stored), maxColumns)
		errs = append(errs, checkColumns(path, v.AdditionalPrinterColumns, stored)...)
	}
	return errs
}

// maxColumns bounds the columns of a version. The bounds of a cell and of a row are in
// backends/crd/custom/columns.go.
const maxColumns = 100

// columnsOf returns the columns that a definition has in a version.
func columnsOf(spec *apiextensionsv1.CustomResourceDefinitionSpec, version string) []apiextensionsv1.CustomResourceColumnDefinition {
	i := slices.IndexFunc(spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Name == version })
	if i < 0 {
		return nil
	}
	return spec.Versions[i].AdditionalPrinterColumns
}

// checkColumns rejects paths that cannot be evaluated within bounds. Those that the version
// has already are kept.
func checkColumns(path *field.Path, columns, stored []apiextensionsv1.CustomResourceColumnDefinition) (errs field.ErrorList) {
	for i := range columns {
		text := columns[i].JSONPath
		if slices.ContainsFunc(stored, func(c apiextensionsv1.CustomResourceColumnDefinition) bool { return c.JSONPath == text }) {
			continue
		}
		if err := custom.CheckPath(text); err != nil {
			errs = append(errs, field.Invalid(path.Index(i).Child("jsonPath"), text[:min(len(text), 100)], err.Error()))
		}
	}
	return errs
}

// firstNames returns the first maxNames of a list.
func firstNames(names []string) []string { return names[:min(len(names), maxNames)] }

// totals is the discovery of all definitions. Immutable.
type totals struct {
	served              *served
	groupVersions, size int
	documents           []discovery.GroupVersion
	// omitted is the number of group/versions that documents omits because of the bounds.
	omitted int
	// omittedGroups are the groups of these.
	omittedGroups map[string]bool
}

// newTotals builds the discovery of all definitions: groups in name order, preferred
// versions first. A group that would exceed a bound is omitted.
func newTotals(now *served) *totals {
	t := &totals{served: now, omittedGroups: map[string]bool{}}
	for _, group := range slices.Sorted(maps.Keys(now.documents)) {
		gvs := now.documents[group]
		size := sizeOf(gvs)
		if t.groupVersions+len(gvs) > maxGroupVersions || t.size+size > maxDiscovery {
			t.omitted += len(gvs)
			t.omittedGroups[group] = true
			continue
		}
		t.groupVersions, t.size = t.groupVersions+len(gvs), t.size+size
		t.documents = append(t.documents, gvs...)
	}
	return t
}

// addTotals makes the snapshot build its totals when first needed.
func (s *served) addTotals() {
	s.totals = sync.OnceValue(func() *totals { return newTotals(s) })
}

// totals returns the discovery of the current snapshot.
func (s *Server) totals() *totals {
	now := s.served.Load()
	if now == nil {
		return newTotals(&served{})
	}
	return now.totals()
}

// withinTotal checks that discovery has room for a definition.
func (t *totals) withinTotal(crd, old *apiextensionsv1.CustomResourceDefinition) field.ErrorList {
	path := field.NewPath("spec", "versions")
	more := 0
	for _, v := range servedVersions(crd) {
		if !t.has(crd.Spec.Group, v) {
			more++
		}
	}
	if more > 0 && t.groupVersions+more > maxGroupVersions {
		return field.ErrorList{field.Forbidden(path, fmt.Sprintf(
			"all definitions together would have %d group/versions, and may have %d: delete definitions, or serve fewer versions", t.groupVersions+more, maxGroupVersions))}
	}
	size, was := discoverySize(crd), 0
	if old != nil {
		was = discoverySize(old)
	}
	if size > was && t.size+size-was > maxDiscovery {
		return field.ErrorList{field.Forbidden(path, fmt.Sprintf(
			"discovery of all definitions together would take %d bytes, and may take %d: delete definitions, serve fewer versions, or remove short names and categories",
			t.size+size-was, maxDiscovery))}
	}
	return nil
}

func (t *totals) has(group, version string) bool {
	return slices.ContainsFunc(t.served.documents[group], func(gv discovery.GroupVersion) bool { return gv.Version == version })
}

// discoverySize returns the size of a served definition in discovery, in bytes.
func discoverySize(crd *apiextensionsv1.CustomResourceDefinition) (n int) {
	names := &crd.Spec.Names
	for i := range crd.Spec.Versions {
		v := &crd.Spec.Versions[i]
		if !v.Served {
			continue
		}
		k := &rest.Kind{Info: resource.Info{
			Group: crd.Spec.Group, Versions: []string{v.Name}, Resource: names.Plural, Singular: names.Singular,
			Kind: names.Kind, ShortNames: names.ShortNames, Categories: names.Categories,
		}}
		if v.Subresources != nil {
			k.Subresources = make([]rest.Subresource, 2)
		}
		n += sizeOf(discovery.FromKinds([]*rest.Kind{k}))
	}
	return n
}

func sizeOf(gvs []discovery.GroupVersion) (n int) {
	for i := range gvs {
		n += gvs[i].Size()
	}
	return n
}
