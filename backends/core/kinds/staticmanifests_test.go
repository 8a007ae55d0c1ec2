package kinds

import (
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
)

// Names of static manifests are reserved in all kinds of admissionregistration.k8s.io/v1.
func TestNamesOfStaticManifests(t *testing.T) {
	t.Parallel()
	found := 0
	for _, k := range allKinds() {
		if k.Group != admissionregistrationv1.GroupName {
			continue
		}
		found++
		if name := k.Strategy.ValidateName; len(name("a.static.k8s.io", false)) != 1 || len(name("a.example.com", false)) != 0 {
			t.Errorf("%s: %v", k.Kind, name("a.static.k8s.io", false))
		}
	}
	if found != 6 {
		t.Errorf("%d kinds", found)
	}
}
