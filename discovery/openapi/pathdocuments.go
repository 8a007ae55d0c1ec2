package openapi

import (
	"cmp"
	"net/http"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/kube-openapi/pkg/util"

	"portico/resource/rest"
)

// Keys of the documents of paths without group/version, named by the path as in kube-apiserver. See
// also GroupKey.
const (
	KeyCore                = "api"
	KeyGroups              = "apis"
	KeyVersion             = "version"
	KeyOpenIDConfiguration = ".well-known/openid-configuration"
	KeyOpenIDKeys          = "openid/v1/jwks"
)

// GroupKey returns the key of the document of the discovery of a group.
func GroupKey(group string) string { return KeyGroups + "/" + group }

// PathURL returns the URL, with its hash, of the document of such a key; "" if there is none.
func (d *Documents) PathURL(key string) string {
	if doc := d.pathDocument(key); doc != nil {
		return doc.url
	}
	return ""
}

// ServePath serves the document of such a key, which must be in the index. It is small and built for
// each request.
func (d *Documents) ServePath(w http.ResponseWriter, r *http.Request, key string) {
	if doc := d.pathDocument(key); doc != nil {
		d.serve(w, r, doc)
		return
	}
	http.Error(w, "404 page not found", http.StatusNotFound)
}

// PathsJSON returns one document of the paths of several such keys. Other keys are omitted.
func (d *Documents) PathsJSON(keys []string) ([]byte, error) {
	b := newBuilder("", d.cbor)
	for _, key := range keys {
		if o := operationOf(key); o != nil {
			b.addPath(key, o)
		}
	}
	return b.encode()
}

func (d *Documents) pathDocument(key string) *document {
	if operationOf(key) == nil {
		return nil
	}
	hash := inputHash(d.seed, key, &members{})
	doc := &document{key: key, hash: hash, url: "/openapi/v3/" + key + "?hash=" + hash}
	doc.retired.Store(true)
	doc.kinds.Store(&[]*rest.Kind{})
	return doc
}

// pathOperation is the only operation of such a path.
type pathOperation struct {
	id, description, tag string
	// answer is the type of the response; nil is a string.
	answer util.OpenAPIModelNamer
	media  []string
}

// operationOf returns the operation of such a key; nil for other keys.
func operationOf(key string) *pathOperation {
	all := []string{mediaJSON, mediaYAML, mediaProtobuf}
	switch key {
	case KeyCore:
		return &pathOperation{"getCoreAPIVersions", "get available API versions", "core", metav1.APIVersions{}, all}
	case KeyGroups:
		return &pathOperation{"getAPIVersions", "get available API versions", "apis", metav1.APIGroupList{}, all}
	case KeyVersion:
		return &pathOperation{"getCodeVersion", "get the version information for this server", "version", version.Info{}, all[:1]}
	case KeyOpenIDConfiguration:
		return &pathOperation{"getServiceAccountIssuerOpenIDConfiguration", "get service account issuer OpenID configuration, also known as the 'OIDC discovery doc'", "WellKnown", nil, all[:1]}
	case KeyOpenIDKeys:
		return &pathOperation{"getServiceAccountIssuerOpenIDKeyset", "get service account issuer OpenID JSON Web Key Set (contains public token verification keys)", "openid", nil, []string{"application/jwk-set+json"}}
	}
	group, ok := strings.CutPrefix(key, KeyGroups+"/")
	if !ok || group == "" || strings.Contains(group, "/") {
		return nil
	}
	name := camel(group)
	return &pathOperation{"get" + title(name) + "APIGroup", "get information of a group", name, metav1.APIGroup{}, all}
}

// resources returns the operation of the list of a group/version's resources.
func (b *builder) resources(group string) *pathOperation {
	name := cmp.Or(camel(group), "core")
	return &pathOperation{"get" + title(name) + title(b.version) + "APIResources", "get available resources", name + "_" + b.version,
		metav1.APIResourceList{}, []string{mediaJSON, mediaYAML, mediaProtobuf}}
}

// addPath describes the path of such a key.
func (b *builder) addPath(key string, o *pathOperation) {
	schema := stringAnswer()
	switch answer := o.answer.(type) {
	case nil:
	case version.Info:
		schema = ref(b.models.add(answer))
	case metav1.APIGroupList:
		schema = ref(b.models.add(answer, metaKind(answer)))
		b.models.add(metav1.APIGroup{}, metaKind(metav1.APIGroup{}))
	default:
		schema = ref(b.models.add(answer, metaKind(answer)))
	}
	content := map[string]media{}
	for _, m := range o.media {
		content[m] = media{schema}
	}
	if b.cbor && content[mediaProtobuf] != (media{}) {
		content[runtime.ContentTypeCBOR] = media{schema}
	}
	b.paths["/"+key+"/"] = operations{"get": &operation{
		Tags: []string{o.tag}, Description: o.description, OperationID: o.id,
		Responses: map[string]response{"200": {Description: "OK", Content: content}, "401": {Description: "Unauthorized"}},
	}}
}
