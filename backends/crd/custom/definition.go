package custom

import (
	"encoding/json"
	"fmt"
	"strconv"
	"sync"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/install"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1beta1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico/resource"
	"portico/resource/rest"
)

// DefinitionScheme returns the scheme of definitions: v1, v1beta1 and upstream's internal
// version.
var DefinitionScheme = sync.OnceValue(func() *runtime.Scheme {
	s := runtime.NewScheme()
	install.Install(s)
	return s
})

// DefinitionCodec returns the Codec of definitions. It stores v1, and also reads v1beta1, in
// which kube-apiserver stores them.
var DefinitionCodec = sync.OnceValue(func() rest.Codec {
	v1 := apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition")
	return definitionCodec{rest.TypedJSON(DefinitionScheme(), v1, convertDefinition).(rest.Versioned)}
})

// convertDefinition is the rest.ConvertFunc of definitions.
func convertDefinition(in runtime.Object, to schema.GroupVersionKind) (runtime.Object, error) {
	out, err := DefinitionScheme().New(to)
	if err != nil {
		return nil, err
	}
	internal := &apiextensions.CustomResourceDefinition{}
	// A conversion shares memory with its source, and may change it.
	if err := DefinitionScheme().Convert(in.DeepCopyObject(), internal, nil); err != nil {
		return nil, err
	}
	if err := DefinitionScheme().Convert(internal, out, nil); err != nil {
		return nil, err
	}
	out.GetObjectKind().SetGroupVersionKind(to)
	return out, nil
}

// definitionCodec sets the defaults of v1beta1 in definitions that are stored in that version.
type definitionCodec struct{ rest.Versioned }

// DecodeStored implements rest.Codec.
func (c definitionCodec) DecodeStored(o *resource.Object) (runtime.Object, error) {
	if o.APIVersion != v1beta1.SchemeGroupVersion.String() {
		return c.Versioned.DecodeStored(o)
	}
	old := &v1beta1.CustomResourceDefinition{}
	if err := json.Unmarshal(o.Data, old); err != nil {
		return nil, fmt.Errorf("decode CustomResourceDefinition: %w", err)
	}
	DefinitionScheme().Default(old)
	if o.Revision != 0 {
		old.ResourceVersion = strconv.FormatInt(o.Revision, 10)
	}
	return c.ConvertTo(old, apiextensionsv1.SchemeGroupVersion)
}

// definitionJSON returns a stored definition as v1.
func definitionJSON(o *resource.Object) ([]byte, error) {
	if o.APIVersion != v1beta1.SchemeGroupVersion.String() {
		return o.Data, nil
	}
	obj, err := DefinitionCodec().DecodeStored(o)
	if err != nil {
		return nil, err
	}
	return json.Marshal(obj)
}
