package crd

import (
	"fmt"
	"strings"
	"testing"

	"portico/internal/testing/memstore"
)

// gates has the fields policy and hints in v2 only. %s are whether v1 and v2 are stored.
const gates = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gates.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: gates, kind: Gate}
  versions:
  - name: v1
    served: true
    storage: %t
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: {type: object, properties: {port: {type: string}, hosts: {type: array, items: {type: string}}}}
  - name: v2
    served: true
    storage: %t
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties:
              port: {type: string}
              hosts: {type: array, items: {type: string}}
              policy: {type: string, default: deny}
              hints: {type: object, additionalProperties: {type: string}}
`

// An apply patch in a version does not fail because other managers applied, or updated, in one that lacks fields of it. What
// they applied stays or goes as in one version, and fields that their version lacks are kept.
func TestApplyInANewerVersion(t *testing.T) {
	t.Parallel()
	for _, storedV1 := range []bool{false, true} {
		t.Run(fmt.Sprintf("v1 is stored: %t", storedV1), func(t *testing.T) {
			t.Parallel()
			s := over(t, memstore.New())
			s.install(t, fmt.Sprintf(gates, storedV1, !storedV1))
			path := func(version string) string { return "/apis/example.com/" + version + "/namespaces/default/gates/g" }
			apply := func(version, manager, spec string) map[string]any {
				t.Helper()
				body := "{apiVersion: example.com/" + version + ", kind: Gate, metadata: {name: g}, spec: " + spec + "}"
				return s.must(t, "PATCH", path(version)+"?force=true&fieldManager="+manager, "application/apply-patch+yaml", body)
			}
			apply("v1", "kc", "{port: a, hosts: [x]}")
			s.must(t, "PATCH", path("v1")+"?fieldManager=old", "application/merge-patch+json", `{"metadata":{"labels":{"l":"v"}}}`)
			got := apply("v2", "kc", "{port: a}") // kc applied in v1 last, and gives up hosts
			if policy := at(got, "spec", "policy"); !storedV1 && policy != "deny" || at(got, "spec", "hosts") != nil || at(got, "spec", "port") != "a" {
				t.Errorf("applied in v2: %v", got["spec"])
			}
			if storedV1 {
				return // the storage version drops policy and hints
			}
			apply("v2", "other", "{policy: allow, hints: {a: b}}")
			apply("v1", "third", "{hosts: [z]}")
			if got = apply("v1", "kc", "{port: b}"); at(got, "spec", "port") != "b" { // from v2 back to v1
				t.Errorf("applied in v1: %v", got["spec"])
			}
			if got = apply("v2", "third", "{hosts: [z]}"); at(got, "spec", "port") != "b" {
				t.Errorf("applied in v2 by another: %v", got["spec"])
			}
			before := s.must(t, "GET", path("v2"), "", "")
			got = apply("v2", "kc", "{port: b}")
			again := apply("v2", "kc", "{port: b}")
			if at(got, "metadata", "resourceVersion") != at(again, "metadata", "resourceVersion") {
				t.Errorf("an apply patch without a change: %v, %v before; at first %v", again, got, before)
			}
			a := s.send(t, "PATCH", path("v2")+"?fieldManager=kc", "application/apply-patch+yaml",
				"{apiVersion: example.com/v2, kind: Gate, metadata: {name: g}, spec: {none: b}}")
			if a.code != 400 && a.code != 500 || !strings.Contains(string(a.body), ".spec.none: field not declared in schema") {
				t.Errorf("an unknown field: %d %s", a.code, a.body)
			}
		})
	}
}

// A manager that applies in a newer version after having applied in an older one keeps what others own there.
func TestApplyKeepsFieldsOfTheNewerVersion(t *testing.T) {
	t.Parallel()
	s := over(t, memstore.New())
	s.install(t, fmt.Sprintf(gates, false, true))
	apply := func(version, manager, spec string) map[string]any {
		t.Helper()
		body := "{apiVersion: example.com/" + version + ", kind: Gate, metadata: {name: g}, spec: " + spec + "}"
		return s.must(t, "PATCH", "/apis/example.com/"+version+"/namespaces/default/gates/g?force=true&fieldManager="+manager, "application/apply-patch+yaml", body)
	}
	apply("v1", "kc", "{port: a, hosts: [x]}")
	apply("v2", "other", "{policy: allow, hints: {a: b}}")
	got := apply("v2", "kc", "{port: b}")
	if at(got, "spec", "policy") != "allow" || at(got, "spec", "hints", "a") != "b" || at(got, "spec", "hosts") != nil {
		t.Errorf("the fields of another manager, which v1 lacks: %v", got["spec"])
	}
}
