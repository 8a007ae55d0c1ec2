package rest

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico/discovery"
)

// Bounds of an API.
const (
	// MaxResources is how many resources and subresources an API has at most.
	// Those that come first by name are taken.
	MaxResources = 1000
	// maxLeftOut is how many reasons are kept of what was left out.
	maxLeftOut = 50
)

// Config says what a server is registered as.
type Config struct {
	// Group and Version of the API. Required.
	Group, Version string
	// PathPrefix takes the place of /apis/GROUP/VERSION. "" is what the document
	// says: the path of the first of its servers. "/" is none.
	PathPrefix string
}

// API is what a REST server offers as an API. Immutable.
type API struct {
	Resources discovery.GroupVersion
	// PathPrefix takes the place of /apis/GROUP/VERSION in requests to the
	// server: "", or /a/path without a slash at its end.
	PathPrefix string
	// Document is the OpenAPI 3.0 document to publish, JSON with the paths that
	// clients use; nil if it would be too large.
	Document []byte
	// LeftOut says which paths are in no resource, and why; Omitted how many more
	// there are than it lists.
	LeftOut []LeftOut
	Omitted int
}

// LeftOut is a path that is in no resource.
type LeftOut struct{ Path, Reason string }

// ErrNone says that a document has no path that can be a resource.
var ErrNone = errors.New("no path of the OpenAPI document can be a resource")

// Derive makes an API of an OpenAPI 3 document. It takes time and memory in
// proportion to the document, which is bounded. An error says what is wrong with
// the document.
func Derive(cfg Config, data []byte) (*API, error) {
	doc, err := read(data)
	if err != nil {
		return nil, err
	}
	prefix, cut, err := prefixes(cfg.PathPrefix, doc.Servers)
	if err != nil {
		return nil, err
	}
	d := &deriving{cfg: cfg, doc: doc, api: &API{PathPrefix: prefix}, resources: map[string]*found{}, paths: map[string]*pathItem{}}
	for _, p := range slices.Sorted(maps.Keys(doc.Paths)) {
		rest, ok := below(p, cut)
		if !ok {
			d.leaveOut(p, fmt.Errorf("it is not below %s", cut))
			continue
		}
		if err := d.add(rest, doc.Paths[p]); err != nil {
			d.leaveOut(p, err)
		}
	}
	if len(d.resources) == 0 {
		if len(d.api.LeftOut) > 0 {
			return nil, fmt.Errorf("%w: %s: %s", ErrNone, d.api.LeftOut[0].Path, d.api.LeftOut[0].Reason)
		}
		return nil, fmt.Errorf("%w: it has no paths", ErrNone)
	}
	d.finish()
	if d.api.Document, err = d.publish(); err != nil {
		d.leaveOut("/openapi/v3/apis/"+cfg.Group+"/"+cfg.Version, err)
	}
	return d.api, nil
}

// prefixes returns what stands before a path in requests to the server, and
// what of that the document's paths begin with. A document that names a place
// for its server which the configuration contradicts was written for those who
// reach the server another way.
func prefixes(configured string, servers []server) (prefix, cut string, err error) {
	base := ""
	if len(servers) > 0 {
		if u, err := url.Parse(servers[0].URL); err == nil && plainPath(clean(u.Path)) {
			base = clean(u.Path)
		}
	}
	if configured == "" {
		return base, "", nil
	}
	if err := CheckPathPrefix(configured); err != nil {
		return "", "", err
	}
	prefix = CleanPathPrefix(configured)
	if rest, ok := below(prefix, base); ok {
		return prefix, rest, nil
	}
	return prefix, "", nil
}

// maxPrefix bounds a path prefix, in bytes.
const maxPrefix = 256

var unescaped = regexp.MustCompile(`^(/[A-Za-z0-9._~-]+)*$`)

// plainPath reports whether a clean path means the same to everybody.
func plainPath(p string) bool { return len(p) <= maxPrefix && unescaped.MatchString(p) }

// CheckPathPrefix says what is wrong with a configured PathPrefix.
func CheckPathPrefix(prefix string) error {
	if p := clean(prefix); prefix == "" || prefix == "/" || (prefix == p || prefix == p+"/") && plainPath(p) {
		return nil
	}
	return fmt.Errorf("%q is not a path of letters, digits, '.', '_', '~' and '-', at most %d bytes long", clip(prefix), maxPrefix)
}

// CleanPathPrefix returns a configured prefix as it stands before paths.
func CleanPathPrefix(prefix string) string { return clean(prefix) }

// clean returns a path without a slash at its end; that of the root is "".
func clean(p string) string {
	p = path.Clean("/" + p)
	if p == "/" {
		return ""
	}
	return p
}

// below takes a prefix off a path, between segments only.
func below(p, prefix string) (rest string, ok bool) {
	rest, ok = strings.CutPrefix(p, prefix)
	return rest, ok && (rest == "" || rest[0] == '/')
}

// deriving is an API as far as it is made.
type deriving struct {
	cfg       Config
	doc       *document
	api       *API
	resources map[string]*found // by "name" or "name/subresource"
	paths     map[string]*pathItem
}

// found is what paths say of a resource or subresource.
type found struct {
	verbs map[string]bool
	// item has one object, list all of them.
	item, list *pathItem
	kind       string
}

func (d *deriving) leaveOut(path string, reason error) {
	if len(d.api.LeftOut) == maxLeftOut {
		d.api.Omitted++
		return
	}
	d.api.LeftOut = append(d.api.LeftOut, LeftOut{clip(path), reason.Error()})
}

// add takes a path into account, by the rule of resource.ParseAction.
func (d *deriving) add(rest string, item *pathItem) error {
	parts, err := segments(rest)
	if err != nil {
		return err
	}
	if item == nil || len(item.methods()) == 0 {
		return errors.New("it has no method that is a verb")
	}
	if reserved[parts[0].text] {
		return fmt.Errorf("%q is no resource in the paths of APIs", parts[0].text)
	}
	if err := parts[0].named("resource"); err != nil {
		return err
	}
	name := parts[0].text
	if len(parts) > 1 && !parts[1].place {
		return fmt.Errorf("%q stands where an object's name does", clip(parts[1].text))
	}
	if len(parts) > 2 {
		if err := parts[2].named("subresource"); err != nil {
			return err
		}
		name += "/" + parts[2].text
	}
	f := d.resources[name]
	if f == nil {
		if len(d.resources) == MaxResources {
			return fmt.Errorf("there are more than %d resources", MaxResources)
		}
		f = &found{verbs: map[string]bool{}}
		d.resources[name] = f
	}
	f.take(item, len(parts))
	d.paths[rest] = item
	return nil
}

// method is an operation and what it is called on an object and on a
// collection: as a verb, and in documents.
type method struct {
	operation          *operation
	verb, ofCollection string
	action             string
}

func (p *pathItem) methods() (out []method) {
	for _, m := range []method{
		{p.Get, "get", "list", "get"}, {p.Put, "update", "update", "put"}, {p.Post, "create", "create", "post"},
		{p.Delete, "delete", "deletecollection", "delete"}, {p.Patch, "patch", "patch", "patch"},
	} {
		if m.operation != nil {
			out = append(out, m)
		}
	}
	return out
}

// take adds the verbs of a path that has so many segments.
func (f *found) take(item *pathItem, depth int) {
	switch depth {
	case 1:
		f.list = item
	case 2:
		f.item = item
	}
	for _, m := range item.methods() {
		verb := m.verb
		if depth == 1 {
			verb = m.ofCollection
		}
		f.verbs[verb] = true
	}
}

// finish names the kinds and makes the discovery of what was found.
func (d *deriving) finish() {
	d.nameKinds()
	gv := discovery.GroupVersion{Group: d.cfg.Group, Version: d.cfg.Version}
	singulars := d.singulars()
	for _, name := range slices.Sorted(maps.Keys(d.resources)) {
		f := d.resources[name]
		parent, sub, isSub := strings.Cut(name, "/")
		r := metav1.APIResource{Name: name, Verbs: slices.Sorted(maps.Keys(f.verbs)), Kind: f.kind, SingularName: singulars[name]}
		if isSub {
			// As everywhere: that of its resource, if there is one.
			if p := d.resources[parent]; p != nil {
				f.kind = p.kind
			} else {
				f.kind = cmp.Or(kindName(singular(sub)), anyKind)
			}
			r.Kind = f.kind
		}
		gv.Legacy = append(gv.Legacy, r)
	}
	gv.Aggregated = discovery.Aggregate(gv.Group, gv.Version, gv.Legacy)
	d.api.Resources = gv
}

// anyKind is the kind of what has no name of letters.
const anyKind = "Resource"

// nameKinds gives each resource a kind that no other has. Of several whose
// objects have one schema, that which is called like it has its name; what a
// schema's name says beyond that (PetRead, PetWithRelations) is about the answer.
func (d *deriving) nameKinds() {
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(d.resources)), func(name string) bool { return strings.Contains(name, "/") })
	taken := map[string]bool{}
	for _, alike := range []bool{true, false} {
		for _, name := range names {
			f := d.resources[name]
			own, said := kindName(singular(name)), d.schemaKind(f)
			if own != "" && strings.HasPrefix(said, own) {
				said = own
			}
			if f.kind == "" && (own == said) == alike {
				f.kind = unused(taken, said, own, kindName(name), anyKind)
			}
		}
	}
}

// unused returns the first of some names that is not taken, or makes one.
func unused(taken map[string]bool, names ...string) string {
	for n := 1; ; n++ {
		for _, name := range names {
			if name == "" {
				continue
			}
			if n > 1 {
				name += strconv.Itoa(n)
			}
			if !taken[name] {
				taken[name] = true
				return name
			}
		}
	}
}

// singulars returns what each resource is called in the singular, if that means
// no other.
func (d *deriving) singulars() map[string]string {
	out, taken := map[string]string{}, map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(d.resources)) {
		one := strings.ToLower(d.resources[name].kind)
		if one == "" || taken[one] || one != name && d.resources[one] != nil {
			continue
		}
		taken[one] = true
		out[name] = one
	}
	return out
}
