package kinds

import (
	"reflect"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	admissionv1beta1 "k8s.io/api/admission/v1beta1"
	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	apidiscoveryv2beta1 "k8s.io/api/apidiscovery/v2beta1"
	corev1 "k8s.io/api/core/v1"
	imagepolicyv1alpha1 "k8s.io/api/imagepolicy/v1alpha1"
	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	clientscheme "k8s.io/client-go/kubernetes/scheme"

	"portico/internal/testing/kindtest"
)

// apiScheme has the types of all packages of module k8s.io/api.
var apiScheme = func() *runtime.Scheme {
	all := runtime.NewScheme()
	metav1.AddToGroupVersion(all, corev1.SchemeGroupVersion)
	for _, add := range []func(*runtime.Scheme) error{
		clientscheme.AddToScheme, admissionv1.AddToScheme, admissionv1beta1.AddToScheme, apidiscoveryv2.AddToScheme, apidiscoveryv2beta1.AddToScheme,
		imagepolicyv1alpha1.AddToScheme, lifecyclev1alpha1.AddToScheme,
	} {
		if err := add(all); err != nil {
			panic(err)
		}
	}
	return all
}()

// kindOf returns the kind of the object in a file with that name, GROUP.VERSION.KIND.
func kindOf(name string) schema.GroupVersionKind {
	parts := strings.Split(name, ".")
	n := len(parts)
	group := strings.Join(parts[:n-2], ".")
	if group == "core" {
		group = ""
	}
	return schema.GroupVersionKind{Group: group, Version: parts[n-2], Kind: parts[n-1]}
}

// decodesInEveryForm decodes an object from JSON, YAML and protobuf, and encodes it in each of them.
func decodesInEveryForm(t *testing.T, file string, gvk schema.GroupVersionKind) {
	t.Helper()
	want := untyped(t, readFile(t, file+".json"))
	codecs := serializer.NewCodecFactory(apiScheme)
	forms := map[string]string{".json": runtime.ContentTypeJSON, ".yaml": runtime.ContentTypeYAML, ".pb": runtime.ContentTypeProtobuf}
	for ending, media := range forms {
		from, _ := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), media)
		obj, _, err := from.Serializer.Decode(readFile(t, file+ending), &gvk, nil)
		if err != nil {
			t.Fatal(err)
		}
		obj.GetObjectKind().SetGroupVersionKind(gvk)
		for other, media := range forms {
			to, _ := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), media)
			data, err := runtime.Encode(to.Serializer, obj)
			if err != nil {
				t.Fatal(err)
			}
			back, _, err := to.Serializer.Decode(data, &gvk, nil)
			if err != nil {
				t.Fatal(err)
			}
			back.GetObjectKind().SetGroupVersionKind(gvk)
			if got := untyped(t, kindtest.Encoded(back)); !reflect.DeepEqual(got, want) {
				t.Errorf("%s through %s differs:\ngot  %v\nwant %v", ending, other, got, want)
			}
		}
	}
}
