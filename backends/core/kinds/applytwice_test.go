package kinds

import (
	"reflect"
	"strings"
	"testing"

	"portico/internal/testing/kindtest"
	"portico/resource/rest"
)

// An apply patch that changes nothing writes nothing, whatever is empty in it: an empty list, map or string, a zero, or null
// in any field of the valid objects of every kind. What is stored lacks most of these.
func TestApplyAgainWithEmptyFields(t *testing.T) {
	t.Parallel()
	for _, k := range allKinds() {
		if k.Virtual() {
			continue
		}
		for _, version := range k.Versions {
			t.Run(k.GVR(version).GroupResource().String()+"/"+version, func(t *testing.T) {
				t.Parallel()
				applyEmptied(t, k, version)
			})
		}
	}
}

func applyEmptied(t *testing.T, k *rest.Kind, version string) {
	objects := kindtest.Objects(t, "testdata/objects", k.GVR(version))
	typ := reflect.TypeOf(k.Codec.StrategicMerge(k.GVK(version))).Elem()
	applied, inPods, last := 0, 0, ""
	for _, base := range objects {
		name := kindtest.NameOf(base)
		kindtest.Put(base, []any{"apiVersion"}, k.GVK(version).GroupVersion().String())
		kindtest.Put(base, []any{"kind"}, k.Kind)
		kindtest.EachEmpty(base, typ, func(m kindtest.Mutation) {
			if pod := strings.Contains(m.Change, "template.spec."); pod || k.Resource == "pods" {
				// Pod specs have thousands of fields; each kind takes some of them.
				if inPods++; inPods%29 != 0 {
					return
				}
			}
			body := m.Body()
			if strings.HasSuffix(m.Change, ".timeAdded = null") {
				return // kube-apiserver sets this field to the current time if it is missing
			}
			// The first patch may be invalid. Without any field it has no manager, and the
			// second one finds an object that was not applied.
			s := kindtest.Serve(k, version)
			w := s.Apply(name, body)
			if last = w.Body.String(); w.Code >= 300 {
				return
			}
			applied++
			if !s.Backdate(t, name) {
				return
			}
			before := s.Revision()
			for range 2 {
				s.Apply(name, body)
			}
			if s.Revision() != before {
				t.Errorf("%s: %s: applied again twice, it is written %d times", name, m.Change, s.Revision()-before)
			}
		})
	}
	if applied == 0 {
		t.Errorf("nothing was applied of %d objects: %s", len(objects), last)
	}
}
