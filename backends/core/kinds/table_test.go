package kinds

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico/internal/testing/kindtest"
	"portico/resource/rest"
)

func fieldPath(name string) *field.Path { return field.NewPath(name) }

// The columns and cells of every kind are those of kube-apiserver for the objects of
// testdata/objects, which .ci/long kinds records.
func TestTables(t *testing.T) {
	data, err := os.ReadFile(filepath.Join("testdata", "tables.txt"))
	if err != nil {
		t.Fatal(err)
	}
	recorded, name := map[string]string{}, ""
	for line := range strings.Lines(string(data)) {
		if strings.HasPrefix(line, "\t") {
			recorded[name] += line
		} else {
			name = strings.TrimSuffix(line, "\n")
			recorded[name] = ""
		}
	}
	for _, k := range allKinds() {
		for _, version := range k.Versions {
			if k.Call != nil {
				continue // bindings are never read
			}
			name, rows := kindtest.FileName(k.GVR(version)), [][]any(nil)
			want, ok := recorded[name]
			if !ok {
				t.Errorf("%s is not recorded", name)
			}
			if k.Columns == nil {
				continue // the default ones
			}
			for _, o := range kindtest.Objects(t, filepath.Join("testdata", "objects"), k.GVR(version)) {
				rows = append(rows, kindtest.Cells(t, k, version, kindtest.Aged(o)))
			}
			if got := kindtest.Table(k.Columns, rows); got != want || len(rows) == 0 {
				t.Errorf("%s: got\n%swant\n%s", name, got, want)
			}
		}
	}
}

// The cells of values that the objects of testdata/objects do not have.
func TestCells(t *testing.T) {
	for _, c := range []struct{ resource, manifest, row string }{
		{"services", `{"spec":{"clusterIPs":["10.0.0.1"],"selector":{"b":"2","a":"1"},"ports":[{"port":80},{"port":53,"protocol":"UDP","nodePort":30000}]}}`,
			"x|ClusterIP|10.0.0.1|<none>|80/TCP,53:30000/UDP|3d|a=1,b=2"},
		{"services", `{"spec":{"type":"LoadBalancer","externalIPs":["10.9.9.9"]},"status":{"loadBalancer":{"ingress":[{"ip":"10.2.2.2"},{"hostname":"h"},{"ip":"10.1.1.1"}]}}}`,
			"x|LoadBalancer|<none>|10.1.1.1,10.2.2.2,h,10.9.9.9|<none>|3d|<none>"},
		{"services", `{"spec":{"type":"LoadBalancer"}}`, "x|LoadBalancer|<none>|<pending>|<none>|3d|<none>"},
		{"endpoints", `{"subsets":[{"addresses":[{"ip":"10.0.0.1"},{"ip":"fd00::1"}],"notReadyAddresses":[{"ip":"10.0.0.9"}],"ports":[{"port":80},{"port":81}]}]}`,
			"x|10.0.0.1:80,[fd00::1]:80,10.0.0.1:81 + 1 more...|3d"},
		{"endpoints", `{"subsets":[{"addresses":[{"ip":"10.0.0.1"}]}]}`, "x|10.0.0.1|3d"},
		{"endpoints", `{}`, "x|<none>|3d"},
		{"endpointslices.discovery.k8s.io", `{"addressType":"IPv4","endpoints":[{"addresses":["1","2"]},{"addresses":["3","4"]}],"ports":[{"port":80},{"name":"a"},{}]}`,
			"x|IPv4|80,a,*|1,2,3 + 1 more...|3d"},
		{"endpointslices.discovery.k8s.io", `{"addressType":"IPv4"}`, "x|IPv4|<unset>|<unset>|3d"},
		{"events", `{"message":"m","type":"Normal"}`, "<unknown>|Normal|||||m|<unknown>|1|x"},
		{"mutatingadmissionpolicybindings" + admissionGroup, `{"spec":{"policyName":"p","paramRef":{"name":"r"}}}`, "x|p|*/r|3d"},
		{"validatingadmissionpolicybindings" + admissionGroup, `{"spec":{"policyName":"p","paramRef":{"selector":{"matchLabels":{"a":"b"}}}}}`, "x|p|&LabelSelector{MatchLabels:map[string]string{a: b,},MatchExpressions:[]LabelSelectorRequirement{},}|3d"},
		{"deployments.apps", `{"spec":{"selector":{"matchExpressions":[{"operator":"?"}]}}}`, "x|0/1|0|0|3d|||<invalid>"},
	} {
		t.Run(c.resource, func(t *testing.T) {
			k := kind(t, c.resource)
			obj := looseDecode(t, k, c.manifest)
			obj.SetName("x")
			obj.SetCreationTimestamp(metav1.NewTime(time.Now().Add(-73 * time.Hour)))
			cells, err := k.Cells(obj)
			if err != nil {
				t.Fatal(err)
			}
			var row []string
			for _, cell := range cells {
				row = append(row, strings.Replace(fmt.Sprint(cell), "3d1h", "3d", 1))
			}
			if got := strings.Join(row, "|"); got != c.row {
				t.Errorf("row %s, want %s", got, c.row)
			}
		})
	}
}

// looseDecode decodes manifests that validation would reject.
func looseDecode(t *testing.T, k *rest.Kind, manifest string) rest.Object {
	t.Helper()
	obj, _, err := k.Codec.Decode([]byte(manifest), jsonType, k.GVK("v1"), false)
	if err != nil {
		t.Fatal(err)
	}
	if k.Strategy.Default != nil {
		k.Strategy.Default(obj.(rest.Object))
	}
	return obj.(rest.Object)
}

func TestAge(t *testing.T) {
	if got := age(metav1.Time{}); got != unknown {
		t.Errorf("age of no time is %s", got)
	}
	if got := age(metav1.NewTime(time.Now().Add(-400 * 24 * time.Hour))); got != "400d" && got != "1y35d" {
		t.Errorf("age of 400 days is %s", got)
	}
}
