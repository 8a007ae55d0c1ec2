package core

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico/resource"
	"portico/resource/rest"
)

// read is kinds.Permissions.Get.
func (c *Core) read(ctx context.Context, group, res, name string) (rest.Object, error) {
	return rest.GetObject[rest.Object](ctx, c.find(group, res), resource.Key{Name: name}, resource.At{})
}

// resourceOf is kinds.Permissions.ResourceOf. Kinds of other servers are looked up in the
// discovery of the gateway.
func (c *Core) resourceOf(ctx context.Context, gvk schema.GroupVersionKind) (string, error) {
	unknown := &meta.NoKindMatchError{GroupKind: gvk.GroupKind(), SearchedVersions: []string{gvk.Version}}
	for _, k := range c.kinds {
		if k.Group == gvk.Group && k.Kind == gvk.Kind && slices.Contains(k.Versions, gvk.Version) {
			return k.Resource, nil
		}
	}
	if c.drain.gateway == nil {
		return "", unknown
	}
	path := "/apis/" + gvk.GroupVersion().String()
	if gvk.Group == "" {
		path = "/api/" + gvk.Version
	}
	res, err := c.drain.gateway.Do(ctx, http.MethodGet, path, nil, nil)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	var list metav1.APIResourceList
	if err := json.NewDecoder(io.LimitReader(res.Body, maxDocument)).Decode(&list); err != nil {
		return "", err
	}
	for _, r := range list.APIResources {
		if r.Kind == gvk.Kind && !strings.Contains(r.Name, "/") && (r.Group == "" || r.Group == gvk.Group) && (r.Version == "" || r.Version == gvk.Version) {
			return r.Name, nil
		}
	}
	return "", unknown
}
