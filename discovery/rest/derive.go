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
	// MaxResources bounds the resources and subresources of an API; the first by name are kept.
	MaxResources = 1000
	// maxLeftOut bounds API.LeftOut.
	maxLeftOut = 50
)

// Config is the registration of a server.
type Config struct {
	// Group and Version of the API. Required.
	Group, Version string
	// PathPrefix replaces /apis/GROUP/VERSION. "" is the path of the first server in the
	// document, and "/" is no prefix.
	PathPrefix string
}

// API is the API of a REST server. Immutable.
type API struct {
	Resources discovery.GroupVersion
	// PathPrefix replaces /apis/GROUP/VERSION in requests to the server: "", or /a/path without a
	// slash at its end.
	PathPrefix string
	// Document is the OpenAPI 3.0 document to publish, as JSON with the paths of clients; nil if it
	// is too large.
	Document []byte
	// LeftOut are paths in no resource, and Omitted is how many more there are.
	LeftOut []LeftOut
	Omitted int
}

// LeftOut is a path that is in no resource.
type LeftOut struct{ Path, Reason string }

// ErrNone is the error for a document without resources.
var ErrNone = errors.New("no path of the OpenAPI document can be a resource")

// Derive derives an API from an OpenAPI 3 document, in time and memory proportional to its size, which
// is bounded. The error says what is wrong with the document.
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

// prefixes returns the prefix of paths in requests to the server, and the part of it that paths of the
// document include. A server in the document that contradicts the configuration is ignored: it is for
// other clients.
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

// plainPath reports whether a clean path needs no escaping.
func plainPath(p string) bool { return len(p) <= maxPrefix && unescaped.MatchString(p) }

// CheckPathPrefix returns what is wrong with a configured PathPrefix.
func CheckPathPrefix(prefix string) error {
	if p := clean(prefix); prefix == "" || prefix == "/" || (prefix == p || prefix == p+"/") && plainPath(p) {
		return nil
	}
	return fmt.Errorf("%q is not a path of letters, digits, '.', '_', '~' and '-', at most %d bytes long", clip(prefix), maxPrefix)
}

// CleanPathPrefix returns a configured prefix in the form of API.PathPrefix.
func CleanPathPrefix(prefix string) string { return clean(prefix) }

// clean returns a path without a slash at its end; "" for the root.
func clean(p string) string {
	p = path.Clean("/" + p)
	if p == "/" {
		return ""
	}
	return p
}

// below removes a prefix of whole segments from a path.
func below(p, prefix string) (rest string, ok bool) {
	rest, ok = strings.CutPrefix(p, prefix)
	return rest, ok && (rest == "" || rest[0] == '/')
}

// deriving is the state of Derive.
type deriving struct {
	cfg       Config
	doc       *document
	api       *API
	resources map[string]*found // by "name" or "name/subresource"
	paths     map[string]*pathItem
}

// found is a resource or subresource.
type found struct {
	verbs map[string]bool
	// item is the path of one object, list that of the collection.
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

// add adds a path by the rule of resource.ParseAction.
func (d *deriving) add(rest string, item *pathItem) error {
	parts, err := segments(rest)
	if err != nil {
		return err
	}
	if item == nil || len(item.methods()) == 0 {
		return errors.New("it has no method that is a verb")
	}
	if reserved[parts[0].text] {
		return fmt.Errorf("%q is reserved in the paths of APIs", parts[0].text)
	}
	if err := parts[0].named("resource"); err != nil {
		return err
	}
	name := parts[0].text
	if len(parts) > 1 && !parts[1].place {
		return fmt.Errorf("%q is in the place of the name of an object", clip(parts[1].text))
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
	f.addVerbs(item, len(parts))
	d.paths[rest] = item
	return nil
}

// method is an operation with its verb on an object and on a collection, and its action in
// documents.
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

// addVerbs adds the verbs of a path with depth segments.
func (f *found) addVerbs(item *pathItem, depth int) {
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

// finish names the kinds and makes discovery.
func (d *deriving) finish() {
	d.nameKinds()
	gv := discovery.GroupVersion{Group: d.cfg.Group, Version: d.cfg.Version}
	singulars := d.singulars()
	for _, name := range slices.Sorted(maps.Keys(d.resources)) {
		f := d.resources[name]
		parent, sub, isSub := strings.Cut(name, "/")
		r := metav1.APIResource{Name: name, Verbs: slices.Sorted(maps.Keys(f.verbs)), Kind: f.kind, SingularName: singulars[name]}
		if isSub {
			// The kind of its resource, if there is one.
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

// anyKind is the kind of a resource with a name without letters.
const anyKind = "Resource"

// nameKinds gives each resource a unique kind. Of resources with one schema, the one with its name gets
// the kind; suffixes of the schema (PetRead, PetWithRelations) are removed.
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

// unused returns the first name that is not taken, or one with a number.
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

// singulars returns the unambiguous singular names of resources.
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
