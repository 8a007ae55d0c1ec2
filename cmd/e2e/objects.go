package e2e

import (
	"context"
	"os"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// NewNamespace creates a namespace for one test and deletes it at the end.
func NewNamespace(t *testing.T, client kubernetes.Interface) string {
	t.Helper()
	ns, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		err := client.CoreV1().Namespaces().Delete(context.Background(), ns.Name, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			t.Error(err)
		}
	})
	return ns.Name
}

// Whoami returns the user name that the gateway derives from the credentials of cfg.
func Whoami(t *testing.T, cfg *rest.Config) string {
	t.Helper()
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	review, err := client.AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return review.Status.UserInfo.Username
}

// WriteFile writes a file that only the user may read.
func WriteFile(t *testing.T, path, data string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(data), 0o600); err != nil {
		t.Fatal(err)
	}
}

// Definitions is the resource of CustomResourceDefinitions.
var Definitions = apiextensionsv1.SchemeGroupVersion.WithResource("customresourcedefinitions")

// ConfigMaps and Roles are resources of the core server and of the gateway.
var (
	ConfigMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	Roles      = schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "roles"}
)

// DynamicClient returns a dynamic client.
func DynamicClient(t *testing.T, cfg *rest.Config) dynamic.Interface {
	t.Helper()
	client, err := dynamic.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// Widgets returns a definition of namespaced widgets in a group.
func Widgets(t *testing.T, group string) *unstructured.Unstructured {
	t.Helper()
	keep := true
	crd := &apiextensionsv1.CustomResourceDefinition{
		TypeMeta:   metav1.TypeMeta{APIVersion: apiextensionsv1.SchemeGroupVersion.String(), Kind: "CustomResourceDefinition"},
		ObjectMeta: metav1.ObjectMeta{Name: "widgets." + group},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: group, Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "widgets", Kind: "Widget"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
					Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{
						"spec": {Type: "object", XPreserveUnknownFields: &keep},
					},
				}},
			}},
		},
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(crd)
	if err != nil {
		t.Fatal(err)
	}
	delete(content, "status")
	return &unstructured.Unstructured{Object: content}
}

// WidgetsOf returns the resource of the widgets of a group.
func WidgetsOf(group string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: group, Version: "v1", Resource: "widgets"}
}

// Widget returns a widget of a group.
func Widget(group, name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": group + "/v1", "kind": "Widget",
		"metadata": map[string]any{"name": name}, "spec": map[string]any{"colour": "red"},
	}}
}

// Define creates the definition of widgets in a group and waits until they are served.
func Define(t *testing.T, client dynamic.Interface, group string) dynamic.NamespaceableResourceInterface {
	t.Helper()
	if _, err := client.Resource(Definitions).Create(t.Context(), Widgets(t, group), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	r := client.Resource(WidgetsOf(group))
	Eventually(t, "widgets."+group+" are served", func() error {
		_, err := r.List(t.Context(), metav1.ListOptions{})
		return err
	})
	return r
}

// Create creates a ConfigMap in the namespace default.
func Create(t *testing.T, up *Installation, name string) {
	t.Helper()
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"name": name}}
	if _, err := up.Client(t).CoreV1().ConfigMaps("default").Create(t.Context(), cm, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// Expect checks that a ConfigMap that Create created exists.
func Expect(t *testing.T, up *Installation, name string) {
	t.Helper()
	cm, err := up.Client(t).CoreV1().ConfigMaps("default").Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if cm.Data["name"] != name {
		t.Errorf("%s holds %v", name, cm.Data)
	}
}
