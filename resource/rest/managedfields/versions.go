package managedfields

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// versions implements the converter, creater and defaulter of upstream's manager with a Codec.
type versions struct{ codec Codec }

var _ runtime.ObjectConvertor = versions{}

// ConvertToVersion implements runtime.ObjectConvertor.
func (v versions) ConvertToVersion(in runtime.Object, target runtime.GroupVersioner) (runtime.Object, error) {
	if gv, ok := target.(schema.GroupVersion); ok {
		return v.codec.ConvertTo(in, gv)
	}
	from := in.GetObjectKind().GroupVersionKind()
	to, ok := target.KindForGroupVersionKinds([]schema.GroupVersionKind{from})
	if !ok {
		return nil, runtime.NewNotRegisteredErrForTarget("codec", nil, target)
	}
	return v.codec.ConvertTo(in, to.GroupVersion())
}

// Convert implements runtime.ObjectConvertor; the manager does not use it.
func (v versions) Convert(in, out, _ any) error {
	return fmt.Errorf("convert %T into %T: not supported", in, out)
}

// ConvertFieldLabel implements runtime.ObjectConvertor; the manager does not use it.
func (v versions) ConvertFieldLabel(_ schema.GroupVersionKind, label, value string) (string, string, error) {
	return label, value, nil
}

// New implements runtime.ObjectCreater.
func (v versions) New(gvk schema.GroupVersionKind) (runtime.Object, error) {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(gvk)
	return v.codec.ConvertTo(u, gvk.GroupVersion())
}

// Default implements runtime.ObjectDefaulter. The caller sets defaults later; no manager owns
// them.
func (v versions) Default(runtime.Object) {}
