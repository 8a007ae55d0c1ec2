package core

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico/backends/core/kinds"
	"portico/backends/core/kubelet"
	"portico/discovery"
	"portico/internal/testing/kindtest"
	"portico/resource"
)

// servedElsewhere are the groups of kube-apiserver that the gateway or the CRD server serves.
var servedElsewhere = []string{
	"apiregistration.k8s.io", "apiextensions.k8s.io", "authentication.k8s.io", "authorization.k8s.io", "rbac.authorization.k8s.io",
	"flowcontrol.apiserver.k8s.io",
}

// TestResourcesAreThoseOfKubeAPIServer compares the discovery of stable versions: resources
// and subresources with their kinds, scopes, verbs, short names and categories. docs/kinds.md names
// what is missing.
func TestResourcesAreThoseOfKubeAPIServer(t *testing.T) {
	t.Parallel()
	want, got := map[string]metav1.APIResource{}, map[string]metav1.APIResource{}
	files, err := filepath.Glob(filepath.Join(kindtest.ModuleDir(t, "k8s.io/kubernetes"), "api", "discovery", "*__v*.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		var list metav1.APIResourceList
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(data, &list); err != nil {
			t.Fatal(err)
		}
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Contains(servedElsewhere, gv.Group) && !strings.Contains(gv.Version, "alpha") && !strings.Contains(gv.Version, "beta") {
			addResources(want, gv, list.APIResources)
		}
	}
	for _, gv := range discovery.FromKinds(kinds.All(everySubresource(t))) {
		addResources(got, schema.GroupVersion{Group: gv.Group, Version: gv.Version}, gv.Legacy)
	}
	missing, err := os.ReadFile(filepath.Join("..", "..", "docs", "kinds.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, listed, _ := strings.Cut(string(missing), "## Not there yet")
	for name, w := range want {
		line := "- `" + name + "`"
		if g, ok := got[name]; !ok {
			if !strings.Contains(listed, line) {
				t.Errorf("docs/kinds.md does not say that this is not there yet:\n%s", line)
			}
		} else if strings.Contains(listed, line) {
			t.Errorf("docs/kinds.md says that %s is not there", name)
		} else if !reflect.DeepEqual(g, w) {
			t.Errorf("%s:\n\tgot  %+v\n\twant %+v", name, g, w)
		}
	}
	for name := range got {
		if _, ok := want[name]; !ok {
			t.Errorf("kube-apiserver does not serve %s", name)
		}
	}
}

// everySubresource returns a configuration with which the kinds have all their subresources.
func everySubresource(t *testing.T) kinds.Config {
	t.Helper()
	connector, err := kubelet.New(kubelet.Config{})
	if err != nil {
		t.Fatal(err)
	}
	call := func(context.Context, resource.Key, runtime.Object, bool) (runtime.Object, error) { return nil, nil }
	return kinds.Config{CreateToken: call, BindPod: call, EvictPod: call, Connections: connector.Subresources}
}

// addResources adds resources by their names, without what may differ.
func addResources(to map[string]metav1.APIResource, gv schema.GroupVersion, resources []metav1.APIResource) {
	for _, r := range resources {
		r.StorageVersionHash = ""
		slices.Sort(r.Verbs)
		to[gv.String()+" "+r.Name] = r
	}
}
