package kinds

import (
	"bufio"
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/kubernetes/scheme"

	"portico/internal/testing/kindtest"
	"portico/resource/rest"
)

// Writes that kube-apiserver refuses have the same errors (field and reason) here, and nothing is
// stored. The files of
// testdata/outcomes, which .ci/long kinds records from kube-apiserver's rules, have one write
// of each distinct list of errors; the objects are those of testdata/objects.
func TestRefusedWritesHaveTheErrorsOfKubeAPIServer(t *testing.T) {
	for _, k := range slices.DeleteFunc(allKinds(), (*rest.Kind).Virtual) {
		k.Strategy.Allocate = nil // it would set addresses of Services that the rules require
		for _, version := range k.Versions {
			subresources := []string{""}
			for _, s := range k.Subresources {
				if s.Strategy != nil {
					subresources = append(subresources, s.Name)
				}
			}
			for _, sub := range subresources {
				t.Run(strings.Trim(k.Group+"/"+version+"/"+k.Resource+"/"+sub, "/"), func(t *testing.T) {
					t.Parallel()
					replay(t, k, version, sub)
				})
			}
		}
	}
}

func replay(t *testing.T, k *rest.Kind, version, sub string) {
	gvr := k.GVR(version)
	objects := kindtest.Objects(t, filepath.Join("testdata", "objects"), gvr)
	if len(objects) == 0 {
		t.Fatal("testdata/objects has no object of the kind")
	}
	gvr.Resource = strings.TrimSuffix(gvr.Resource+"/"+sub, "/")
	outcomes := readOutcomes(t, filepath.Join("testdata", "outcomes", kindtest.FileName(gvr)+".txt"))
	sample, err := scheme.Scheme.New(k.GVK(version))
	if err != nil {
		t.Fatal(err)
	}
	r, server := kindtest.Of(k, version, sub), kindtest.Serve(k, version)
	kindtest.Cases(t, objects, reflect.TypeOf(sample).Elem(), sub != "", func(c kindtest.Case) {
		want, ok := outcomes[c.Name]
		if !ok {
			return
		}
		delete(outcomes, c.Name)
		var got []string
		for _, cause := range c.Outcome(r).Causes {
			got = append(got, cause.Field+": "+cause.Reason)
		}
		if got = slices.Compact(got); !slices.Equal(got, want) {
			t.Errorf("%s\n\tgot  %v\n\twant %v", c.Name, got, want)
		}
		refuse(t, server, c, sub, want)
	})
	for _, name := range slices.Sorted(maps.Keys(outcomes)) {
		t.Errorf("no write has the name %q: record the outcomes again", name)
	}
}

// readOutcomes reads the errors of each write.
func readOutcomes(t *testing.T, file string) map[string][]string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	out, name := map[string][]string{}, ""
	for lines := bufio.NewScanner(bytes.NewReader(data)); lines.Scan(); {
		cause, indented := strings.CutPrefix(lines.Text(), "\t")
		if !indented {
			name = cause
			continue
		}
		if !slices.Contains(out[name], cause) {
			out[name] = append(out[name], cause)
		}
	}
	return out
}
