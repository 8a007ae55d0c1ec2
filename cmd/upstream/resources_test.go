package upstream

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
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/printers"
	printersinternal "k8s.io/kubernetes/pkg/printers/internalversion"

	"portico/backends/core/kinds"
	"portico/backends/core/kubelet"
	"portico/discovery"
	"portico/internal/testing/kindtest"
	"portico/resource"
	porticorest "portico/resource/rest"
)

// elsewhere are the groups of kube-apiserver that the gateway or the CRD server serves.
var elsewhere = []string{
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
		if !slices.Contains(elsewhere, gv.Group) && !strings.Contains(gv.Version, "alpha") && !strings.Contains(gv.Version, "beta") {
			add(want, gv, list.APIResources)
		}
	}
	for _, gv := range discovery.FromKinds(kinds.All(allKinds(t))) {
		add(got, schema.GroupVersion{Group: gv.Group, Version: gv.Version}, gv.Legacy)
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

// allKinds returns a configuration with which the kinds have all their subresources.
func allKinds(t *testing.T) kinds.Config {
	t.Helper()
	connector, err := kubelet.New(kubelet.Config{})
	if err != nil {
		t.Fatal(err)
	}
	call := func(context.Context, resource.Key, runtime.Object, bool) (runtime.Object, error) { return nil, nil }
	return kinds.Config{CreateToken: call, BindPod: call, EvictPod: call, Connections: connector.Subresources}
}

// add adds resources by their names, without what may differ.
func add(to map[string]metav1.APIResource, gv schema.GroupVersion, resources []metav1.APIResource) {
	for _, r := range resources {
		r.StorageVersionHash = ""
		slices.Sort(r.Verbs)
		to[gv.String()+" "+r.Name] = r
	}
}

// TestTablesAreThoseOfKubeAPIServer compares the columns and cells of all objects of testdata
// and of the filled objects of module k8s.io/api. It records those of testdata.
func TestTablesAreThoseOfKubeAPIServer(t *testing.T) {
	t.Parallel()
	generator := printers.NewTableGenerator().With(printersinternal.AddHandlers)
	var recorded strings.Builder
	for _, k := range kinds.All(kinds.Config{}) {
		for _, version := range k.Versions {
			gvr := k.GVR(version)
			t.Run(kindtest.FileName(gvr), func(t *testing.T) {
				var bodies [][]byte
				for _, o := range kindtest.Objects(t, filepath.Join(testdata, "objects"), gvr) {
					bodies = append(bodies, kindtest.Aged(o))
				}
				recorded.WriteString(kindtest.FileName(gvr) + "\n" + compareTables(t, generator, k, version, bodies))
				c := &comparison{t: t, gvr: gvr, gvk: k.GVK(version)}
				if filled := c.filled(); filled != nil {
					compareTables(t, generator, k, version, [][]byte{filled})
				}
			})
		}
	}
	if *record {
		if err := os.WriteFile(filepath.Join(testdata, "tables.txt"), []byte(recorded.String()), 0o644); err != nil {
			t.Error(err)
		}
	}
}

// compareTables compares the tables of objects and returns that of kube-apiserver, "" if it has
// the default columns.
func compareTables(t *testing.T, generator *printers.HumanReadableGenerator, k *porticorest.Kind, version string, bodies [][]byte) string {
	t.Helper()
	var columns []metav1.TableColumnDefinition
	var theirs, ours [][]any
	for _, body := range bodies {
		gvk := k.GVK(version)
		obj, _, err := legacyscheme.Codecs.UniversalDecoder().Decode(body, &gvk, nil)
		if err != nil {
			t.Fatal(err)
		}
		table, err := generator.GenerateTable(obj, printers.GenerateOptions{Wide: true})
		if (err != nil) != (k.Columns == nil) {
			t.Fatalf("%d columns, but kube-apiserver's: %v", len(k.Columns), err)
		}
		if err != nil {
			return "" // the default columns
		}
		columns, theirs = table.ColumnDefinitions, append(theirs, table.Rows[0].Cells)
		ours = append(ours, kindtest.Cells(t, k, version, body))
	}
	want := kindtest.Table(columns, theirs)
	if got := kindtest.Table(k.Columns, ours); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	return want
}
