package managedfields

import (
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	upstream "k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/client-go/applyconfigurations"

	"portico/resource/rest"
	"portico/resource/rest/resttest"
)

// testKind is a kind with its codec and types.
type testKind struct {
	gvk   schema.GroupVersionKind
	codec Codec
	types func() (upstream.TypeConverter, error)
}

func (k testKind) tracker(manager string) *Tracker {
	return &Tracker{Types: k.types, Codec: k.codec, GVK: k.gvk, Manager: manager}
}

// widgets is a kind without Go types, in two versions that differ in nothing but their
// name.
func widgets(types upstream.TypeConverter) testKind {
	gvk := schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}
	return testKind{gvk, untyped(gvk), func() (upstream.TypeConverter, error) { return types, nil }}
}

// untyped is the Codec of a kind without Go types.
type untyped schema.GroupVersionKind

func (c untyped) Hub() schema.GroupVersion { return schema.GroupVersionKind(c).GroupVersion() }

func (c untyped) ConvertTo(obj runtime.Object, gv schema.GroupVersion) (runtime.Object, error) {
	to := gv.WithKind(c.Kind)
	if gv.Group != c.Group || gv.Version != "v1" && gv.Version != "v1beta1" {
		return nil, runtime.NewNotRegisteredErrForKind("widgets", to)
	}
	out := obj.(*unstructured.Unstructured)
	if out.GroupVersionKind() != to {
		out = out.DeepCopy()
		out.SetGroupVersionKind(to)
	}
	return out, nil
}

// coreTypes returns the types of core/v1.
var coreTypes = sync.OnceValues(func() (upstream.TypeConverter, error) {
	return applyconfigurations.NewTypeConverter(resttest.CoreScheme()), nil
})

// core is a kind of core/v1.
func core(kind string) testKind {
	gvk := corev1.SchemeGroupVersion.WithKind(kind)
	return testKind{gvk, rest.Typed(resttest.CoreScheme(), gvk).(rest.Versioned), coreTypes}
}

func TestManagerName(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("é", 100)
	for _, test := range []struct{ manager, agent, want string }{
		{"me", "agent/1", "me"},
		{"", "kubectl/v1.37 (linux/amd64)", "kubectl"},
		{"", "plain", "plain"},
		{"", "", ""},
		{"", "a\tb\x00c/1", "abc"},
		{"", long, strings.Repeat("é", 64)},
	} {
		if got := ManagerName(test.manager, test.agent); got != test.want {
			t.Errorf("%q, %q: got %q, want %q", test.manager, test.agent, got, test.want)
		}
	}
}
