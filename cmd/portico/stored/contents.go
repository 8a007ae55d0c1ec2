package stored

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico/backends/crd/custom"
	"portico/gateway/lastgood"
	"portico/resource"
	"portico/resource/etcd"
)

// Contents is what etcd holds below a prefix.
type Contents struct {
	// Resources are in the order of their storage paths.
	Resources []*Resource `json:"resources"`
	// Versions are those that processes of each kind have recorded.
	Versions map[string]string `json:"versions"`
	// Keys are the numbers of Portico's own keys.
	Keys map[etcd.Family]int `json:"keys"`
	// Unreadable are objects, and Foreign documents of a format, that this version does not know, with the reason.
	Unreadable []string `json:"unreadable,omitempty"`
	Foreign    []string `json:"foreign,omitempty"`
}

// Resource is the objects of a storage path.
type Resource struct {
	Path string `json:"path"`
	// Process stores them; "" if this version does not know the kind.
	Process Process `json:"process,omitempty"`
	Objects int     `json:"objects"`
	// Forms are the numbers of objects by form, such as "apps/v1 protobuf"; Written is the one in which this version
	// writes them, "" if that is not known.
	Forms   map[string]int `json:"forms"`
	Written string         `json:"written,omitempty"`
	// Definition is that of custom resources; nil for others, and for those without one.
	Definition *Definition `json:"-"`
}

// Definition is what a CustomResourceDefinition says of versions.
type Definition struct {
	Name string
	// Versions has whether each version is served. Storage is the one in which objects are written, Stored those in which
	// some may be.
	Versions map[string]bool
	Storage  string
	Stored   []string
	// Webhook says that versions are converted by a webhook.
	Webhook bool
}

// maxNamed bounds the keys that are named.
const maxNamed = 20

// Reader collects the contents of etcd key by key, in any order.
type Reader struct {
	// Decrypt returns the plain value of a key of a resource. Default: values are as they are.
	Decrypt func(of schema.GroupResource, value, key []byte) ([]byte, error)

	prefix      string
	kinds       map[string]Kind
	resources   map[string]*Resource
	definitions map[string]*Definition // by storage path of their objects
	contents    Contents
}

// NewReader returns a reader of keys below a prefix.
func NewReader(prefix string) (*Reader, error) {
	all, err := Kinds()
	if err != nil {
		return nil, err
	}
	return &Reader{
		prefix: cmp.Or(prefix, etcd.DefaultPrefix), kinds: all, resources: map[string]*Resource{}, definitions: map[string]*Definition{},
		contents: Contents{Versions: map[string]string{}, Keys: map[etcd.Family]int{}},
	}, nil
}

// Add reads one key. Keys of other programs are left out.
func (r *Reader) Add(key string, value []byte) {
	family, name := etcd.ParseKey(r.prefix, key)
	if family == "" {
		return
	}
	r.contents.Keys[family]++
	switch process, isVersion := strings.CutPrefix(name, etcd.VersionFamily+"/"); {
	case family == etcd.DocumentKeys && (strings.HasPrefix(name, etcd.BarFamily+"/") || strings.HasPrefix(name, etcd.PresenceFamily+"/")):
	case family == etcd.Objects:
		if err := r.object(key, name, value); err != nil {
			r.note(&r.contents.Unreadable, key, err)
		}
	case family != etcd.DocumentKeys:
	case isVersion:
		r.contents.Versions[process] = string(value)
	default:
		var content json.RawMessage
		plain, err := r.plain(etcd.DocumentResource, key, value)
		if err == nil {
			err = lastgood.Unpack(plain, &content)
		}
		if err != nil {
			r.note(&r.contents.Foreign, key, err)
		}
	}
}

func (r *Reader) note(to *[]string, key string, err error) {
	if len(*to) < maxNamed {
		*to = append(*to, fmt.Sprintf("%s: %v", key, err))
	}
}

// plain decrypts a value.
func (r *Reader) plain(of schema.GroupResource, key string, value []byte) ([]byte, error) {
	switch by := etcd.Encryption(value); {
	case r.Decrypt != nil:
		return r.Decrypt(of, value, []byte(key))
	case by != "":
		return nil, fmt.Errorf("it is encrypted by %s: name the configuration with --encryption-provider-config", by)
	}
	return value, nil
}

// resourceOf returns the resource that is stored at a path.
func resourceOf(path string, kind Kind) schema.GroupResource {
	if kind.Kind != nil {
		return kind.GroupResource()
	}
	group, plural, grouped := strings.Cut(path, "/")
	if !grouped {
		return schema.GroupResource{Resource: path}
	}
	return schema.GroupResource{Group: group, Resource: plural}
}

// object reads an object and decodes it as the process that serves it does.
func (r *Reader) object(key, path string, value []byte) error {
	res, kind := r.resource(path)
	res.Objects++
	if !etcd.Unencrypted(path) {
		var err error
		if value, err = r.plain(resourceOf(res.Path, kind), key, value); err != nil {
			return err
		}
	}
	o, err := resource.Parse(value)
	if err != nil {
		return err
	}
	form := formOf(o)
	res.Forms[form]++
	if kind.Kind == nil || kind.Codec == nil {
		return nil // checked with its definition, or made anew all the time
	}
	if o.Kind != kind.Info.Kind {
		return fmt.Errorf("it is a %s of %s, where there is a %s", o.Kind, o.APIVersion, kind.Info.Kind)
	}
	decoded, err := kind.Decode(o)
	if err != nil {
		return err
	}
	if res.Written == "" {
		again, err := kind.Codec.EncodeStored(decoded)
		if err != nil {
			return err
		}
		res.Written = formOf(again)
	}
	if kind.Process == CRD {
		return r.define(o)
	}
	return nil
}

// resource returns the resource that has a key, and its kind if that is built in.
func (r *Reader) resource(path string) (*Resource, Kind) {
	first, rest, _ := strings.Cut(path, "/")
	second, _, _ := strings.Cut(rest, "/")
	at, kind := first+"/"+second, Kind{}
	if k, ok := r.kinds[at]; ok {
		kind = k
	} else if k, ok := r.kinds[first]; ok {
		at, kind = first, k
	} else if !strings.Contains(first, ".") {
		at = first // custom resources are below their group, which has a dot
	}
	if r.resources[at] == nil {
		r.resources[at] = &Resource{Path: at, Process: kind.Process, Forms: map[string]int{}}
	}
	return r.resources[at], kind
}

func formOf(o *resource.Object) string {
	if o.Encoding == resource.Protobuf {
		return o.APIVersion + " protobuf"
	}
	return o.APIVersion + " JSON"
}

func (r *Reader) define(o *resource.Object) error {
	outline, err := custom.NewOutline(o)
	if err != nil {
		return err
	}
	d := &Definition{
		Name: o.Name, Versions: map[string]bool{}, Storage: custom.StorageVersion(outline.CustomResourceDefinition), Stored: outline.Status.StoredVersions,
		Webhook: outline.Spec.Conversion != nil && outline.Spec.Conversion.Strategy == apiextensionsv1.WebhookConverter,
	}
	for _, v := range outline.Spec.Versions {
		d.Versions[v.Name] = v.Served
	}
	r.definitions[outline.StoragePath()] = d
	return nil
}

// Contents returns what was read.
func (r *Reader) Contents() *Contents {
	c := &r.contents
	c.Resources = slices.SortedFunc(maps.Values(r.resources), func(a, b *Resource) int { return strings.Compare(a.Path, b.Path) })
	for _, res := range c.Resources {
		if d := r.definitions[res.Path]; d != nil && res.Process == "" {
			group, _, _ := strings.Cut(res.Path, "/")
			res.Process, res.Definition, res.Written = CRD, d, group+"/"+d.Storage+" JSON"
		}
	}
	return c
}

// Definitions returns all definitions by name.
func (r *Reader) Definitions() []*Definition {
	return slices.SortedFunc(maps.Values(r.definitions), func(a, b *Definition) int { return strings.Compare(a.Name, b.Name) })
}

// Version returns the version of an object's form, and whether it is JSON.
func Version(form string) string {
	apiVersion, _, _ := strings.Cut(form, " ")
	_, version, grouped := strings.Cut(apiVersion, "/")
	if !grouped {
		return apiVersion
	}
	return version
}
