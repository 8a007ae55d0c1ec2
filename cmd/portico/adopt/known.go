package adopt

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico/cmd/portico/stored"
	"portico/resource"
	"portico/resource/etcd"
)

// served is a resource that Portico serves.
type served struct {
	resource schema.GroupResource
	// versions are the versions that can be read from etcd; nil: decode decides.
	versions []string
	// decode returns the object, nil for a custom resource. An error of a version that is not
	// known satisfies runtime.IsNotRegisteredError.
	decode func(o *resource.Object) (runtime.Object, error)
}

// catalog has the resources that Portico serves by their storage path.
type catalog map[string]*served

// definitionPath is the storage path of definitions of custom resources.
const definitionPath = apiextensionsv1.GroupName + "/customresourcedefinitions"

// newCatalog returns the built-in resources, which client can decrypt from then on.
func newCatalog(client *etcd.Client) (catalog, error) {
	all, err := stored.Kinds()
	if err != nil {
		return nil, err
	}
	c := catalog{definitionPath: {
		resource: schema.GroupResource{Group: apiextensionsv1.GroupName, Resource: "customresourcedefinitions"},
		versions: []string{"v1", "v1beta1"},
		decode: func(o *resource.Object) (runtime.Object, error) {
			_, err := readDefinition(o.Data)
			return nil, err
		},
	}}
	for path, k := range all {
		client.Store(&k.Info)
		if k.Codec != nil && path != definitionPath {
			c[path] = &served{resource: k.GroupResource(), decode: k.Codec.DecodeStored}
		}
	}
	return c, nil
}

// definition is what of a CustomResourceDefinition says where its objects are, in v1 and v1beta1.
type definition struct {
	Spec struct {
		Group   string `json:"group"`
		Version string `json:"version"` // of v1beta1, with no Versions
		Names   struct {
			Plural string `json:"plural"`
		} `json:"names"`
		Versions []struct {
			Name string `json:"name"`
		} `json:"versions"`
	} `json:"spec"`
}

func readDefinition(data []byte) (*definition, error) {
	d := new(definition)
	if err := json.Unmarshal(data, d); err != nil {
		return nil, err
	}
	if d.Spec.Group == "" || d.Spec.Names.Plural == "" {
		return nil, errors.New("spec.group and spec.names.plural are required")
	}
	return d, nil
}

// versions returns the versions in which objects can be stored.
func (d *definition) versions() (all []string) {
	for _, v := range d.Spec.Versions {
		all = append(all, v.Name)
	}
	if len(all) == 0 && d.Spec.Version != "" {
		all = append(all, d.Spec.Version)
	}
	return all
}

// addCustomResources adds the resources that are defined in etcd. Definitions that cannot be read
// define nothing.
func (c catalog) addCustomResources(ctx context.Context, client *etcd.Client) error {
	return client.Scan(ctx, definitionPath+"/", func(path string, value []byte) error {
		plain, err := client.Decrypt(path, value)
		if err != nil {
			return nil // as below
		}
		d, err := readDefinition(plain)
		if err != nil {
			return nil // the survey counts it
		}
		versions := d.versions()
		c[d.Spec.Group+"/"+d.Spec.Names.Plural] = &served{
			resource: schema.GroupResource{Group: d.Spec.Group, Resource: d.Spec.Names.Plural}, versions: versions,
			decode: func(o *resource.Object) (runtime.Object, error) { return nil, checkCustom(o, d.Spec.Group) },
		}
		return nil
	})
}

// checkCustom returns why a custom resource cannot be read.
func checkCustom(o *resource.Object, group string) error {
	found, _, _ := strings.Cut(o.APIVersion, "/")
	switch {
	case o.Encoding != resource.JSON || !json.Valid(o.Data):
		return errors.New("it is not JSON")
	case found != group:
		return fmt.Errorf("it is an object of group %s", found)
	}
	return nil
}

// find returns the resource of a storage path and the path of all of its objects. What is not
// served has the group and the name that kube-apiserver's paths have, or that is likely.
func (c catalog) find(path string) (*served, string) {
	first, rest, _ := strings.Cut(path, "/")
	second, _, deep := strings.Cut(rest, "/")
	if s := c[first+"/"+second]; s != nil && deep {
		return s, first + "/" + second
	}
	if s := c[first]; s != nil {
		return s, first
	}
	if deep && strings.Contains(first, ".") {
		return nil, first + "/" + second
	}
	return nil, first
}

// unserved reports whether an object is in a version that Portico cannot read.
func (s *served) unserved(o *resource.Object, err error) bool {
	if s.versions == nil {
		return runtime.IsNotRegisteredError(unwrapped(err))
	}
	_, version, grouped := strings.Cut(o.APIVersion, "/")
	return !grouped || !slices.Contains(s.versions, version)
}

// unwrapped returns the innermost error.
func unwrapped(err error) error {
	for err != nil && errors.Unwrap(err) != nil {
		err = errors.Unwrap(err)
	}
	return err
}
