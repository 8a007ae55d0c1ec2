package upstream

import (
	"bytes"
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
// and of the filled objects of module k8s.io/api.
func TestTablesAreThoseOfKubeAPIServer(t *testing.T) {
	t.Parallel()
	generator := printers.NewTableGenerator().With(printersinternal.AddHandlers)
	for _, k := range kinds.All(kinds.Config{}) {
		for _, version := range k.Versions {
			gvr := k.GVR(version)
			t.Run(gvr.Group+"/"+version+"/"+gvr.Resource, func(t *testing.T) {
				c := &comparison{t: t, gvr: gvr, gvk: k.GVK(version)}
				var bodies [][]byte
				for _, o := range kindtest.Objects(t, filepath.Join(testdata, "objects"), gvr) {
					bodies = append(bodies, kindtest.Encoded(o))
				}
				if filled := c.filled(); filled != nil {
					bodies = append(bodies, filled)
				}
				for _, body := range bodies {
					compareTables(t, generator, k, version, body)
				}
			})
		}
	}
}

func compareTables(t *testing.T, generator *printers.HumanReadableGenerator, k *porticorest.Kind, version string, body []byte) {
	t.Helper()
	gvk := k.GVK(version)
	obj, _, err := legacyscheme.Codecs.UniversalDecoder().Decode(body, &gvk, nil)
	if err != nil {
		t.Fatal(err)
	}
	want, err := generator.GenerateTable(obj, printers.GenerateOptions{Wide: true})
	if (err != nil) != (k.Columns == nil) {
		t.Fatalf("%d columns, but kube-apiserver's: %v", len(k.Columns), err)
	}
	if err != nil {
		return // the default columns
	}
	ours, _, err := k.Codec.Decode(body, runtime.ContentTypeJSON, gvk, false)
	if err != nil {
		t.Fatal(err)
	}
	if k.Strategy.Default != nil {
		k.Strategy.Default(ours.(porticorest.Object))
	}
	cells, err := k.Cells(ours)
	if err != nil {
		t.Fatal(err)
	}
	if w, g := head(want.ColumnDefinitions), head(k.Columns); !reflect.DeepEqual(g, w) {
		t.Errorf("columns:\n\tgot  %v\n\twant %v", g, w)
	}
	if w, g := kindtest.Encoded(want.Rows[0].Cells), kindtest.Encoded(cells); !bytes.Equal(w, g) {
		t.Errorf("cells:\n\tgot  %s\n\twant %s", g, w)
	}
}

// head returns columns without their descriptions.
func head(columns []metav1.TableColumnDefinition) []metav1.TableColumnDefinition {
	out := slices.Clone(columns)
	for i := range out {
		out[i].Description = ""
	}
	return out
}
