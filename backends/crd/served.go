package crd

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico/backends/crd/custom"
	"portico/discovery"
	"portico/resource"
	"portico/resource/rest"
)

// served is a snapshot of everything that the server serves. Immutable.
type served struct {
	// outlines are all stored definitions by name, also those not served.
	outlines map[string]*custom.Outline
	// stored are the same by group, in name order.
	stored map[string][]*apiextensionsv1.CustomResourceDefinition
	byGR   map[schema.GroupResource]*definition
	// groups are the served definitions by group, in name order, and documents is the
	// discovery of each group.
	groups    map[string][]*definition
	documents map[string][]discovery.GroupVersion
	// totals is the discovery of all, within the bounds. It is built when first needed.
	totals func() *totals
}

// definition is a served definition in its current state.
type definition struct {
	*custom.Outline
	*serving
}

// serving is what a definition serves. It is reused after changes of other parts of the
// definition (conditions, labels).
type serving struct {
	outline *custom.Outline // when serving was built
	// versions are the served ones, preferred first.
	versions []string
	rows     map[string]*rest.Resource
	watches  map[string]*watches // by version
}

// watches are those of one version of a definition. They go on while it changes, unless a change
// concerns what they have been told or asked for (sameWatches); the objects of their next events are
// of the new schema.
type watches struct {
	ended context.Context
	end   context.CancelFunc
}

// next builds the snapshot after old from all stored definitions. Unchanged entries are
// reused. It returns the entries that are no longer served.
func (s *Server) next(old *served, stored []*resource.Object) (now *served, gone []*serving) {
	now = &served{
		outlines: make(map[string]*custom.Outline, len(stored)), byGR: make(map[schema.GroupResource]*definition, len(stored)),
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
		// Objects of the resource customresourcedefinitions would be stored among the definitions.
		if resourceOf(out) == s.definitions.GroupResource() || !isServed(out.CustomResourceDefinition) {
			continue
		}
		d := s.define(old, out)
		kept[d.serving] = true
		gr := resourceOf(out)
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

// resourceOf returns the group and the accepted plural of a definition.
func resourceOf(o *custom.Outline) schema.GroupResource {
	return schema.GroupResource{Group: o.Spec.Group, Resource: o.Status.AcceptedNames.Plural}
}

func (s *Server) outlineOf(old *served, o *resource.Object) (*custom.Outline, error) {
	if old != nil {
		if known := old.outlines[o.Name]; known != nil && known.Stored == o {
			return known, nil
		}
	}
	return custom.NewOutline(o)
}

// define returns the entry of a definition, which is the old one if that serves the same.
func (s *Server) define(old *served, out *custom.Outline) *definition {
	var known *definition
	if old != nil {
		known = old.byGR[resourceOf(out)]
	}
	if known != nil && sameServing(known.Outline, out) {
		return &definition{Outline: out, serving: known.serving}
	}
	return &definition{Outline: out, serving: s.newServing(out, known)}
}

// sameServing reports whether two states of a definition serve the same. The start of its
// deletion does not change the generation (see beginDelete).
func sameServing(a, b *custom.Outline) bool {
	return a == b || a.UID == b.UID && a.Generation == b.Generation &&
		reflect.DeepEqual(a.Status.AcceptedNames, b.Status.AcceptedNames)
}

// newServing returns what a definition serves, with the watches of what it served before (nil: it did not).
func (s *Server) newServing(out *custom.Outline, before *definition) *serving {
	v := &serving{outline: out, rows: map[string]*rest.Resource{}, watches: map[string]*watches{}}
	v.versions = slices.DeleteFunc(servedVersions(out.CustomResourceDefinition), func(version string) bool { return s.isOwn(out.Spec.Group, version) })
	for _, version := range v.versions {
		v.rows[version] = s.row(out, version)
		if before != nil && before.watches[version] != nil && sameWatches(before.serving.outline, out, version) {
			v.watches[version] = before.watches[version]
			continue
		}
		w := &watches{}
		w.ended, w.end = context.WithCancel(context.Background())
		v.watches[version] = w
	}
	return v
}

// sameWatches reports whether watches of a version go on from one state of a definition to another.
func sameWatches(a, b *custom.Outline, version string) bool {
	was, is := a.Version(version), b.Version(version)
	return a.UID == b.UID && reflect.DeepEqual(a.Status.AcceptedNames, b.Status.AcceptedNames) &&
		reflect.DeepEqual(was.SelectableFields, is.SelectableFields) && reflect.DeepEqual(was.AdditionalPrinterColumns, is.AdditionalPrinterColumns)
}

// endWatches ends the watches of old that now does not have. Those of a definition that is gone get the
// deletions of its objects first (watchcache.Cache.Forget).
func endWatches(old *serving, now *served) {
	d := now.byGR[resourceOf(old.outline)]
	for version, w := range old.watches {
		same := d != nil && d.UID == old.outline.UID
		if same && d.watches[version] == w || !same && now.outlines[old.outline.Name] == nil {
			continue
		}
		w.end()
	}
}

// removed returns the resources of old that are of definitions that are no longer stored. Those with the
// storage path of a built-in kind had no objects, and what is kept by that path is of the built-in kind.
func (s *Server) removed(old *served, stored []*resource.Object) (all []*resource.Info) {
	if old == nil {
		return nil
	}
	uids := make(map[string]bool, len(stored))
	for _, o := range stored {
		uids[o.UID] = true
	}
	for _, out := range old.outlines {
		if uids[string(out.UID)] || s.overlaps(out) {
			continue
		}
		info := &resource.Info{Group: out.Spec.Group, Resource: out.Spec.Names.Plural, Path: out.StoragePath()}
		for _, v := range out.Spec.Versions {
			info.Versions = append(info.Versions, v.Name)
		}
		all = append(all, info)
	}
	return all
}

// forgetMetrics removes the metrics of resources that are not served any more.
func (s *Server) forgetMetrics(removed []*resource.Info) {
	for _, info := range removed {
		s.api.Forget(info)
		s.metrics.Forget(info)
		if s.etcd != nil {
			s.etcd.Forget(info)
		}
	}
}

// row returns the resource of one version of a definition, served or not.
func (s *Server) row(out *custom.Outline, version string) *rest.Resource {
	k := s.kinds.Kind(out, version)
	if k == nil {
		return nil
	}
	k.ShortNames, k.Categories = firstNames(k.ShortNames), firstNames(k.Categories)
	k.Current = func() *rest.Kind {
		if d := s.definitionOf(k.Group, k.Resource); d != nil && d.UID == out.UID && d.rows[version] != nil {
			return d.rows[version].Kind
		}
		return k
	}
	return &rest.Resource{Kind: k, Store: s.cache.Store(&k.Info)}
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
				limited := *k
				limited.Verbs = terminatingVerbs
				k = &limited
			}
			kinds = append(kinds, k)
		}
	}
	return discovery.FromKinds(kinds)
}

// terminatingVerbs are the verbs in discovery of a definition that is being deleted
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

// infos returns the resources that are served now.
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

// isOwn reports whether a group/version is apiextensions.k8s.io/v1, where definitions serve nothing.
func (s *Server) isOwn(group, version string) bool {
	return group == s.definitions.Group && s.definitions.Serves(version)
}

// lookup returns the resource of a request; nil if there is none.
func (s *Server) lookup(act *resource.Action) (*rest.Resource, error) {
	if s.isOwn(act.Group, act.Version) {
		if act.Resource == s.definitions.Resource {
			return s.shown, nil
		}
		return nil, nil
	}
	if !s.complete() {
		return nil, resource.Unavailable("the definitions have not been read yet", 1)
	}
	d := s.definitionOf(act.Group, act.Resource)
	if d == nil {
		return nil, nil
	}
	row := d.rows[act.Version]
	// Clients that delete all objects of a kind take a 404 for none (docs/wire.md 1.1).
	if row != nil && row.Namespaced && act.Namespace == "" && act.Verb != "list" && act.Verb != "watch" {
		return nil, nil
	}
	return row, nil
}

// definitionOf returns the served definition of a resource; nil if there is none.
func (s *Server) definitionOf(group, plural string) *definition {
	now := s.served.Load()
	if now == nil {
		return nil
	}
	return now.byGR[schema.GroupResource{Group: group, Resource: plural}]
}

// peers returns the stored definitions of a group, read now. If they cannot be read it
// returns those of the last snapshot.
func (s *Server) peers(group string) []*apiextensionsv1.CustomResourceDefinition {
	ctx, cancel := context.WithTimeout(context.Background(), peersTimeout)
	defer cancel()
	now := s.served.Load()
	list, err := s.early.List(ctx, resource.ListOptions{})
	if err != nil {
		s.log.Warn("listing definitions failed; names are checked against those listed last", "err", err)
		if now == nil {
			return nil
		}
		return now.stored[group]
	}
	var out []*apiextensionsv1.CustomResourceDefinition
	for _, o := range list.Items {
		// The name of a definition ends with its group, and decoding takes time.
		if !strings.HasSuffix(o.Name, "."+group) {
			continue
		}
		if d, err := s.outlineOf(now, o); err == nil && d.Spec.Group == group {
			out = append(out, d.CustomResourceDefinition)
		}
	}
	return out
}

// publish updates discovery and OpenAPI. Discovery comes last: its stream announces changes
// of both to the gateway. A change that neither shows, such as a condition, is not announced.
func (s *Server) publish(now *served) {
	kinds := []*rest.Kind{s.definitions.Kind}
	gvs := discovery.FromKinds(kinds)
	all := now.totals()
	group := ""
	for i := range all.documents {
		if all.documents[i].Group == group {
			continue // the versions of a group follow each other
		}
		group = all.documents[i].Group
		for _, d := range now.groups[group] {
			kinds = append(kinds, d.kinds()...)
		}
	}
	gvs = append(gvs, all.documents...)
	if before := s.omitted.Swap(int64(all.omitted)); before != int64(all.omitted) {
		s.log.Warn("discovery omits group/versions of definitions that exceed its bounds", "omitted", all.omitted, "maxGroupVersions", maxGroupVersions, "maxBytes", maxDiscovery)
	}
	s.openAPI.Update(kinds)
	old := s.documents.Load()
	documents, err := discovery.BuildAfter(old, gvs, "")
	if err != nil {
		s.log.Error("building discovery failed", "err", err)
		return
	}
	if state := s.openAPI.State(); old == nil || state != s.openAPIState || !old.Equal(documents) {
		s.openAPIState = state
		s.documents.StoreWith(documents, state)
	}
}

// errTerminating is the 403 for a new object of a definition that is being deleted.
func errTerminating(gr schema.GroupResource, name string) *apierrors.StatusError {
	return apierrors.NewForbidden(gr, name, errors.New("create not allowed while custom resource definition is terminating"))
}

// unlessDeleted returns a context with which no object of a definition is created after its finalizer has begun
// to delete them, whatever this process knows of that.
func (s *Server) unlessDeleted(ctx context.Context, d *definition, name string) context.Context {
	if s.etcd == nil {
		return ctx
	}
	return s.etcd.UnlessBarred(ctx, string(d.UID), errTerminating(resourceOf(d.Outline), name))
}

// lifecycle is the admission that refuses to create objects of a definition that is being
// deleted.
type lifecycle struct{ server *Server }

var _ rest.Admission = (*lifecycle)(nil)

// Mutate implements rest.Admission; it changes nothing.
func (l *lifecycle) Mutate(_ context.Context, a *rest.Attributes) error {
	gr := a.Kind.GroupResource()
	if gr == l.server.definitions.GroupResource() {
		return nil // a definition of that name defines nothing
	}
	if d := l.server.definitionOf(gr.Group, gr.Resource); a.Operation == rest.Create && d != nil && d.terminating() {
		return errTerminating(gr, a.Key.Name)
	}
	return nil
}

// Validate implements rest.Admission. It checks again, as the deletion may have begun in the
// meantime.
func (l *lifecycle) Validate(ctx context.Context, a *rest.Attributes) error { return l.Mutate(ctx, a) }
