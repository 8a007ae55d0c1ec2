//go:build upgrade

package upgrade

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"portico/cmd/e2e"
)

// seeder makes objects of every kind.
type seeder struct {
	*testing.T
	client dynamic.Interface
	typed  kubernetes.Interface
	// refused is why an object of a resource was not made.
	refused map[string]error
}

// seed makes at least one object of every kind that the installation stores: those of the release's own tests of kinds,
// in the folder objects, and the ones below.
func seed(t *testing.T, cfg *rest.Config, objects string) {
	t.Helper()
	cfg = rest.CopyConfig(cfg)
	cfg.WarningHandler = rest.NoWarnings{}
	typed, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	s := &seeder{t, e2e.DynamicClient(t, cfg), typed, map[string]error{}}
	for _, name := range []string{namespace, "limited", "b", "node"} {
		_, err := typed.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
	}
	e2e.Eventually(t, "namespaces have their service account", func() error {
		_, err := typed.CoreV1().ServiceAccounts("b").Get(t.Context(), "default", metav1.GetOptions{})
		return err
	})
	files, err := filepath.Glob(filepath.Join(objects, "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s has no objects (%v)", objects, err)
	}
	for _, file := range files {
		s.file(file)
	}
	s.documents("objects.yaml")
	s.custom()
	s.accounts()
	s.complete(cfg)
}

// file makes the objects of one file, which is named for their resource.
func (s *seeder) file(path string) {
	s.Helper()
	parts := strings.Split(strings.TrimSuffix(filepath.Base(path), ".yaml"), ".")
	n := len(parts)
	gvr := schema.GroupVersionResource{Group: strings.Join(parts[:n-2], "."), Version: parts[n-2], Resource: parts[n-1]}
	for _, o := range s.parse(path) {
		if err := s.create(gvr, o); err != nil {
			s.refused[gvr.Resource] = err
		}
	}
}

func (s *seeder) parse(path string) (all []*unstructured.Unstructured) {
	s.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		s.Fatal(err)
	}
	for doc := range strings.SplitSeq("\n"+string(data), "\n---\n") {
		o := new(unstructured.Unstructured)
		if err := yaml.Unmarshal([]byte(doc), &o.Object); err != nil {
			s.Fatalf("%s: %v", path, err)
		}
		if len(o.Object) > 0 {
			all = append(all, o)
		}
	}
	return all
}

// create makes an object, with its status. What would hinder other objects applies to nothing that is made here.
func (s *seeder) create(gvr schema.GroupVersionResource, o *unstructured.Unstructured) error {
	switch {
	case gvr.Group == "admissionregistration.k8s.io":
		harmless(o.Object)
	case slices.Contains([]string{"resourcequotas", "limitranges"}, gvr.Resource):
		o.SetNamespace("limited")
	case gvr.Resource == "services": // their addresses are of another range
		unstructured.RemoveNestedField(o.Object, "spec", "clusterIP")
		unstructured.RemoveNestedField(o.Object, "spec", "clusterIPs")
	}
	o.SetOwnerReferences(nil) // objects of which no owner exists are deleted
	status := o.Object["status"]
	to := s.client.Resource(gvr).Namespace(o.GetNamespace())
	made, err := to.Create(s.Context(), o, metav1.CreateOptions{})
	if apierrors.IsMethodNotSupported(err) && o.GetNamespace() == "" {
		to = s.client.Resource(gvr).Namespace(metav1.NamespaceDefault)
		made, err = to.Create(s.Context(), o, metav1.CreateOptions{})
	}
	if err != nil || status == nil {
		return err
	}
	made.Object["status"] = status
	// Not every status is valid beside the specification that was stored.
	_, err = to.UpdateStatus(s.Context(), made, metav1.UpdateOptions{})
	if apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// harmless changes rules of admission so that they apply to a group that does not exist.
func harmless(v any) {
	switch v := v.(type) {
	case map[string]any:
		if v["apiGroups"] != nil {
			v["apiGroups"] = []any{"nothing.example.com"}
		}
		for _, child := range v {
			harmless(child)
		}
	case []any:
		for _, child := range v {
			harmless(child)
		}
	}
}

// documents makes the objects of a file of this package.
func (s *seeder) documents(name string) {
	s.Helper()
	for _, o := range s.parse(filepath.Join("testdata", name)) {
		gvk := o.GroupVersionKind()
		if err := s.create(gvk.GroupVersion().WithResource(strings.ToLower(gvk.Kind)+"s"), o); err != nil {
			s.Fatalf("%s: %v", o.GetName(), err)
		}
	}
}

// custom makes a custom resource in each of two versions, of which first one and then the other is stored.
func (s *seeder) custom() {
	s.Helper()
	things := schema.GroupVersionResource{Group: "upgrade.example.com", Version: "v1", Resource: "things"}
	add := func(version string) {
		o := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": things.Group + "/" + version, "kind": "Thing", "metadata": map[string]any{"name": "stored-as-" + version},
			"spec": map[string]any{"size": int64(3), "note": version},
		}}
		gvr := things.GroupResource().WithVersion(version)
		e2e.Eventually(s.T, "things are served", func() error {
			_, err := s.client.Resource(gvr).Namespace(namespace).Create(s.Context(), o, metav1.CreateOptions{})
			return err
		})
	}
	add("v1")
	definitions := s.client.Resource(e2e.Definitions)
	crd, err := definitions.Get(s.Context(), "things.upgrade.example.com", metav1.GetOptions{})
	if err != nil {
		s.Fatal(err)
	}
	versions, _, err := unstructured.NestedSlice(crd.Object, "spec", "versions")
	if err != nil {
		s.Fatal(err)
	}
	for i := range versions {
		versions[i].(map[string]any)["storage"] = i == 1
	}
	crd.Object["spec"].(map[string]any)["versions"] = versions
	if crd, err = definitions.Update(s.Context(), crd, metav1.UpdateOptions{}); err != nil {
		s.Fatal(err)
	}
	add("v2")
	if stored, _, _ := unstructured.NestedStringSlice(crd.Object, "status", "storedVersions"); len(stored) != 2 {
		s.Errorf("stored versions of things are %v", stored)
	}
}

// accounts makes a token in a Secret, which has no end, and one that ends, for the service account.
func (s *seeder) accounts() {
	s.Helper()
	const month = 30 * 24 * 3600
	account := s.typed.CoreV1().ServiceAccounts(namespace)
	made, err := account.CreateToken(s.Context(), "robot", &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: new(int64(month))},
	}, metav1.CreateOptions{})
	if err != nil {
		s.Fatal(err)
	}
	token := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: tokenRequested}, StringData: map[string]string{"token": made.Status.Token}}
	if _, err := s.typed.CoreV1().Secrets(namespace).Create(s.Context(), token, metav1.CreateOptions{}); err != nil {
		s.Fatal(err)
	}
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: tokenStored, Annotations: map[string]string{corev1.ServiceAccountNameKey: "robot"}},
		Type:       corev1.SecretTypeServiceAccountToken,
	}
	if _, err := s.typed.CoreV1().Secrets(namespace).Create(s.Context(), secret, metav1.CreateOptions{}); err != nil {
		s.Fatal(err)
	}
	_, err = s.typed.RbacV1().RoleBindings(namespace).Create(s.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "robot"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: "robot"}},
	}, metav1.CreateOptions{})
	if err != nil {
		s.Fatal(err)
	}
}

// complete checks that there is an object of every kind.
func (s *seeder) complete(cfg *rest.Config) {
	s.Helper()
	resources, err := listable(cfg)
	if err != nil {
		s.Fatal(err)
	}
	for _, gvr := range resources {
		list, err := s.client.Resource(gvr).List(s.Context(), metav1.ListOptions{Limit: 1})
		if err != nil || len(list.Items) == 0 {
			s.Errorf("there is no object of %v: %v", gvr, fmt.Sprint(err, s.refused[gvr.Resource]))
		}
	}
}
