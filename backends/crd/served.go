package crd

import (
	"context"
	"fmt"
	"reflect"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico/discovery"
	"portico/resource"
	"portico/resource/rest"
)

// served is a snapshot of everything that the server serves. Immutable.
type served struct {
	// outlines are all stored definitions by name, also those not served.
	outlines map[string]*outline
	// stored are the same by group, in name order.
	stored map[string][]*apiextensionsv1.CustomResourceDefinition
	byGR   map[schema.GroupResource]*definition
	// groups are the served definitions by group, in name order; documents is
	// what discovery says of each group.
	groups    map[string][]*definition
	documents map[string][]discovery.GroupVersion
	// totals is the discovery of all, within the bounds.
	totals func() *totals
}

// definition is a served definition as it is now.
type definition struct {
	*outline
	*serving
}

// serving is what a definition serves. It is reused after changes of other parts of the
// definition (conditions, labels).
type serving struct {
	outline *outline // when serving was built
	// versions are the served ones, preferred first.
	versions []string
	rows     map[string]*rest.Resource
	// ended ends the watches of a definition that is no longer served, or served
	// differently.
	ended context.Context
	end   context.CancelFunc
}

// next builds the snapshot after old from all stored definitions. Unchanged entries are
// reused. It returns the entries that are no longer served.
func (s *Server) next(old *served, stored []*resource.Object) (now *served, gone []*serving) {
	now = &served{
		outlines: make(map[string]*outline, len(stored)), byGR: make(map[schema.GroupResource]*definition, len(stored)),
		groups: map[string][]*definition{}, documents: map[string][]discovery.GroupVersion{},
		stored: map[string][]*apiextensionsv1.CustomResourceDefinition{},
	}
	kept := map[*serving]bool{}
	for _, o := range stored {
		out, err := s.outlineOf(old, o)
		if err != nil {
			s.log.Error("a definition cannot be read and is not served", "definition", o.Name, "err", err)
			continue
		}
		now.outlines[out.Name] = out
		now.stored[out.Spec.Group] = append(now.stored[out.Spec.Group], out.CustomResourceDefinition)
		if !isServed(out.CustomResourceDefinition) {
			continue
		}
		d := s.define(old, out)
		kept[d.serving] = true
		gr := schema.GroupResource{Group: out.Spec.Group, Resource: out.Status.AcceptedNames.Plural}
		now.byGR[gr] = d
		now.groups[gr.Group] = append(now.groups[gr.Group], d)
	}
	if old != nil {
		for _, d := range old.byGR {
			if !kept[d.serving] {
				gone = append(gone, d.serving)
			}
		}
	}
	for group, list := range now.groups {
		now.documents[group] = documentsOf(old, group, list)
	}
	now.addTotals()
	return now, gone
}

func (s *Server) outlineOf(old *served, o *resource.Object) (*outline, error) {
	if old != nil {
		if known := old.outlines[o.Name]; known != nil && known.stored == o {
			return known, nil
		}
	}
	return newOutline(o)
}

// define returns the entry of a definition, which is the old one if that serves the same.
func (s *Server) define(old *served, out *outline) *definition {
	if old != nil {
		gr := schema.GroupResource{Group: out.Spec.Group, Resource: out.Status.AcceptedNames.Plural}
		if known := old.byGR[gr]; known != nil && sameServing(known.outline, out) {
			return &definition{outline: out, serving: known.serving}
		}
	}
	return &definition{outline: out, serving: s.newServing(out)}
}

// sameServing reports whether two states of a definition serve the same. The start of its
// deletion does not change the generation (see beginDelete).
func sameServing(a, b *outline) bool {
	return a == b || a.UID == b.UID && a.Generation == b.Generation &&
		reflect.DeepEqual(a.Status.AcceptedNames, b.Status.AcceptedNames)
}

func (s *Server) newServing(out *outline) *serving {
	v := &serving{outline: out, versions: servedVersions(out.CustomResourceDefinition), rows: map[string]*rest.Resource{}}
	v.ended, v.end = context.WithCancel(context.Background())
	for _, name := range v.versions {
		at := slices.IndexFunc(out.Spec.Versions, func(o apiextensionsv1.CustomResourceDefinitionVersion) bool { return o.Name == name })
		k := s.newKind(v, &out.Spec.Versions[at])
		v.rows[name] = &rest.Resource{Kind: k, Store: s.cache.Store(&k.Info)}
	}
	return v
}

// documentsOf returns the discovery of a group, reused if nothing in it changed.
func documentsOf(old *served, group string, list []*definition) []discovery.GroupVersion {
	same := func(a, b *definition) bool { return a.serving == b.serving && a.terminating() == b.terminating() }
	if old != nil && slices.EqualFunc(old.groups[group], list, same) {
		return old.documents[group]
	}
	var kinds []*rest.Kind
	for _, d := range list {
		for _, k := range d.kinds() {
			if d.terminating() {
				going := *k
				going.Verbs = terminatingVerbs
				k = &going
			}
			kinds = append(kinds, k)
		}
	}
	return discovery.FromKinds(kinds)
}

// terminatingVerbs are the verbs of a definition that is being deleted, in discovery
// (docs/wire.md 2.4). Objects can still be updated, to remove finalizers.
var terminatingVerbs = []string{"delete", "deletecollection", "get", "list", "watch"}

func (d *definition) terminating() bool { return d.DeletionTimestamp != nil }

// kinds returns the rows of the served versions, preferred first: at most maxVersions.
func (v *serving) kinds() []*rest.Kind {
	published := v.versions[:min(len(v.versions), maxVersions)]
	out := make([]*rest.Kind, 0, len(published))
	for _, name := range published {
		out = append(out, v.rows[name].Kind)
	}
	return out
}

// infos are the resources that are served now.
func (s *Server) infos() []*resource.Info {
	out := []*resource.Info{&s.definitions.Info}
	if now := s.served.Load(); now != nil {
		for _, d := range now.byGR {
			if len(d.versions) > 0 {
				out = append(out, &d.rows[d.versions[0]].Info)
			}
		}
	}
	return out
}

// lookup finds the resource of a request.
func (s *Server) lookup(act *resource.Action) (*rest.Resource, error) {
	if act.Group == s.definitions.Group {
		if act.Resource == s.definitions.Resource {
			return s.definitions, nil
		}
		return nil, nil
	}
	now := s.served.Load()
	if now == nil {
		return nil, resource.Unavailable("the definitions have not been read yet", 1)
	}
	d := now.byGR[schema.GroupResource{Group: act.Group, Resource: act.Resource}]
	if d == nil {
		return nil, nil
	}
	return d.rows[act.Version], nil
}

// peers returns the stored definitions of a group, for the acceptance of
// names.
func (s *Server) peers(group string) []*apiextensionsv1.CustomResourceDefinition {
	ctx, cancel := context.WithTimeout(context.Background(), peersTimeout)
	defer cancel()
	now := s.served.Load()
	list, err := s.early.List(ctx, resource.ListOptions{})
	if err != nil {
		s.log.Warn("names are checked against what was read last", "err", err)
		if now == nil {
			return nil
		}
		return now.stored[group]
	}
	var out []*apiextensionsv1.CustomResourceDefinition
	for _, o := range list.Items {
		if d, err := s.outlineOf(now, o); err == nil && d.Spec.Group == group {
			out = append(out, d.CustomResourceDefinition)
		}
	}
	return out
}

// schemaOf returns the built schema of one version.
func (s *Server) schemaOf(v *serving, version string) (*versionSchema, error) {
	b, err := s.schemas.get(v)
	if err != nil {
		return nil, err
	}
	one := b.versions[version]
	if one == nil {
		return nil, fmt.Errorf("definition %s, version %s: %w", v.outline.Name, version, errNotServed)
	}
	return one, nil
}
